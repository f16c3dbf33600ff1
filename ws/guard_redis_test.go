//go:build unix

package ws

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/guard"
	"noncegate/nonce/memstore"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/wait"
)

// twoNodes are gateways on one store, with locks in one Redis by a client each.
func twoNodes(t *testing.T, mode func(*setup)) (nodes []*gateway) {
	t.Helper()
	store := memstore.New(4, time.Now)
	server, err := redistest.Start()
	must(t, err)
	t.Cleanup(func() { check(t, server.Close()) })
	for _, node := range []string{"n1", "n2"} {
		options, err := redis.ParseURL(server.URL())
		must(t, err)
		options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
		client := redis.NewClient(options)
		t.Cleanup(func() { check(t, client.Close()) })
		nodes = append(nodes, startGateway(t, mode, withLocks(guard.NewRedis(client, "test")), func(s *setup) {
			s.Store, s.Node, s.ws.Nodes.ID = store, node, node
		}))
	}
	return nodes
}

func TestOfAHundredSubmissionsToTwoNodesAtOnceOnePasses(t *testing.T) {
	for name, mode := range workModes {
		t.Run(name, func(t *testing.T) {
			nodes := twoNodes(t, mode)
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
	nodes := twoNodes(t, workModes["basic"])
	clients := []*client{nodes[0].dial(), nodes[1].dial()}
	for i := range 100 {
		clients[i%2].ask("x", "nonce_allocate", guarded("a", `{"key":"k"}`))
	}
	if n := nodes[0].next("a"); n != 100 {
		t.Errorf("%d nonces, want 100", n)
	}
}
