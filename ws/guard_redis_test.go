//go:build unix

package ws

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/guard"
	"noncegate/internal/testenv/redistest"
	"noncegate/internal/testenv/wait"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// redisLocks are two clients of one Redis, as two gateways have them.
func redisLocks(t *testing.T) (a, b guard.Locks) {
	t.Helper()
	server, err := redistest.Start()
	must(t, err)
	t.Cleanup(func() { check(t, server.Close()) })
	connect := func() guard.Locks {
		options, err := redis.ParseURL(server.URL())
		must(t, err)
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
		client := redis.NewClient(options)
		t.Cleanup(func() { check(t, client.Close()) })
		return guard.NewRedis(client, "test")
	}
	return connect(), connect()
}

func TestOfAHundredSubmissionsToTwoNodesAtOnceOnePasses(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			one, two := redisLocks(t)
			store := memstore.New(4, time.Now)
			shared := func(node string) func(*setup) {
				return func(s *setup) { s.Store, s.Node, s.ws.Nodes.ID = store, node, node }
			}
			nodes := []*gateway{startGateway(t, mode, shared("n1"), withLocks(one)), startGateway(t, mode, shared("n2"), withLocks(two))}
			if name != "basic" {
				for nodes[0].Service.Owned() == 0 || nodes[1].Service.Owned() == 0 {
					runtime.Gosched()
				}
			}
			waiting, release := nodes[0].holdWrites()
			const connections, each = 10, 10
			answers := make(chan map[string]any, connections*each)
			var reading sync.WaitGroup
			for i := range connections {
				c := nodes[i%2].dial()
				reading.Go(func() {
					for range each {
						answers <- c.reply()
					}
				})
				for n := range each {
					// Each asks for another signer: only the key is the same.
					c.request("x", "nonce_allocate", guarded(nodes[i%2].ownSigner(fmt.Sprintf("s-%d-%d", i, n)), `{"key":"payout","intervalMs":60000}`))
				}
			}
			wait.For(t, waiting, "the write of the one that passes")
			for range connections*each - 1 {
				r := wait.For(t, answers, "a refusal")
				d := wantError(t, r, "x", "duplicate_submit")
				if after := fmt.Sprint(d["retryAfterMs"]); len(after) != 5 || after < "40000" || after > "60000" {
					t.Errorf("retryAfterMs is %s, want nearly a minute", after)
				}
			}
			release()
			if r := wait.For(t, answers, "the answer of the one"); r["error"] != nil {
				t.Errorf("the one that passes is told %v", r)
			}
			reading.Wait()
			if n := len(waiting); n != 0 {
				t.Errorf("%d more writes than one", n)
			}
			c := nodes[1].dial()
			c.ask("next", "nonce_allocate", guarded("next", `{"key":"payout"}`))
		})
	}
}

func TestTheLockOfAnAnsweredCallIsFreeOnAllNodes(t *testing.T) {
	one, two := redisLocks(t)
	store := memstore.New(4, time.Now)
	basic := workModes["basic"]
	a := startGateway(t, basic, withLocks(one), func(s *setup) { s.Store = store })
	b := startGateway(t, basic, withLocks(two), func(s *setup) { s.Store, s.Node, s.ws.Nodes.ID = store, "n2", "n2" })
	clients := []*client{a.dial(), b.dial()}
	for i := range 100 {
		c := clients[i%2]
		c.ask("x", "nonce_allocate", guarded("a", `{"key":"k"}`))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if l, err := store.Load(ctx, []nonce.SignerNeed{{Signer: "a"}}); err != nil || l.Signers[0].Signer.Next != 100 {
		t.Errorf("%+v, %v; want 100 nonces", l.Signers, err)
	}
}
