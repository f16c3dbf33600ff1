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
func (s *Sim) Commit() common.Hash {
	s.t.Helper()
	return s.extend(nil, false)
}

// CommitEmpty mines one block without transactions and makes it the head; the pool keeps
// what it has.
func (s *Sim) CommitEmpty() common.Hash {
	s.t.Helper()
	return s.extend(nil, true)
}

// CommitN mines n empty blocks, one after the other, each of which is the head for a
// while.
func (s *Sim) CommitN(n int) common.Hash {
	s.t.Helper()
	_, head := s.Head()
	for range n {
		head = s.CommitEmpty()
	}
	return head
}

// CommitThese mines one block of these transactions, which must be valid in this order
// and need not be in the pool, and makes it the head: what came to the block's builder on
// a way that this node does not see.
func (s *Sim) CommitThese(txs ...*types.Transaction) common.Hash {
	s.t.Helper()
	return s.extend(txs, len(txs) == 0)
}

// AdjustTime mines an empty block that is by d (whole seconds, 1 at least) later than its
// parent, and has the blocks after it follow that clock.
func (s *Sim) AdjustTime(d time.Duration) common.Hash {
	s.t.Helper()
	if d < time.Second {
		s.t.Fatalf("AdjustTime(%v): the clock of a chain moves by a second at least", d)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	head := s.eth.BlockChain().CurrentBlock()
	at := head.Time + uint64(d/time.Second)
	s.ahead = time.Until(time.Unix(int64(at), 0))
	block := s.build(head, nil, true, at)
	s.setHead(block)
	return block.Hash()
}

func (s *Sim) extend(txs []*types.Transaction, empty bool) common.Hash {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Settle()
	block := s.mine(s.eth.BlockChain().CurrentBlock(), txs, empty)
	s.setHead(block)
	return block.Hash()
}

// Fork makes a block that is known the head, whether it is an ancestor of the head, which
// undoes the blocks after it, or the tip of another branch. The transactions of the blocks
// that are left come back into the pool, unless the new head is more than 64 blocks lower
// or higher: then geth gives them up.
func (s *Sim) Fork(to common.Hash) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	block, err := s.header(to)
	s.must("fork", err)
	s.setHead(block)
}

// maxReorg is for how many blocks geth keeps the states that a branch may begin at.
const maxReorg = 128

// Reorg replaces the last depth blocks (128 at most) by depth+1 empty ones, in one step: no
// client sees a head in between, and only the last of them is announced. With keepTxs the
// transactions of the replaced blocks are back in the pool, as geth has it; without it they
// are nowhere, for which the pool is emptied and filled again: for a moment clients may see
// the transactions in it, or nothing, and blob transactions that waited in it are lost too.
// It returns the new head.
func (s *Sim) Reorg(depth int, keepTxs bool) common.Hash {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	base, replaced := s.below(depth)
	for range depth + 1 {
		base = s.mine(base, nil, true).Header()
	}
	tip, err := s.header(base.Hash())
	s.must("reorg", err)
	s.setHead(tip)
	if !keepTxs {
		s.forget(replaced)
	}
	return tip.Hash()
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
func (s *Sim) mine(parent *types.Header, txs []*types.Transaction, empty bool) *types.Block {
	s.t.Helper()
	return s.build(parent, txs, empty, max(parent.Time+1, uint64(time.Now().Add(s.ahead).Unix())))
}

func (s *Sim) build(parent *types.Header, txs []*types.Transaction, empty bool, at uint64) *types.Block {
	s.t.Helper()
	s.built++
	args := &miner.BuildPayloadArgs{
		Parent: parent.Hash(), Timestamp: at, Withdrawals: types.Withdrawals{}, BeaconRoot: &common.Hash{},
		Random: common.BytesToHash(binary.BigEndian.AppendUint64(nil, s.built)), // no two blocks are alike
	}
	block, _, err := s.eth.Miner().BuildTestingPayload(args, txs, empty, nil)
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

// Finalize has the canonical block of that number be what the node calls finalized and
// safe. It may go back, which no real chain does.
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

// Unfinalize has the node know of no finalized and no safe block, as a node does whose
// consensus client has just started: it answers that there is no such block.
func (s *Sim) Unfinalize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eth.BlockChain().SetFinalized(nil)
	s.eth.BlockChain().SetSafe(nil)
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

// forget empties the pool and offers it again what it may keep: geth's pool does not let
// a single transaction be taken out.
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
