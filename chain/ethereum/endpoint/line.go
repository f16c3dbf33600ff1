package endpoint

import (
	"context"
	"sync"
	"time"

	"noncegate/chain"

	lru "github.com/hashicorp/golang-lru/v2"
)

// lines are the transactions that are on their way here, by their signers.
type lines struct {
	mu       sync.Mutex // guards what follows, and all lines; no I/O under it
	bySigner map[string]*line
	behind   *lru.Cache[string, behind] // by signer
}

func newLines() *lines {
	told, _ := lru.New[string, behind](maxBehind) // fails for a size below 1 alone
	return &lines{bySigner: map[string]*line{}, behind: told}
}

// behind is how far ahead of the window transactions of a signer came lately.
type behind struct {
	highest int64
	until   time.Time // when it is forgotten
}

const (
	// rememberBehind is how long it is remembered that transactions were told the window: their
	// sender repeats them by then.
	rememberBehind = time.Minute
	maxBehind      = 10_000 // signers of which that is remembered, the oldest forgotten first
)

// line is those of one signer. It is there as long as one of them is.
type line struct {
	all    *lines
	signer string
	users  int
	next   chan struct{}       // closed at the next change
	nonces map[int64]int       // of transactions on their way, and how many have each
	hashes map[chain.Hash]bool // of those transactions
}

// enter counts a transaction of a signer.
func (ls *lines) enter(signer string) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.bySigner[signer]
	if l == nil {
		l = &line{all: ls, signer: signer, next: make(chan struct{}), nonces: map[int64]int{}, hashes: map[chain.Hash]bool{}}
		ls.bySigner[signer] = l
	}
	l.users++
	return l
}

// leave counts it out.
func (ls *lines) leave(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.users--
	if l.users == 0 {
		delete(ls.bySigner, l.signer)
	}
}

// begin notes a transaction as on its way, when the same one is not any more. wait is
// called before it waits for that. false: ctx ended before.
func (l *line) begin(ctx context.Context, tx chain.Tx, wait func()) bool {
	for {
		l.all.mu.Lock()
		busy, next := l.hashes[tx.Hash], l.next
		if !busy {
			l.hashes[tx.Hash] = true
			l.nonces[tx.Nonce]++
		}
		l.all.mu.Unlock()
		if !busy {
			return true
		}
		wait()
		select {
		case <-next:
		case <-ctx.Done():
			return false
		}
	}
}

// end undoes begin.
func (l *line) end(tx chain.Tx) {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	delete(l.hashes, tx.Hash)
	l.nonces[tx.Nonce]--
	if l.nonces[tx.Nonce] == 0 {
		delete(l.nonces, tx.Nonce)
	}
	l.tellLocked()
}

// lower reports whether a transaction with a lower nonce is on its way.
func (l *line) lower(tx chain.Tx) bool {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	for n := range l.nonces {
		if n < tx.Nonce {
			return true
		}
	}
	return false
}

// toldWindow remembers that a nonce was told that it is beyond the window.
func (l *line) toldWindow(n int64) {
	ls, now := l.all, time.Now()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	b, _ := ls.behind.Get(l.signer)
	if now.After(b.until) {
		b.highest = n
	}
	ls.behind.Add(l.signer, behind{highest: max(b.highest, n), until: now.Add(rememberBehind)})
}

// awaitsWindow reports whether a nonce, or one after it, was told the window lately, so that its
// sender is to send it again.
func (l *line) awaitsWindow(n int64) bool {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	b, _ := l.all.behind.Get(l.signer)
	return n <= b.highest && time.Now().Before(b.until)
}

// changed is closed when something changes from now on.
func (l *line) changed() <-chan struct{} {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	return l.next
}

// tell says that something has changed.
func (l *line) tell() {
	l.all.mu.Lock()
	defer l.all.mu.Unlock()
	l.tellLocked()
}

func (l *line) tellLocked() {
	close(l.next)
	l.next = make(chan struct{})
}
