//go:build unix

package cluster

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/wire"
)

// dial makes a Go client whose main connection goes to first, and that knows all
// nodes when others is set.
func dial(f *e2e.Fleet, first string, others bool) *client.Client {
	f.Helper()
	cfg := client.Config{BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second}
	for _, name := range f.Names {
		if others && name != first {
			cfg.URLs = append(cfg.URLs, f.Nodes[name].URL)
		}
	}
	c, err := client.Dial(f.Context(), f.Nodes[first].URL, cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// listenArg makes another process listen where p does.
func listenArg(p *e2e.Process) string {
	u, err := url.Parse(p.URL)
	if err != nil {
		p.Fatal(err)
	}
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

// TestWithoutForwardingTheClientGoesToTheOwnerAndRemembersIt counts requests where
// they arrive.
func TestWithoutForwardingTheClientGoesToTheOwnerAndRemembersIt(t *testing.T) {
	t.Parallel()
	f := serveEachUnlinked(t, "a b", "--forward=off", "--lease-ttl=10m")
	toA, toB := f.Nodes["a"].Connect(), f.Nodes["b"].Connect()
	mine, others := signersOfEach(f, toA, 3)
	e2e.Touch(toA, mine)
	e2e.Touch(toB, others)
	for _, s := range others {
		r := toA.Want("not_owner", wire.MethodAllocate, e2e.Allocation(s, ""))
		if d := r.Error.Data; d.OwnerNode != "b" || d.OwnerURL != f.Nodes["b"].URL {
			t.Errorf("%s: the owner is said to be %+v", s, d)
		}
	}
	allocated := func(name string) float64 {
		return f.Nodes[name].Value(`noncegate_requests_total{method="nonce_allocate"}`)
	}
	atA, atB := allocated("a"), allocated("b")
	const each = 10
	c := dial(f, "a", false) // it knows of b only what it is told
	for i := range each {
		for _, s := range append(mine, others...) {
			if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || a.Nonce != int64(i+1) {
				t.Fatalf("%s: nonce %d, %v", s, a.Nonce, err)
			}
		}
	}
	// a was asked for its own each time, and for each of the others once.
	gotA, gotB := allocated("a")-atA, allocated("b")-atB
	if wantA, wantB := float64(each*len(mine)+len(others)), float64(each*len(others)); gotA != wantA || gotB != wantB {
		t.Errorf("a was asked %v times and b %v, want %v and %v", gotA, gotB, wantA, wantB)
	}
	if f.Sum(`noncegate_forwarded_total{result="answered"}`) != 0 {
		t.Error("something was forwarded")
	}
	if n := f.Nodes["b"].Value(`noncegate_connections_opened_total`); n != 2 { // one is toB
		t.Errorf("b took %v connections", n)
	}

	// The owner goes: its signers are a's, and the client finds out.
	f.Nodes["b"].Signal(syscall.SIGTERM)
	for _, s := range others {
		if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || a.Nonce != each+1 {
			t.Errorf("%s after b left: nonce %d, %v", s, a.Nonce, err)
		}
	}
	_ = toB.WS.Close()
	f.Nodes["b"].Exit()
	e2e.Consistent(t, f.DB)
}

// signersOfEach are n signers of node a and n of b.
func signersOfEach(f *e2e.Fleet, c *e2e.Peer, n int) (ofA, ofB []string) {
	f.Helper()
	f.Settled()
	owner := make(map[string]string)
	for _, s := range e2e.Signers("account", 10*n) {
		owner[s] = e2e.StatusOf(c, s).Owner
	}
	return e2e.OwnedBy(owner, "a")[:n], e2e.OwnedBy(owner, "b")[:n]
}

// serveEachUnlinked is serveEach for nodes that need no links.
func serveEachUnlinked(t testing.TB, names string, args ...string) *e2e.Fleet {
	t.Helper()
	f := &e2e.Fleet{TB: t, DB: e2e.Database(t), Args: args, Nodes: make(map[string]*e2e.Process)}
	for name := range strings.FieldsSeq(names) {
		f.Launch(name)
	}
	return f
}
