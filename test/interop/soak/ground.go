package main

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"noncegate/test/interop/chaintest"
)

// ground is the chain under a run, asked and changed past the proxies.
type ground interface {
	chaintest.Endpoint
	ChainID() *big.Int
	Call(result any, method string, args ...any) error
	Sign(from chaintest.Account, p chaintest.Payment) *types.Transaction
	Nonce(account common.Address) uint64
	Head() (uint64, common.Hash)

	commit()                       // makes a block of what the pool has
	reorg(depth int, keepTxs bool) // replaces blocks; where it can, their transactions return to the pool
	drop(hash common.Hash)         // has the pool lose a transaction
	rollback()                     // has the pool lose everything
}

// geth is go-ethereum's node.
type geth struct{ *chaintest.Sim }

func (g geth) commit()                       { g.Commit() }
func (g geth) reorg(depth int, keepTxs bool) { g.Reorg(depth, keepTxs) }
func (g geth) drop(hash common.Hash)         { g.Drop(hash) }
func (g geth) rollback()                     { g.Rollback() }

// anvil is Foundry's node. A reorg there loses all transactions of the blocks it replaces.
type anvil struct{ *chaintest.Anvil }

func (a anvil) commit()                 { a.Mine(1) }
func (a anvil) reorg(depth int, _ bool) { a.Reorg(depth) }
func (a anvil) drop(hash common.Hash)   { _ = a.Call(new(any), "anvil_dropTransaction", hash) } // it may be mined by now
func (a anvil) rollback()               { _ = a.Call(new(any), "anvil_dropAllTransactions") }

// startGround starts the chain of a run with its accounts.
func startGround(h *host, cfg Config) (ground, []chaintest.Account) {
	switch cfg.Chain {
	case "geth":
		sim := chaintest.StartSim(h, chaintest.SimConfig{Accounts: cfg.Accounts, FinalLag: finalDepth})
		return geth{sim}, sim.Accounts
	case "anvil":
		// Two epochs below the head are final.
		a := chaintest.StartAnvil(h, "--no-mining", "--slots-in-an-epoch=4")
		if cfg.Accounts > len(a.Accounts) {
			h.Fatalf("--accounts %d: anvil has %d", cfg.Accounts, len(a.Accounts))
		}
		a.Mine(1)
		return anvil{a}, a.Accounts[:cfg.Accounts]
	}
	h.Fatalf("--chain %s: want geth or anvil", cfg.Chain)
	return nil, nil
}
