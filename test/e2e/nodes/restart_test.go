//go:build unix

package nodes

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// holds reads every open hold of the crowd's signers through the protocol.
func holds(c *e2e.Peer) map[string]bool {
	c.Helper()
	open := make(map[string]bool)
	for i := range e2e.CrowdSigners {
		signer := fmt.Sprintf("signer-%d", i)
		for from := int64(0); ; {
			page := e2e.Decode[wire.ListResult](c, c.Want("ok", wire.MethodList,
				fmt.Sprintf(`{"signer":%q,"status":"HELD","from":%d,"limit":1000}`, signer, from)))
			for _, a := range page.Allocations {
				open[fmt.Sprintf("%s %d %d", signer, a.Nonce, a.Attempt)] = true
			}
			if page.NextFrom == nil {
				break
			}
			from = *page.NextFrom
		}
	}
	return open
}

func TestAGatewayThatWasKilledHasEveryHoldItAnsweredAndServesAtOnce(t *testing.T) {
	t.Parallel()
	for engine, store := range map[string]func() string{
		"postgres": func() string { return e2e.Database(t) },
		"sqlite":   func() string { return "sqlite:" + filepath.Join(t.TempDir(), "n.db") },
	} {
		t.Run(engine, func(t *testing.T) {
			args := []string{"--store=" + store(), "--node-id=n", "--lease-ttl=10m", "--max-holds=4096"}
			p := e2e.Launch(t, args...)
			c := p.Crowd(t.Context(), 8)
			c.Reach(400)
			p.Signal(syscall.SIGKILL)
			c.All.Wait()
			p.Exit()

			again := e2e.Launch(t, args...).Connect()
			first := again.Allocate("signer-0", "") // the lease of the killed one still runs
			open := holds(again)
			for what := range c.Given {
				if !open[what] {
					t.Errorf("%s was answered and is not held", what)
				}
			}
			if what := fmt.Sprintf("signer-0 %d %d", first.Nonce, first.Attempt); c.Given[what] != "" {
				t.Errorf("%s was handed out again", what)
			}
			for what, id := range c.Given {
				var signer string
				var nonce int64
				if _, err := fmt.Sscan(what, &signer, &nonce); err != nil {
					t.Fatal(err)
				}
				if got := again.Allocate(signer, id); got.Nonce != nonce {
					t.Errorf("%s: %s is answered with %d after the restart", what, id, got.Nonce)
				}
				break // one is enough: each costs a round trip
			}
		})
	}
}

// TestAGatewayThatIsToldToEndDrains: what it answered happened, what it did not answer did not.
func TestAGatewayThatIsToldToEndDrains(t *testing.T) {
	t.Parallel()
	db := e2e.Database(t)
	p := e2e.Launch(t, "--store="+db, "--max-holds=4096", "--drain-timeout=10s", "--lease-ttl=10m")
	idle := p.Connect()
	c := p.Crowd(t.Context(), 8)
	c.Reach(200)
	p.Signal(syscall.SIGTERM)
	p.Await("/readyz to say so", func() bool { code, _ := p.Get("/readyz"); return code == 503 })

	_, err := idle.Read()
	if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != wire.CloseServiceRestart {
		t.Errorf("an idle connection ended with %v", err)
	}
	_ = idle.Close()
	c.All.Wait()
	for _, err := range c.Ended {
		if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != wire.CloseServiceRestart {
			t.Errorf("a connection ended with %v", err)
		}
	}
	p.Ends()
	c.Only("ok", "draining")
	c.Kept(db, 0)
	got := e2e.Query(t, db, `SELECT count(*), bool_and(owner_node = '' AND owner_incarnation = 0 AND fencing_token = 2) FROM shard`)
	if got != fmt.Sprintf("(%d,t)", e2e.FewShards) {
		t.Errorf("shards, or signers, all given back: %s", got)
	}
	if live := e2e.Query(t, db, `SELECT live FROM nodes`); live != "(f)" {
		t.Error("it did not leave the registry")
	}
}
