package chaintest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/miner"
)

// Commit mines one block of what the pool can mine and makes it the head.
func (s *Sim) Commit() { s.extend(false) }

// CommitEmpty mines one block without transactions and makes it the head; the pool keeps what it has.
func (s *Sim) CommitEmpty() { s.extend(true) }

func (s *Sim) extend(empty bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Settle()
	s.setHead(s.mine(s.eth.BlockChain().CurrentBlock(), empty))
}

// maxReorg is for how many blocks geth keeps the states that a branch may begin at.
const maxReorg = 128

// Reorg replaces the last depth blocks (128 at most) by depth+1 empty ones, in one step: no client sees a head in between, and only the
// last of them is announced. With keepTxs the transactions of the replaced blocks are back in the pool, as geth has it; without it they
// are nowhere, for which the pool is emptied and filled again: for a moment clients may see the transactions in it, or nothing, and blob
// transactions that waited in it are lost too.
func (s *Sim) Reorg(depth int, keepTxs bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	base, replaced := s.below(depth)
	var tip *types.Block
	for range depth + 1 {
		tip = s.mine(base, true)
		base = tip.Header()
	}
	s.setHead(tip)
	if !keepTxs {
		s.forget(replaced)
	}
}

// below is the header so many blocks below the head, and the transactions above it.
func (s *Sim) below(depth int) (*types.Header, []common.Hash) {
	s.t.Helper()
	chain := s.eth.BlockChain()
	header := chain.CurrentBlock()
	if depth < 1 || depth > maxReorg || uint64(depth) > header.Number.Uint64() {
		s.t.Fatalf("a reorg of %d blocks on a chain of %v: want 1 to %d, and no more than there are", depth, header.Number, maxReorg)
	}
	var hashes []common.Hash
	for range depth {
		block := chain.GetBlockByHash(header.Hash())
		for _, tx := range block.Transactions() {
			hashes = append(hashes, tx.Hash())
		}
		header = chain.GetHeaderByHash(header.ParentHash)
	}
	return header, hashes
}

// mine builds a block on parent and stores it without making it the head.
func (s *Sim) mine(parent *types.Header, empty bool) *types.Block {
	s.t.Helper()
	s.built++
	args := &miner.BuildPayloadArgs{
		Parent: parent.Hash(), Timestamp: max(parent.Time+1, uint64(time.Now().Unix())), Withdrawals: types.Withdrawals{}, BeaconRoot: &common.Hash{},
		Random: common.BytesToHash(binary.BigEndian.AppendUint64(nil, s.built)), // no two blocks are alike
	}
	block, _, err := s.eth.Miner().BuildTestingPayload(args, nil, empty, nil)
	s.must("build a block", err)
	_, err = s.eth.BlockChain().InsertBlockWithoutSetHead(s.t.Context(), block, false)
	s.must(fmt.Sprintf("take in block %v", block.Number()), err)
	return block
}

// setHead is what a forkchoice update of a consensus client does.
func (s *Sim) setHead(block *types.Block) {
	s.t.Helper()
	chain := s.eth.BlockChain()
	if chain.CurrentBlock().Hash() != block.Hash() {
		_, err := chain.SetCanonical(block)
		s.must(fmt.Sprintf("make block %v the head", block.Number()), err)
	}
	if s.lag > 0 && block.NumberU64() >= s.lag {
		s.finalize(block.NumberU64() - s.lag)
	}
	s.Settle()
}

// Finalize has the canonical block of that number be what the node calls finalized and safe. It may go back, which no real chain does.
func (s *Sim) Finalize(number uint64) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finalize(number)
}

func (s *Sim) finalize(number uint64) {
	s.t.Helper()
	header := s.eth.BlockChain().GetHeaderByNumber(number)
	if header == nil {
		s.t.Fatalf("finalize block %d, which is not there", number)
	}
	s.eth.BlockChain().SetFinalized(header)
	s.eth.BlockChain().SetSafe(header)
}

// Rollback empties the pool.
func (s *Sim) Rollback() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eth.TxPool().Clear()
}

// Drop takes these transactions out of the pool, as a pool does that is full. For a moment
// clients may see an empty pool, and blob transactions that waited in it are lost too.
func (s *Sim) Drop(hashes ...common.Hash) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(hashes)
}

// forget empties the pool and offers it again what it may keep: geth's pool does not let a single transaction be taken out.
func (s *Sim) forget(hashes []common.Hash) {
	s.t.Helper()
	pool := s.eth.TxPool()
	s.Settle()
	pending, queued := pool.Content()
	pool.Clear()
	for _, part := range []map[common.Address][]*types.Transaction{pending, queued} {
		for _, txs := range part {
			kept := slices.DeleteFunc(txs, func(tx *types.Transaction) bool { return slices.Contains(hashes, tx.Hash()) })
			for i, err := range pool.Add(kept, true) {
				s.must(fmt.Sprintf("take transaction %v back", kept[i].Hash()), err)
			}
		}
	}
	s.Settle()
}
