//go:build unix

package main

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
	"noncegate/wire"
)

// dial makes a Go client whose main connection goes to first, and that knows all
// nodes when others is set.
func (f *fleet) dial(first string, others bool) *client.Client {
	f.Helper()
	cfg := client.Config{BackoffMin: 20 * time.Millisecond, BackoffMax: time.Second}
	for _, name := range f.names {
		if others && name != first {
			cfg.URLs = append(cfg.URLs, f.nodes[name].url)
		}
	}
	c, err := client.Dial(f.Context(), f.nodes[first].url, cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// listenArg makes another process listen where p does.
func (p *process) listenArg() string {
	u, err := url.Parse(p.url)
	if err != nil {
		p.Fatal(err)
	}
	return "--listen=" + u.Host
}

func TestLongARollingRestartUnderLoadFailsNoCall(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c", "--drain-timeout=10s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	signers := named("account", 9)
	var (
		used atomic.Int64
		load sync.WaitGroup
		seen sync.Map // signer and nonce

		mu      sync.Mutex // guards slowest
		slowest time.Duration
	)
	for i := range 6 {
		c := f.dial(f.names[i%len(f.names)], true)
		load.Go(func() {
			for j := i; ctx.Err() == nil; j++ {
				s, began := signers[j%len(signers)], time.Now()
				err := c.WithNonce(t.Context(), s, client.NonceOptions{}, func(_ context.Context, a *client.HeldNonce) (string, error) {
					if _, twice := seen.LoadOrStore(fmt.Sprintf("%s %d", s, a.Nonce), true); twice {
						t.Errorf("nonce %d of %s came twice", a.Nonce, s)
					}
					return hash, nil
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
		await(t, "calls", func() bool { return used.Load() >= want || t.Failed() })
	}
	more(200)
	for _, name := range f.names {
		old := f.nodes[name]
		old.signal(syscall.SIGTERM)
		told := time.Now()
		if code := old.exit(); code != exitOK {
			t.Errorf("%s ended with %d", name, code)
		}
		t.Logf("%s drained in %v, %d calls so far", name, time.Since(told), used.Load())
		f.launch(name, old.listenArg())
		f.linked()
		more(100)
	}
	cancel()
	load.Wait()
	t.Logf("%d calls of allocate, work and mark, none failed; the slowest took %v", used.Load(), slowest)
	got := query(t, f.db, `SELECT count(*), count(*) FILTER (WHERE status = 'CONSUMED' AND attempt = 1) FROM nonces`)
	if want := fmt.Sprintf("(%d,%d)", used.Load(), used.Load()); got != want {
		t.Errorf("allocations, and used at the first attempt: %s, want %s", got, want)
	}
	consistent(t, f.db)
}

// TestWithoutForwardingTheClientGoesToTheOwnerAndRemembersIt counts requests where
// they arrive.
func TestWithoutForwardingTheClientGoesToTheOwnerAndRemembersIt(t *testing.T) {
	t.Parallel()
	f := serveEachUnlinked(t, "a b", "--forward=off", "--lease-ttl=10m")
	toA, toB := f.nodes["a"].connect(), f.nodes["b"].connect()
	mine, others := f.signersOfEach(toA, 3)
	touch(toA, mine)
	touch(toB, others)
	for _, s := range others {
		r := toA.want("not_owner", wire.MethodAllocate, allocation(s, ""))
		if d := r.Error.Data; d.OwnerNode != "b" || d.OwnerURL != f.nodes["b"].url {
			t.Errorf("%s: the owner is said to be %+v", s, d)
		}
	}
	allocated := func(name string) float64 {
		return f.nodes[name].value(`noncegate_requests_total{method="nonce_allocate"}`)
	}
	atA, atB := allocated("a"), allocated("b")
	const each = 10
	c := f.dial("a", false) // it knows of b only what it is told
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
	if f.sum(`noncegate_forwarded_total{result="answered"}`) != 0 {
		t.Error("something was forwarded")
	}
	if n := f.nodes["b"].value(`noncegate_connections_opened_total`); n != 2 { // one is toB
		t.Errorf("b took %v connections", n)
	}

	// The owner goes: its signers are a's, and the client finds out.
	f.nodes["b"].signal(syscall.SIGTERM)
	for _, s := range others {
		if a, err := c.Allocate(t.Context(), client.AllocateRequest{Signer: s}); err != nil || a.Nonce != each+1 {
			t.Errorf("%s after b left: nonce %d, %v", s, a.Nonce, err)
		}
	}
	_ = toB.ws.Close()
	f.nodes["b"].exit()
	consistent(t, f.db)
}

// signersOfEach are n signers of node a and n of b.
func (f *fleet) signersOfEach(c *peer, n int) (ofA, ofB []string) {
	f.Helper()
	f.settled()
	owner := make(map[string]string)
	for _, s := range named("account", 10*n) {
		owner[s] = statusOf(c, s).Owner
	}
	return of(owner, "a")[:n], of(owner, "b")[:n]
}

// serveEachUnlinked is serveEach for nodes that need no links.
func serveEachUnlinked(t testing.TB, names string, args ...string) *fleet {
	t.Helper()
	f := &fleet{TB: t, db: database(t), args: args, nodes: make(map[string]*process)}
	for name := range strings.FieldsSeq(names) {
		f.launch(name)
	}
	return f
}
