//go:build unix

package cluster

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"noncegate/client"
	"noncegate/test/e2e"
	"noncegate/wire"
)

func TestByRedisEventsReachSubscribersOnEveryNodeOnceAndInOrder(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	f := e2e.ServeEach(t, "a b c=basic", "--lease-ttl=1m", "--redis="+r.URL())
	signers := e2e.Signers("account", 6)
	watchers := map[string]*watcher{}
	for _, name := range f.Names {
		watchers[name] = watch(f, name)
	}
	few := watch(f, "b", signers[1], signers[4])
	const rounds = 20
	conns := f.ConnectEach()
	for i := range rounds {
		for j, s := range signers {
			at := conns[f.Names[(i*(1-j%2)+j)%2]] // half of them at both nodes in turn
			if j == 2 {
				at = conns["c"]
			}
			at.Want("ok", wire.MethodMarkUsed, e2e.Mark(s, at.Allocate(s, "").Nonce))
		}
	}
	for name, w := range watchers {
		f.Nodes[name].Await("all events", func() bool { return len(w.events()) >= 2*rounds*len(signers) })
		for _, s := range signers {
			inOrder(t, name, w.events(), s, 2*rounds)
		}
		if n := f.Nodes[name].Value("noncegate_subscriptions"); n > 2 {
			t.Errorf("%s has %v subscriptions: nodes subscribe to it", name, n)
		}
	}
	e2e.Await(t, "the events of two signers", func() bool { return len(few.events()) >= 4*rounds })
	for _, s := range []string{signers[1], signers[4]} {
		inOrder(t, "b, for two signers", few.events(), s, 2*rounds)
	}
	if f.Sum("noncegate_redis_events_received_total") == 0 || f.Sum("noncegate_redis_events_missed_total") != 0 || f.Sum("noncegate_redis_down") != 0 {
		t.Error("nothing came by Redis, or something was missed")
	}
	info := e2e.Decode[wire.InfoResult](t, conns["a"].Want("ok", wire.MethodInfo, "{}"))
	if info.Redis != "server" {
		t.Errorf("gateway_info says of Redis %q", info.Redis)
	}
}

// inOrder fails the test unless a subscriber was told of each version of a signer
// once, from 1 to last, and missed nothing.
func inOrder(t testing.TB, who string, events []client.Event, signer string, last int64) {
	t.Helper()
	next := int64(1)
	for _, e := range events {
		if e.Signer != signer {
			continue
		}
		if e.Version != next || e.Missed != 0 || e.Gap {
			t.Errorf("a subscriber at %s was told %+v, want version %d", who, e, next)
			return
		}
		next++
	}
	if next != last+1 {
		t.Errorf("a subscriber at %s was told of %s up to version %d of %d", who, signer, next-1, last)
	}
}

// TestLongWithoutRedisTheGatewaysServeAndSubscribersHearOfIt: Redis is killed, comes
// back, hangs, and goes on. Answers are never late; events of the own node come
// meanwhile; subscribers at the other are told that they missed some.
func TestLongWithoutRedisTheGatewaysServeAndSubscribersHearOfIt(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	f := e2e.ServeEach(t, "a b", "--redis="+r.URL())
	toA, toB := f.Nodes["a"].Connect(), f.Nodes["b"].Connect()
	s := e2e.OwnedBy(e2e.Owners(toA, e2e.Signers("account", 20)), "b")[0]
	far, near := watch(f, "a", s), watch(f, "b", s)
	// busy allocates at both nodes until done, and returns the slowest answer.
	busy := func(what string, done func() bool) (slowest time.Duration) {
		t.Helper()
		e2e.Await(t, what, func() bool {
			for _, c := range []*e2e.Peer{toA, toB} {
				asked := time.Now()
				c.Allocate(s, "")
				slowest = max(slowest, time.Since(asked))
			}
			return done()
		})
		return slowest
	}
	missed := func() (sum int64) {
		for _, e := range far.events() {
			sum += e.Missed
		}
		return sum
	}
	down := func(node string, want float64) bool { return f.Nodes[node].Value("noncegate_redis_down") == want }
	busy("an event by Redis", func() bool { return len(far.events()) > 10 })
	if missed() != 0 {
		t.Errorf("missed %d at the beginning", missed())
	}
	for what, harm := range map[string][2]func() error{"kill": {r.Kill, r.Restart}, "hang": {r.Pause, r.Resume}} {
		before := missed()
		e2e.Do(t, what, harm[0])
		slowest := busy(what+": both to notice", func() bool { return down("a", 1) && down("b", 1) })
		at := len(near.events())
		slowest = max(slowest, busy("events of the own node", func() bool { return len(near.events()) > at+10 }))
		// A subscription is answered meanwhile, at once or nearly.
		asked := time.Now()
		watch(f, "a", "another", "more")
		if took := time.Since(asked); took > e2e.AtOnce+time.Second {
			t.Errorf("%s: a subscription took %v", what, took)
		}
		e2e.Do(t, "end of "+what, harm[1])
		slowest = max(slowest, busy("both to be well", func() bool { return down("a", 0) && down("b", 0) }))
		// What a Redis that hung was sent before it was given up it may do when it goes on.
		slowest = max(slowest, busy("every event to come, or to be told as missed", func() bool {
			all := len(near.events())
			return len(far.events())+int(missed()) >= all
		}))
		if what == "kill" && missed() == before {
			t.Error("nobody was told of a loss")
		}
		at = len(far.events())
		busy("events by Redis again", func() bool { return len(far.events()) > at+10 })
		t.Logf("%s: slowest answer %v, missed %d", what, slowest, missed()-before)
		if slowest > 500*time.Millisecond {
			t.Errorf("%s: an answer took %v", what, slowest)
		}
	}
	last := e2e.StatusOf(toA, s).Version
	far.await("the last event", func() bool { e := far.events(); return e[len(e)-1].Version >= last })
	near.await("the last event", func() bool { e := near.events(); return e[len(e)-1].Version >= last })
	version := int64(0)
	for i, e := range far.events() {
		if e.Version <= version {
			t.Errorf("event %d is of version %d, after %d", i, e.Version, version)
		}
		if gap := e.Version - version - 1; i > 0 && gap > 0 && missed() == 0 {
			t.Errorf("version %d follows %d and nothing was said", e.Version, version)
		}
		version = e.Version
	}
	first := near.events()[0].Version
	for i, e := range near.events() {
		if e.Version != first+int64(i) { // it may be told of a loss: its node does not know who committed what it lost
			t.Errorf("a subscriber at the owner was told %+v as event %d", e, i)
			break
		}
	}
	e2e.Consistent(t, f.DB)
}

func TestLongANodeThatIsKilledIsALossForSubscribersByRedis(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	f := e2e.ServeEach(t, "a b", "--redis="+r.URL())
	toA := f.Nodes["a"].Connect()
	s := e2e.OwnedBy(e2e.Owners(toA, e2e.Signers("account", 20)), "b")[0]
	far := watch(f, "a", s)
	far.await("an event by Redis", func() bool { toA.Allocate(s, ""); return len(far.events()) > 0 })
	f.Nodes["b"].Signal(syscall.SIGKILL)
	f.Nodes["b"].Exit()
	e2e.ServeAgain(toA, []string{s}, time.Now(), "unavailable none", "unavailable unknown")
	f.Nodes["a"].Await("the loss to be told", func() bool {
		toA.Allocate(s, "")
		e := far.events()
		return e[len(e)-1].Missed > 0 || f.Nodes["a"].Value("noncegate_redis_events_missed_total") > 0
	})
}

// TestLongANodeThatIsNotHeardByRedisIsCounted: one node of two was started without.
func TestLongANodeThatIsNotHeardByRedisIsCounted(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	f := e2e.ServeEach(t, "a")
	f.Launch("b", "--redis="+r.URL())
	f.Linked()
	watch(f, "b")
	f.Nodes["b"].Await("a to count as silent", func() bool { return f.Nodes["b"].Value("noncegate_redis_nodes_silent") == 1 })
}

func TestARedisThatCannotBeUsedStopsTheStartWithASentence(t *testing.T) {
	t.Parallel()
	good, gone := e2e.StartRedis(t), e2e.StartRedis(t)
	e2e.Do(t, "stop", gone.Stop)
	host, port, err := net.SplitHostPort(good.Addr())
	if err != nil {
		t.Fatal(err)
	}
	password := strings.TrimSuffix(strings.TrimPrefix(good.URL(), "redis://:"), "@"+good.Addr()+"/0")
	db := e2e.Database(t)
	for name, tt := range map[string]struct{ redis, want string }{
		"away":               {gone.URL(), "does not answer"},
		"the wrong password": {"redis://:secret@" + good.Addr(), "refuses the user or password"},
		"a replica":          {e2e.StartRedis(t, "replicaof "+host+" "+port, "masterauth "+password).URL(), "read-only replica"},
		"eviction":           {e2e.StartRedis(t, "maxmemory 50mb", "maxmemory-policy allkeys-lru").URL(), "noeviction"},
		"not a cluster":      {"redis+cluster://:" + password + "@" + good.Addr(), "belongs to no cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			said := e2e.Refused(t, e2e.ExitUsage, "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+db, "--redis="+tt.redis)
			if !strings.Contains(said, "--redis cannot be used: ") || !strings.Contains(said, tt.want) || strings.Contains(said, "secret") || strings.Contains(said, password) {
				t.Errorf("said %q", said)
			}
		})
	}
}

func TestASQLiteGatewayTakesRedisAndPublishesNothing(t *testing.T) {
	t.Parallel()
	r := e2e.StartRedis(t)
	p := e2e.Launch(t, "--store=sqlite:"+t.TempDir()+"/n.db", "--redis="+r.URL())
	sub, err := dialAt(t, p.URL).Subscribe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Connect().Allocate(e2e.Account, "")
	select {
	case <-sub.Events():
	case <-time.After(e2e.Patience):
		t.Fatal("no event")
	}
	if open, err := r.Client(t).PubSubShardChannels(t.Context(), "*").Result(); err != nil || len(open) != 0 {
		t.Errorf("channels %v, %v", open, err)
	}
}

// dialAt connects the Go client to a gateway.
func dialAt(t testing.TB, url string) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), e2e.Patience)
	defer cancel()
	c, err := client.Dial(ctx, url, client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
