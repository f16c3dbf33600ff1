//go:build unix

package cluster

import (
	"context"
	"net"
	"strings"
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

// inOrder fails the test unless a subscriber was told of each version of a signer once, from 1 to last, and missed nothing.
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
