package cluster

import (
	"sync"
	"time"

	"noncegate/nonce"
)

const (
	// BrokenPathTTL is how long a broken path is remembered. The sender begins a new one when it has
	// all answers, so it is enough if it gives up every request sooner than this
	// (--forward-timeout): then none can still be on its way.
	BrokenPathTTL = 30 * time.Second
	// maxBroken bounds the broken paths remembered for one link. Each cost the sender a request
	// that moved, so more come in half a minute only if signers move by the ten thousand; then
	// the oldest are forgotten sooner.
	maxBroken = 1 << 16
)

// paths are those of one link on which requests are under way, or may still come although one was
// sent back.
type paths struct {
	mu       sync.Mutex // guards what follows
	byNumber map[uint64]*way
	broken   []*way // with nothing under way, oldest first
}

// way is the nonce.Path of what came under one number.
type way struct {
	nonce.Path
	number  uint64
	n       int       // requests under way
	emptyAt time.Time // when the last one ended; broken ones only
}

func newPaths() paths { return paths{byNumber: make(map[uint64]*way)} }

// enter counts a request as under way.
func (ps *paths) enter(number uint64) *way {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byNumber[number]
	if p == nil {
		p = &way{number: number}
		ps.byNumber[number] = p
	}
	p.n++
	return p
}

// leave counts it as done. It comes before the answer can leave: a path on which nothing was sent
// back may be forgotten and begun again, a broken one may not, because the sender may have sent more
// before it knew.
func (ps *paths) leave(p *way) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p.n--
	switch {
	case p.n > 0:
	case p.Broken():
		p.emptyAt = time.Now()
		ps.broken = append(ps.broken, p)
	default:
		delete(ps.byNumber, p.number)
	}
}

// forget drops the broken paths that are old, and the oldest of too many. A path that was entered
// again stands in the list once more, later.
func (ps *paths) forget(now time.Time) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for len(ps.broken) > 0 {
		p := ps.broken[0]
		old, many := now.Sub(p.emptyAt) >= BrokenPathTTL, len(ps.broken) > maxBroken
		if !old && !many {
			return
		}
		ps.broken = ps.broken[1:]
		if p.n == 0 && ps.byNumber[p.number] == p { // else it is in use, or was forgotten and begun again
			delete(ps.byNumber, p.number)
		}
	}
}
