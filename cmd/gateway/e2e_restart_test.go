//go:build unix

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// holds reads every open hold of the crowd's signers through the protocol.
func (c *peer) holds() map[string]bool {
	c.Helper()
	open := make(map[string]bool)
	for i := range crowdSigners {
		signer := fmt.Sprintf("signer-%d", i)
		for from := int64(0); ; {
			page := decode[wire.ListResult](c, c.want("ok", wire.MethodList,
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
		"postgres": func() string { return database(t) },
		"sqlite":   func() string { return "sqlite:" + filepath.Join(t.TempDir(), "n.db") },
	} {
		t.Run(engine, func(t *testing.T) {
			args := []string{"--store=" + store(), "--node-id=n", "--lease-ttl=10m", "--max-holds=4096"}
			p := launch(t, args...)
			c := p.crowd(t.Context(), 8)
			c.reach(400)
			p.signal(syscall.SIGKILL)
			c.all.Wait()
			p.exit()

			again := launch(t, args...).connect()
			first := again.allocate("signer-0", "") // the lease of the killed one still runs
			open := again.holds()
			for what := range c.given {
				if !open[what] {
					t.Errorf("%s was answered and is not held", what)
				}
			}
			if what := fmt.Sprintf("signer-0 %d %d", first.Nonce, first.Attempt); c.given[what] != "" {
				t.Errorf("%s was handed out again", what)
			}
			for what, id := range c.given {
				var signer string
				var nonce int64
				if _, err := fmt.Sscan(what, &signer, &nonce); err != nil {
					t.Fatal(err)
				}
				if got := again.allocate(signer, id); got.Nonce != nonce {
					t.Errorf("%s: %s is answered with %d after the restart", what, id, got.Nonce)
				}
				break // one is enough: each costs a round trip
			}
		})
	}
}

// TestAGatewayThatIsToldToEndDrains: what it answered happened, what it did not
// answer did not.
func TestAGatewayThatIsToldToEndDrains(t *testing.T) {
	t.Parallel()
	db := database(t)
	p := launch(t, "--store="+db, "--max-holds=4096", "--drain-timeout=10s", "--lease-ttl=10m")
	idle := p.connect()
	c := p.crowd(t.Context(), 8)
	c.reach(200)
	told := time.Now()
	p.signal(syscall.SIGTERM)
	p.await("/readyz to say so", func() bool { code, _ := p.get("/readyz"); return code == 503 })

	_, err := idle.read()
	if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != wire.CloseServiceRestart {
		t.Errorf("an idle connection ended with %v", err)
	}
	_ = idle.ws.Close()
	c.all.Wait()
	for _, err := range c.ended {
		if closed, ok := errors.AsType[*websocket.CloseError](err); !ok || closed.Code != wire.CloseServiceRestart {
			t.Errorf("a connection ended with %v", err)
		}
	}
	if code := p.exit(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if took := time.Since(told); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	c.only("ok", "draining")
	c.stored(db)
	got := rows(t, db, `SELECT count(*), bool_and(owner_node = '' AND owner_incarnation = 0 AND fencing_token = 2) FROM shard`)
	if got != fmt.Sprintf("(%d,t)", fewShards) {
		t.Errorf("shards, or signers, all given back: %s", got)
	}
	if live := query(t, db, `SELECT live FROM nodes`); live != "(f)" {
		t.Error("it did not leave the registry")
	}
}
