//go:build unix

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// watcher keeps what one subscriber is told.
type watcher struct {
	testing.TB
	sub  *client.Subscription
	done chan struct{}

	mu   sync.Mutex // guards told
	told []client.Event
}

// watch subscribes at a node to the signers given, or to all.
func watch(f *e2e.Fleet, node string, signers ...string) *watcher {
	f.Helper()
	sub, err := dialAt(f, f.Nodes[node].URL).Subscribe(f.Context(), signers...)
	expect.Must(f, err)
	w := &watcher{TB: f.TB, sub: sub, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for e := range sub.Events() {
			w.mu.Lock()
			w.told = append(w.told, e)
			w.mu.Unlock()
		}
	}()
	f.Cleanup(func() {
		sub.Close()
		<-w.done
	})
	return w
}

func (w *watcher) events() []client.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.told)
}

// lines is what was told of one signer, a line each event.
func lines(events []client.Event, signer string) string {
	var b strings.Builder
	for _, e := range events {
		if e.Signer == signer {
			fmt.Fprintf(&b, "%s %d#%d version %d missed %d gap %t\n", e.Type, e.Nonce, e.Attempt, e.Version, e.Missed, e.Gap)
		}
	}
	return b.String()
}

// Half of the signers are asked for at the nodes that own, whichever, and half at the basic one. What two nodes commit
// for one signer comes over two ways, in an order that only its versions tell.
func TestEventsReachSubscribersOnEveryNodeOnceAndInOrder(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c=basic", "--lease-ttl=1m")
	signers := e2e.Signers("account", 6)
	watchers := map[string]*watcher{}
	for _, name := range f.Names {
		watchers[name] = watch(f, name)
	}
	few := watch(f, "b", signers[1], signers[4])

	const rounds = 10
	conns := f.ConnectEach()
	want := make(map[string]string) // by signer: what happens, in order
	for i := range rounds {
		for j, s := range signers {
			asked := [][]string{{"a", "b"}, {"c", "c"}}[j%2]
			c := conns[asked[i%2]]
			got := c.Allocate(s, "")
			c.Want("ok", wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d}`, s, got.Nonce, got.Attempt))
			c = conns[asked[(i+1)%2]]
			again := c.Allocate(s, "")
			c.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"txHash":%q}`, s, again.Nonce, again.Attempt, e2e.Hash))
			version := 4 * i
			for k, what := range []string{"allocated %d#1", "released %d#1", "allocated %d#2", "used %d#2"} {
				want[s] += fmt.Sprintf(what+" version %d missed 0 gap false\n", i, version+k+1)
			}
		}
	}
	for name, w := range watchers {
		f.Nodes[name].Await("all events", func() bool { return len(w.events()) >= 4*rounds*len(signers) })
		for _, s := range signers {
			if got := lines(w.events(), s); got != want[s] {
				t.Errorf("a subscriber at %s was told of %s\n%s\nwant\n%s", name, s, got, want[s])
			}
		}
	}
	wait.Until(t, "the events of two signers", func() bool { return len(few.events()) >= 8*rounds })
	for _, s := range signers {
		if asked := s == signers[1] || s == signers[4]; asked && lines(few.events(), s) != want[s] || !asked && lines(few.events(), s) != "" {
			t.Errorf("a subscriber to two signers was told of %s\n%s", s, lines(few.events(), s))
		}
	}
}
