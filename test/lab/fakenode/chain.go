package fakenode

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"
)

// Hash is the hash of a block or a transaction.
type Hash [32]byte

// String returns 0x and 64 digits.
func (h Hash) String() string { return "0x" + hex.EncodeToString(h[:]) }

// Tx is a transaction as a node shows it.
type Tx struct {
	Type  int
	From  string
	Nonce int64
	Hash  Hash
	// Extra members, such as authorizationList or gasPrice; also to replace others.
	Extra map[string]any
}

// Block is a block in a tree of blocks.
type Block struct {
	Number int64
	Hash   Hash
	Parent *Block // nil: the first
	Time   time.Time
	Txs    []Tx

	counts map[string]int64 // transaction counts of accounts here
}

// Chain is a tree of blocks. Each node has its own opinion on which of them are its chain.
type Chain struct {
	// BlockTime is between a block and its parent.
	BlockTime time.Duration

	mu    sync.Mutex
	made  uint64
	first *Block
	all   map[Hash]*Block
}

// NewChain returns a chain that has only its first block, number 0, made at a time.
func NewChain(start time.Time, blockTime time.Duration) *Chain {
	c := &Chain{BlockTime: blockTime, all: map[Hash]*Block{}}
	c.first = c.add(&Block{Time: start})
	return c
}

// First returns the block without a parent.
func (c *Chain) First() *Block { return c.first }

// Extend makes a new block on top of another one.
func (c *Chain) Extend(parent *Block, txs ...Tx) *Block {
	return c.add(&Block{Number: parent.Number + 1, Parent: parent, Time: parent.Time.Add(c.BlockTime), Txs: txs})
}

// ExtendBy makes n empty blocks on top of one another, and returns the last.
func (c *Chain) ExtendBy(parent *Block, n int) *Block {
	for range n {
		parent = c.Extend(parent)
	}
	return parent
}

func (c *Chain) add(b *Block) *Block {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	b.Hash = sha256.Sum256(binary.BigEndian.AppendUint64(nil, c.made))
	b.counts = map[string]int64{}
	if b.Parent != nil {
		b.counts = b.Parent.counts
	}
	if len(b.Txs) > 0 {
		b.counts = maps.Clone(b.counts)
	}
	for _, t := range b.Txs {
		b.counts[t.From] = max(b.counts[t.From], t.Nonce+1)
	}
	c.all[b.Hash] = b
	return b
}

func (c *Chain) byHash(hash string) *Block {
	raw, err := hex.DecodeString(hash[min(len(hash), 2):])
	if err != nil || len(raw) != len(Hash{}) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[Hash(raw)]
}

// at returns the block with a number below b, or b; nil: there is none.
func (b *Block) at(number int64) *Block {
	for b != nil && b.Number > number {
		b = b.Parent
	}
	if b == nil || b.Number != number {
		return nil
	}
	return b
}

// Used is how many nonces of an account are used at b.
func (b *Block) Used(account string) int64 { return b.counts[account] }

// JSON returns the block as eth_getBlockByNumber does.
func (b *Block) JSON(full bool) map[string]any {
	parent, txs := Hash{}, []any{}
	if b.Parent != nil {
		parent = b.Parent.Hash
	}
	for _, t := range b.Txs {
		if full {
			txs = append(txs, t.JSON(b))
		} else {
			txs = append(txs, t.Hash.String())
		}
	}
	return map[string]any{
		"number": Quantity(b.Number), "hash": b.Hash.String(), "parentHash": parent.String(),
		"timestamp": Quantity(b.Time.Unix()), "transactions": txs,
	}
}

// JSON returns the transaction as nodes show it, in a block or, with nil, in the pool.
func (t *Tx) JSON(in *Block) map[string]any {
	m := map[string]any{
		"type": Quantity(int64(t.Type)), "from": t.From, "nonce": Quantity(t.Nonce), "hash": t.Hash.String(),
		"blockHash": nil, "blockNumber": nil,
	}
	if in != nil {
		m["blockHash"], m["blockNumber"] = in.Hash.String(), Quantity(in.Number)
	}
	maps.Copy(m, t.Extra)
	return m
}

// Quantity spells a number as nodes do.
func Quantity(n int64) string { return "0x" + strconv.FormatInt(n, 16) }

// Account returns an address that is made of a number.
func Account(n int) string { return fmt.Sprintf("0x%040x", n) }

// TxHash returns a hash that is made of a number.
func TxHash(n int) Hash { return sha256.Sum256(fmt.Appendf(nil, "tx %d", n)) }
