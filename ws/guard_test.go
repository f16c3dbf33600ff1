package ws

import (
	"context"
	"sync"
	"testing"

	"noncegate/internal/guard"
	"noncegate/nonce"
	"noncegate/test/lab/wait"
)

// locksmith is Locks in memory, of which a test knows each step, and which it can
// keep waiting, and take away.
type locksmith struct {
	*guard.Memory
	mu    sync.Mutex // guards what follows
	taken []string   // the values of locks that were taken
	steps int
	gate  chan struct{} // nil: open
	away  error
}

func newLocksmith() *locksmith { return &locksmith{Memory: guard.NewMemory(1000)} }

func (l *locksmith) Run(ctx context.Context, steps []guard.Step) {
	l.mu.Lock()
	gate := l.gate
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps += len(steps)
	if l.away != nil {
		for i := range steps {
			steps[i].Err = l.away
		}
		return
	}
	l.Memory.Run(ctx, steps)
	for _, s := range steps {
		if s.OK && !s.Release {
			l.taken = append(l.taken, s.Value)
		}
	}
}

// close keeps all steps waiting until open is called.
func (l *locksmith) close() (open func()) {
	gate := make(chan struct{})
	l.set(func() { l.gate = gate })
	return sync.OnceFunc(func() { l.set(func() { l.gate = nil }); close(gate) })
}

func (l *locksmith) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func withLocks(l guard.Locks) func(*setup) { return func(s *setup) { s.locks = l } }

// workModes are the ways in which requests are run.
var workModes = map[string]func(*setup){
	"worker-queue": func(*setup) {},
	"caller-runs": func(s *setup) {
		s.Service.Reject, s.Service.QueueCapacity = nonce.CallerRuns, 1
	},
	"basic": func(s *setup) { s.Service.Mode = nonce.Basic },
}

// guarded is an allocate of one nonce with a guard.
func guarded(signer, guard string) string {
	return `[{"signer":"` + signer + `","guard":` + guard + `}]`
}

func TestAStopGivesTheLocksBack(t *testing.T) {
	locks := newLocksmith()
	t.Run("gateway", func(t *testing.T) {
		g := startGateway(t, withLocks(locks))
		c := g.dial()
		release := g.hang(c, "1", "nonce_allocate", guarded("a", `{"key":"k"}`))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		check(t, g.srv.Stop(ctx))
		release()
	})
	if n := locks.Len(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// awaitNoLines returns when nothing is in line on the only connection.
func (g *gateway) awaitNoLines() {
	g.Helper()
	ls := g.srv.conns.all()[0].lines
	wait.Until(g, "the end of all lines", func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		return len(ls.bySigner) == 0
	})
}
