package ethereum

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"noncegate/chain"
)

// maxTried is how many transactions are remembered that may be in a pool because they
// were sent: some 12 MB. Beyond that the oldest are forgotten.
const maxTried = 1 << 16

// tried remembers transactions that a node may have because an earlier try was accepted,
// or what became of it is not known. It forgets with the process; what must be known for
// longer is in the store of the sender.
type tried struct {
	marked *lru.Cache[chain.Hash, struct{}]

	mu   sync.Mutex
	open map[chain.Hash]int // tries under way
}

func newTried(size int) *tried {
	marked, _ := lru.New[chain.Hash, struct{}](size) // fails for a size below 1 alone
	return &tried{open: map[chain.Hash]int{}, marked: marked}
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
func (t *tried) mark(h chain.Hash) { t.marked.Add(h, struct{}{}) }

// before reports whether an earlier try may have left the transaction with a node.
func (t *tried) before(h chain.Hash) bool { return t.marked.Contains(h) }

// underWay reports whether there is another try than the one that asks.
func (t *tried) underWay(h chain.Hash) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[h] > 1
}
