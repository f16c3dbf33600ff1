package cluster

import (
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// ring is a router that knows n nodes beside itself and has lost none.
func ring(t *testing.T, n int) *Router {
	t.Helper()
	r, err := New("self", Config{Forward: true}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	expect.Must(t, err)
	t.Cleanup(func() { r.Stop(t.Context()) }) // never served: nothing is dialled
	r.Nodes(cluster(n))
	return r
}

func cluster(n int) []lease.Node {
	list := []lease.Node{node("self", 1)}
	for i := range n {
		list = append(list, node(fmt.Sprintf("node-%d", i), 1))
	}
	return list
}

func TestOnlyLiveNodesThatTakeLeasesAreReached(t *testing.T) {
	for name, change := range map[string]func(*lease.Node){
		"silent":  func(n *lease.Node) { n.Live = false },
		"left":    func(n *lease.Node) { n.Live, n.Left = false, true },
		"basic":   func(n *lease.Node) { n.Mode = "basic" },
		"unknown": func(n *lease.Node) { n.Mode = "" },
	} {
		r := ring(t, 1)
		list := cluster(1)
		change(&list[1])
		r.Nodes(list)
		if r.Reaches("node-0") {
			t.Errorf("%s: it is reached", name)
		}
	}
}

func TestWithoutForwardingNobodyIsReachedOrDialled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{}, "a")
		w.Router.cfg.Forward = false
		w.Nodes(w.nodes())
		time.Sleep(time.Minute)
		if err := w.Forward("a", "ws://a", allocation("s")); err != nonce.ErrPeerAway || w.dials() != 0 {
			t.Errorf("forward: %v after %d dials", err, w.dials())
		}
		if w.Reaches("a") {
			t.Error("a is reached")
		}
	})
}

func TestOpsWaitForTheFirstDialAndComeBackWhenItFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{}, "a")
		w.net.Host("a").Hung.Store(true)
		w.Nodes(w.nodes())
		w.wantState("a", Dialling)
		began := time.Now()
		op, second := allocation("1"), allocation("2")
		w.forward("a", op)
		w.forward("a", second)
		w.wantBack(op, nonce.Bounced, nonce.ErrPeerAway)
		w.wantBack(second, nonce.Bounced, nonce.ErrPeerAway)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		w.wantState("a", Suspect)
		if err := w.Forward("a", "", allocation("3")); err != nonce.ErrPeerAway {
			t.Errorf("to a suspect: %v", err)
		}
		w.net.Host("a").Hung.Store(false)
		f := <-w.net.Host("a").Peers
		w.wantState("a", Up)
		w.forward("a", op)
		f.Next(wire.MethodAllocate)
	})
}

func TestASuspectIsTriedAgainWithinASecondAndReachedWhenItIsBack(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.refuseUpgrades("a", 503)
		f.Cut()
		w.wantState("a", Suspect)
		for range 5 { // the pause has grown
			time.Sleep(time.Second)
		}
		before := w.dials()
		time.Sleep(11 * time.Second)
		if n := w.dials() - before; n < 10 {
			t.Errorf("%d dials in 11 s", n)
		}
		if w.Reaches("a") {
			t.Error("it is reached")
		}
		w.refuseUpgrades("a", 0)
		<-w.net.Host("a").Peers
		w.wantState("a", Up)
		if !w.Reaches("a") {
			t.Error("the node that is back is not reached")
		}
		if n := w.logged("503"); n != 1 {
			t.Errorf("logged %d times, want once", n)
		}
	})
}

// leaves are the ways in which a node says that it drains.
var leaves = map[string]func(w *world, f *far){
	"a reply": func(w *world, f *far) {
		op := allocation("s")
		w.forward("a", op)
		f.Reject(f.Next(wire.MethodAllocate), wire.CodeDraining, "draining", wire.ErrorData{})
		w.wantBack(op, nonce.Bounced, nonce.ErrDraining)
	},
	"the close code": func(w *world, f *far) { closeWith(f, wire.CloseServiceRestart) },
	"the registry": func(w *world, f *far) {
		gone := node("a", 1)
		gone.Live, gone.Left = false, true
		w.Nodes([]lease.Node{node("self", 1), gone})
	},
}

func TestANodeThatLeavesIsNotReachedUntilItStartsAgain(t *testing.T) {
	for name, leave := range leaves {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			leave(w, f)
			w.refuseUpgrades("a", 503) // as a node that drains
			w.wantState("a", Leaving)
			dials := w.dials()
			if name != "the registry" { // which is slow to notice
				w.Nodes([]lease.Node{node("self", 1), node("a", 1)})
				w.wantState("a", Leaving)
			}
			if w.Reaches("a") {
				t.Errorf("%s: it is reached", name)
			}
			f.Cut()
			time.Sleep(time.Minute)
			if w.dials() != dials {
				t.Errorf("%s: it was dialled %d times while it left", name, w.dials()-dials)
			}
			w.refuseUpgrades("a", 0)
			w.Nodes([]lease.Node{node("self", 1), node("a", 2)})
			<-w.net.Host("a").Peers
			w.wantState("a", Up)
		})
	}
}

func TestANodeThatDrainsStillAnswersWhatItHas(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		op := allocation("1")
		w.forward("a", op)
		r := f.Next(wire.MethodAllocate)
		leaves["a reply"](w, f)
		other := allocation("2")
		w.forward("a", other) // which it owns
		grant(f, f.Next(wire.MethodAllocate), 2)
		w.wantBack(other, nonce.Answered, nil)
		grant(f, r, 1)
		w.wantBack(op, nonce.Answered, nil)
	})
}

// A node that started again owns signers before the registry was read again.
func TestANodeThatCameBackIsReachedBeforeTheRegistrySaysSo(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		leaves["the registry"](w, f)
		f.Cut()
		w.wantState("a", Leaving)
		op := allocation("s")
		if err := w.Forward("a", "ws://a", op); err != nonce.ErrPeerAway {
			t.Errorf("got %v, want ErrPeerAway at once", err)
		}
		f = <-w.net.Host("a").Peers
		synctest.Wait()
		w.forward("a", op)
		f.Next(wire.MethodAllocate)
	})
}

func TestANodeThatOnlyTheStoreHasNamedIsReachedUnderItsURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{}, "a")
		op := allocation("s")
		expect.Must(t, w.Forward("a", "ws://a/ws", op))
		f := <-w.net.Host("a").Peers
		grant(f, f.Next(wire.MethodAllocate), 1)
		w.wantBack(op, nonce.Answered, nil)
		w.Nodes([]lease.Node{node("self", 1)}) // read before it had registered
		w.wantState("a", Up)
		time.Sleep(2 * unlistedTime)
		w.Nodes([]lease.Node{node("self", 1)})
		if err := <-f.Ended; err == nil || w.state("a") != "" {
			t.Errorf("the link to a node that nobody knows ended with %v", err)
		}
	})
}

func TestALinkFollowsTheNodesAddress(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		op := allocation("s")
		w.forward("a", op)
		f.Next(wire.MethodAllocate)
		moved := node("a", 2)
		moved.URL = "ws://b"
		w.net.Add("b", w.net.Host("a"))
		w.Nodes([]lease.Node{node("self", 1), moved})
		w.wantBack(op, nonce.Doubtful, errMoved)
		<-w.net.Host("b").Peers
		if dials := w.net.Dials(); dials[len(dials)-1] != "b" {
			t.Errorf("dialled %v", dials)
		}
	})
}

// TestANodeThatIsStartedTwiceIsNotTakenToLeave: the registry names the later start before
// the link to the first ends.
func TestANodeThatIsStartedTwiceIsNotTakenToLeave(t *testing.T) {
	for _, name := range []string{"a reply", "the close code"} {
		t.Run(name, func(t *testing.T) {
			linked(t, Config{}, func(t *testing.T, w *world, f *far) {
				again := node("a", 2)
				again.URL = "ws://b"
				w.net.Add("b", w.net.Host("a"))
				w.Nodes([]lease.Node{node("self", 1), again})
				leaves[name](w, f)
				<-w.net.Host("b").Peers
				w.wantState("a", Up)
			})
		})
	}
}

func TestAnUpgradeSaysWhoDialsWhomTheStoreAndTheSecret(t *testing.T) {
	linked(t, Config{Store: func() string { return "here" }}, func(t *testing.T, w *world, f *far) {
		if from, to, secret := f.Header.Get("Noncegate-Node"), f.Header.Get("Noncegate-Node-To"), f.Header.Get("Noncegate-Node-Secret"); from != "self" || to != "a" || secret != "sesame" {
			t.Errorf("from %q to %q with %q", from, to, secret)
		}
		if store := f.Header.Get("Noncegate-Node-Store"); store != "here" {
			t.Errorf("of the store %q", store)
		}
		if link, err := strconv.ParseInt(f.Header.Get("Noncegate-Node-Link"), 10, 64); err != nil || link <= 0 {
			t.Errorf("link %d, %v", link, err)
		}
	})
}

// TestLinksOfALaterStartHaveHigherNumbers, so that the process which a later start has replaced
// ends none of its links.
func TestLinksOfALaterStartHaveHigherNumbers(t *testing.T) {
	last := int64(0)
	for start := range int64(2) {
		r := &Router{self: "self", ctx: t.Context(), served: make(chan struct{})}
		r.Serve(start+1, nil, nil)
		for _, to := range []string{"a", "b", "a"} { // the registry may name a node, not name it, and name it again
			p := newPeer(r, node(to, 1))
			defer p.cancel(nil)
			link, err := strconv.ParseInt(p.header().Get(wire.HeaderNodeLink), 10, 64)
			if err != nil || link <= last {
				t.Errorf("start %d: link %d after %d, %v", start+1, link, last, err)
			}
			last = link
		}
	}
}

func TestWithoutASecretNodesAreDialledOverLoopbackOnly(t *testing.T) {
	for url, want := range map[string]bool{
		"ws://127.0.0.1:1/ws": true, "http://localhost:1": true, "ws://[::1]:1": true, "ws://127.9.9.9": true,
		"ws://10.0.0.1:1/ws": false, "wss://example.org": false, "ws://127.0.0.1.example.org": false, "ws://[2001:db8::1]": false,
	} {
		if _, err := address(url, false); (err == nil) != want {
			t.Errorf("%s: %v", url, err)
		}
		if _, err := address(url, true); err != nil {
			t.Errorf("%s with a secret: %v", url, err)
		}
	}
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		w.Router.cfg.Secret = ""
		f.Cut()
		time.Sleep(time.Minute)
		if n := w.logged("--node-secret"); n != 1 || w.dials() != 1 {
			t.Errorf("said so %d times and dialled %d times, want once each", n, w.dials())
		}
		if err := w.Forward("a", "", allocation("s")); err != nonce.ErrPeerAway {
			t.Errorf("forward: %v", err)
		}
	})
}

func TestAnAddressIsAWebSocketURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://h:1": "ws://h:1/ws", "https://h/": "wss://h/ws", "ws://h/other?x=1": "ws://h/other?x=1",
		"ftp://h": "", "ws://": "", "": "", "ws://user@h": "", "ws://%zz": "",
	} {
		if got, err := address(raw, true); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestARefusalOfTheUpgradeIsAnErrorSaidOnce(t *testing.T) {
	for status, words := range map[int]string{403: "--node-secret", 421: "--advertise-url"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{}, "a")
			w.refuseUpgrades("a", status)
			w.Nodes(w.nodes())
			time.Sleep(time.Minute)
			if w.logged(words) != 1 || w.logged("level=ERROR") != 1 || w.logged("so it is") != 1 {
				t.Errorf("%d: logged\n%s", status, w.log)
			}
			// A URL that leads to this very node ends here, too: it says 421.
			if err := w.Forward("a", "ws://a", allocation("s")); err != nonce.ErrPeerAway {
				t.Errorf("%d: %v", status, err)
			}
			w.wantState("a", Suspect)
		})
	}
}

func TestSettingsThatContradictEachOtherAreRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Queue: -1}, {Queue: maxQueue + 1}, {Timeout: time.Millisecond}, {BackoffMin: time.Second, BackoffMax: time.Millisecond},
	} {
		if _, err := New("self", cfg, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}
