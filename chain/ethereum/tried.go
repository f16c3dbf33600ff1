package ethereum

import (
	"sync"

	"noncegate/chain"
)

// maxTried is how many transactions are remembered that may be in a pool because they
// were sent: some 8 MB. Beyond that the oldest are forgotten.
const maxTried = 1 << 16

// tried remembers transactions that a node may have because an earlier try was accepted,
// or nobody knows what became of it. It forgets with the process; what must be known for
// longer is in the store of whoever sends.
type tried struct {
	mu     sync.Mutex
	open   map[chain.Hash]int // tries under way
	marked map[chain.Hash]bool
	order  []chain.Hash // of marked, a ring
	next   int          // where the oldest is, once the ring is full
}

func newTried(size int) *tried {
	return &tried{open: map[chain.Hash]int{}, marked: map[chain.Hash]bool{}, order: make([]chain.Hash, 0, size)}
}

// begin notes a try.
func (t *tried) begin(h chain.Hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[h]++
}

// end notes that a try is over.
func (t *tried) end(h chain.Hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[h]--
	if t.open[h] == 0 {
		delete(t.open, h)
	}
}

// mark notes that a node may have the transaction.
func (t *tried) mark(h chain.Hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.marked[h] {
		return
	}
	t.marked[h] = true
	if len(t.order) < cap(t.order) {
		t.order = append(t.order, h)
		return
	}
	delete(t.marked, t.order[t.next])
	t.order[t.next] = h
	t.next = (t.next + 1) % len(t.order)
}

// elsewhere reports whether another try than the one that asks may have left the
// transaction with a node.
func (t *tried) elsewhere(h chain.Hash) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.marked[h] || t.open[h] > 1
}
