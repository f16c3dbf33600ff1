//go:build unix

package cluster

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
)

// dial makes a Go client whose main connection goes to first, and that knows all nodes when others is set.
func dial(f *e2e.Fleet, first string, others bool) *client.Client {
	f.Helper()
	cfg := client.Config{BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second}
	for _, name := range f.Names {
		if others && name != first {
			cfg.URLs = append(cfg.URLs, f.Nodes[name].URL)
		}
	}
	c, err := client.Dial(f.Context(), f.Nodes[first].URL, cfg)
	expect.Must(f, err)
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// listenArg makes another process listen where p does.
func listenArg(p *e2e.Process) string {
	u, err := url.Parse(p.URL)
	expect.Must(p, err)
	return "--listen=" + u.Host
}

func TestLongARollingRestartUnderLoadFailsNoCall(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c", "--drain-timeout=10s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	signers := e2e.Signers("account", 9)
	var (
		used atomic.Int64
		load sync.WaitGroup
		seen sync.Map // signer and nonce

		mu      sync.Mutex // guards slowest
		slowest time.Duration
	)
	for i := range 6 {
		c := dial(f, f.Names[i%len(f.Names)], true)
		load.Go(func() {
			for j := i; ctx.Err() == nil; j++ {
				s, began := signers[j%len(signers)], time.Now()
				err := c.WithNonce(t.Context(), s, client.NonceOptions{}, func(_ context.Context, a *client.HeldNonce) (string, error) {
					if _, twice := seen.LoadOrStore(fmt.Sprintf("%s %d", s, a.Nonce), true); twice {
						t.Errorf("nonce %d of %s came twice", a.Nonce, s)
					}
					return e2e.Hash, nil
				})
				if err != nil {
					t.Errorf("a call failed during the restart: %v", err)
					return
				}
				used.Add(1)
				mu.Lock()
				slowest = max(slowest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	more := func(n int64) {
		t.Helper()
		want := used.Load() + n
		e2e.Await(t, "calls", func() bool { return used.Load() >= want || t.Failed() })
	}
	more(200)
	for _, name := range f.Names {
		old := f.Nodes[name]
		old.Signal(syscall.SIGTERM)
		told := time.Now()
		old.Ends()
		t.Logf("%s drained in %v, %d calls so far", name, time.Since(told), used.Load())
		f.Launch(name, listenArg(old))
		f.Linked()
		more(100)
	}
	cancel()
	load.Wait()
	t.Logf("%d calls of allocate, work and mark, none failed; the slowest took %v", used.Load(), slowest)
	got := e2e.Query(t, f.DB, `SELECT count(*), count(*) FILTER (WHERE status = 'CONSUMED' AND attempt = 1) FROM nonces`)
	if want := fmt.Sprintf("(%d,%d)", used.Load(), used.Load()); got != want {
		t.Errorf("allocations, and used at the first attempt: %s, want %s", got, want)
	}
	e2e.Consistent(t, f.DB)
}
