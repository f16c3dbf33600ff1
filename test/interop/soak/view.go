package main

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"noncegate/test/interop/chaintest"
)

// finalDepth is how far a block must be below the head until nothing replaces it here.
const finalDepth = 8

// block is a block as a node gives it.
type block struct {
	Number       hexutil.Uint64
	Hash         common.Hash
	ParentHash   common.Hash
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
	v := &view{ground: on, all: accounts, accounts: make(map[common.Address]int), paid: make(map[uint64]int), first: make(map[uint64]time.Time)}
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
	for n := number; ; n-- {
		b, err := v.fetch(n)
		if err != nil {
			return err
		}
		if int(n) < len(v.blocks) && v.blocks[n].Hash == b.Hash {
			break
		}
		fresh = append(fresh, b)
		if n == 0 {
			break
		}
	}
	keep := int(number) + 1 - len(fresh)
	for len(v.blocks) > keep {
		v.add(v.blocks[len(v.blocks)-1], -1)
		v.blocks = v.blocks[:len(v.blocks)-1]
	}
	for i := len(fresh) - 1; i >= 0; i-- {
		v.add(fresh[i], 1)
		v.blocks = append(v.blocks, fresh[i])
	}
	return nil
}

func (v *view) fetch(number uint64) (*block, error) {
	var b *block
	if err := v.Call(&b, "eth_getBlockByNumber", hexutil.EncodeUint64(number), true); err != nil {
		return nil, fmt.Errorf("read block %d: %w", number, err)
	}
	if b == nil {
		return nil, fmt.Errorf("block %d is not there", number)
	}
	return b, nil
}

// add counts the transactions of a block by times more, under mu.
func (v *view) add(b *block, times int) {
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

// executed is how many payments are on the chain at least once.
func (v *view) executed() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, times := range v.paid {
		if times > 0 {
			n++
		}
	}
	return n
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
