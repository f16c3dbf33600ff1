package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

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

// finalDepth is how far a block must be below the head until nothing replaces it here.
const finalDepth = 8

// block is a block as a node gives it.
type block struct {
	Number       hexutil.Uint64
	Hash         common.Hash
	Transactions []struct {
		Hash  common.Hash
		From  common.Address
		Nonce hexutil.Uint64
		Input hexutil.Bytes
	}
}

// use is the transaction that used a nonce.
type use struct {
	hash  common.Hash
	block uint64
}

// view is the canonical chain as workers follow it: which transaction used which nonce of
// which account, and how often each payment is there. It asks the node itself, past the
// proxies. Its methods may be called from any goroutine.
type view struct {
	ground
	all      []chaintest.Account
	accounts map[common.Address]int

	mu     sync.Mutex // guards what follows
	blocks []*block   // by number
	uses   []map[uint64]use
	paid   map[uint64]int
	first  map[uint64]time.Time // when each payment was seen first
}

func newView(on ground, accounts []chaintest.Account) *view {
	v := &view{ground: on, all: accounts, accounts: make(map[common.Address]int),
		paid: make(map[uint64]int), first: make(map[uint64]time.Time)}
	for i, a := range accounts {
		v.accounts[a.Address] = i
		v.uses = append(v.uses, make(map[uint64]use))
	}
	return v
}

// update follows the chain to its head, over a reorg too.
func (v *view) update() error {
	number, _ := v.Head()
	var fresh []*block // newest first
	v.mu.Lock()
	defer v.mu.Unlock()
	for n := int(number); n >= 0; n-- {
		var b *block
		err := v.Call(&b, "eth_getBlockByNumber", hexutil.EncodeUint64(uint64(n)), true)
		if err == nil && b == nil {
			err = errors.New("it is not there")
		}
		if err != nil {
			return fmt.Errorf("read block %d: %w", n, err)
		}
		if n < len(v.blocks) && v.blocks[n].Hash == b.Hash {
			break
		}
		fresh = append(fresh, b)
	}
	for len(v.blocks) > int(number)+1-len(fresh) {
		v.addLocked(v.blocks[len(v.blocks)-1], -1)
		v.blocks = v.blocks[:len(v.blocks)-1]
	}
	for i := len(fresh) - 1; i >= 0; i-- {
		v.addLocked(fresh[i], 1)
		v.blocks = append(v.blocks, fresh[i])
	}
	return nil
}

// addLocked counts the transactions of a block by times more.
func (v *view) addLocked(b *block, times int) {
	for _, tx := range b.Transactions {
		if id, ok := paymentOf(tx.Input); ok {
			v.paid[id] += times
			if _, ok := v.first[id]; !ok {
				v.first[id] = time.Now()
			}
		}
		account, ok := v.accounts[tx.From]
		switch {
		case !ok:
		case times > 0:
			v.uses[account][uint64(tx.Nonce)] = use{tx.Hash, uint64(b.Number)}
		default:
			delete(v.uses[account], uint64(tx.Nonce))
		}
	}
}

// used says which transaction used a nonce, and whether that is final.
func (v *view) used(account int, nonce uint64) (hash common.Hash, final, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	u, ok := v.uses[account][nonce]
	return u.hash, ok && u.block+finalDepth < uint64(len(v.blocks)), ok
}

// height is the number of the head.
func (v *view) height() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.blocks) - 1
}

// payload is what the transaction of a payment carries.
func payload(id uint64) []byte { return binary.BigEndian.AppendUint64([]byte("payment "), id) }

// paymentOf reads a payload.
func paymentOf(input []byte) (id uint64, ok bool) {
	if len(input) != 16 || string(input[:8]) != "payment " {
		return 0, false
	}
	return binary.BigEndian.Uint64(input[8:]), true
}

// sendTimeout is how long a worker waits for a node.
const sendTimeout = 2 * time.Second

// outcome is what a worker knows after it has given a transaction to nodes.
type outcome string

const (
	accepted outcome = "accepted" // it is in a pool
	passed   outcome = "passed"   // a node says that its nonce is used, or has another transaction of it
	refused  outcome = "refused"  // it was not taken, and a node that says this does not forward
	unknown  outcome = "unknown"  // anything may have happened
)

// said is what the words of a node mean.
var said = []struct {
	words string
	out   outcome
}{
	{"already known", accepted},
	{"nonce too low", passed},
	{"replacement transaction underpriced", passed},
	{"future transaction tries to replace pending", passed},
	{"rate limited", refused},
}

// nodes are the chain's nodes as workers reach them: through the proxies.
type nodes []*rpc.Client

func dialNodes(h *host, urls ...string) (ns nodes) {
	for _, url := range urls {
		transport := &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: 10 * time.Second}
		client, err := rpc.DialOptions(h.ctx, url, rpc.WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			h.Fatalf("%s: %v", url, err)
		}
		h.Cleanup(client.Close)
		ns = append(ns, client)
	}
	return ns
}

// send gives a transaction to one node, and to the next where that refused it; with all to
// each, whatever they say.
func (ns nodes) send(ctx context.Context, tx *types.Transaction, all bool) (out outcome) {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err) // it was signed here
	}
	first := rand.IntN(len(ns))
	for i := range ns {
		ctx, cancel := context.WithTimeout(ctx, sendTimeout)
		out = judge(ns[(first+i)%len(ns)].CallContext(ctx, new(common.Hash), "eth_sendRawTransaction", hexutil.Bytes(raw)))
		cancel()
		if out != refused && !all {
			return out
		}
	}
	return out
}

// judge reads what a node answered, by its words where it has some.
func judge(err error) outcome {
	if err == nil {
		return accepted
	}
	if status, ok := errors.AsType[rpc.HTTPError](err); ok {
		if status.StatusCode == http.StatusTooManyRequests {
			return refused
		}
		return unknown
	}
	for _, known := range said {
		if strings.Contains(strings.ToLower(err.Error()), known.words) {
			return known.out
		}
	}
	return unknown
}
