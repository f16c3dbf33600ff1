//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"noncegate/wire"
)

// throng is plain clients that keep requests under way, do not repeat what was
// refused, and go only when their connection ends.
type throng struct {
	stop atomic.Bool
	all  sync.WaitGroup

	mu   sync.Mutex // guards what follows
	said map[string]int
	told []told
}

// told is a refusal.
type told struct {
	node, what string
	at         time.Time
}

// throng lets n connections to each node keep window requests under way, each for
// one of the signers.
func (f *fleet) throng(n, window int, signers []string) *throng {
	f.Helper()
	th := &throng{said: make(map[string]int)}
	for name, p := range f.nodes {
		for range n {
			c := p.connect()
			th.all.Go(func() { th.one(name, c, window, signers) })
		}
	}
	return th
}

func (th *throng) one(node string, c *peer, window int, signers []string) {
	said := make(map[string]int)
	defer func() {
		th.mu.Lock()
		defer th.mu.Unlock()
		for what, n := range said {
			th.said[what] += n
		}
	}()
	for open, id := 0, int64(0); ; open-- {
		for ; open < window && !th.stop.Load(); open++ {
			id++
			if c.trySend(id, wire.MethodAllocate, allocation(signers[rand.IntN(len(signers))], "")) != nil {
				break // what was answered is still to be read
			}
		}
		if open == 0 {
			return
		}
		r, err := c.read()
		if err != nil {
			return
		}
		said[r.reason()]++
		if r.Error != nil {
			th.mu.Lock()
			th.told = append(th.told, told{node, fmt.Sprint(r.reason(), ": ", r.Error.Message), time.Now()})
			th.mu.Unlock()
		}
	}
}

// TestLongWhileANodeDrainsNobodyIsRefusedWithinItsGrace: a plain client of the node that
// goes away is served until its connection is closed or the grace is over, and those
// of other nodes notice nothing at all.
func TestLongWhileANodeDrainsNobodyIsRefusedWithinItsGrace(t *testing.T) {
	t.Parallel()
	const grace = time.Second // a twentieth of the drain timeout
	f := serveEach(t, "a b c", "--lease-ttl=10s", "--drain-timeout=20s")
	signers := named("account", 1000)
	th := f.throng(10, 4, signers)
	await(t, "the signers to be spread", func() bool {
		for _, p := range f.nodes {
			if p.value("noncegate_signers_remembered") < 200 {
				return false
			}
		}
		return true
	})
	asked := time.Now()
	f.nodes["a"].signal(syscall.SIGTERM)
	if code := f.nodes["a"].exit(); code != exitOK {
		t.Errorf("a ended with %d", code)
	}
	th.stop.Store(true)
	th.all.Wait()
	t.Logf("%v", th.said)
	late := 0
	for _, r := range th.told {
		after := r.at.Sub(asked)
		if r.node == "a" && strings.HasPrefix(r.what, "draining") && after >= grace {
			late++
			continue
		}
		t.Errorf("%v after the signal a client of %s was told %s", after, r.node, r.what)
	}
	t.Logf("%d told draining after the grace", late)
	consistent(t, f.db)
}
