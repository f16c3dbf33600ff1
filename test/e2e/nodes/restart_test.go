//go:build unix

package nodes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/test/e2e"
	"noncegate/test/lab/history"
	"noncegate/test/lab/stored"
	"noncegate/wire"
)

func TestAGatewayThatWasKilledHasEveryHoldItAnsweredAndServesAtOnce(t *testing.T) {
	t.Parallel()
	db, file := e2e.Database(t), filepath.Join(t.TempDir(), "n.db")
	for store, final := range map[string]func() (*history.Final, error){
		db:               func() (*history.Final, error) { return stored.Postgres(t.Context(), db) },
		"sqlite:" + file: func() (*history.Final, error) { return stored.SQLite(t.Context(), file) },
	} {
		t.Run(store[:strings.Index(store, ":")], func(t *testing.T) {
			args := []string{"--store=" + store, "--node-id=n", "--lease-ttl=10m", "--max-holds=4096"}
			p := e2e.Launch(t, args...)
			c := p.Crowd(t.Context(), 8)
			c.Reach(400)
			p.Signal(syscall.SIGKILL)
			c.All.Wait()
			p.Exit()
			c.Kept(final())

			again := e2e.Launch(t, args...).Connect()
			first := again.Allocate("signer-0", "") // the lease of the killed one still runs
			for _, call := range c.Calls {
				if len(call.Nonces) > 0 && call.Signer == "signer-0" && call.Nonces[0].Nonce == first.Nonce {
					t.Errorf("nonce %d was handed out again", first.Nonce)
				}
			}
			if got := again.Allocate(c.Calls[0].Signer, c.Calls[0].RequestID); got.Nonce != c.Calls[0].Nonces[0].Nonce {
				t.Errorf("%v is answered with %d after the restart", &c.Calls[0], got.Nonce)
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
	c.Kept(stored.Postgres(t.Context(), db))
	if got, want := e2e.Query(t, db, `SELECT count(*) FROM signer_request`), fmt.Sprintf("(%d)", c.Said["ok"]); got != want {
		t.Errorf("%s requests were done, and %s answered", got, want)
	}
	got := e2e.Query(t, db, `SELECT count(*), bool_and(owner_node = '' AND owner_incarnation = 0 AND fencing_token = 2) FROM shard`)
	if got != fmt.Sprintf("(%d,t)", e2e.FewShards) {
		t.Errorf("shards, or signers, all given back: %s", got)
	}
	if live := e2e.Query(t, db, `SELECT NOT gone AND lease_until > store_millis() FROM gateway_node`); live != "(f)" {
		t.Error("it did not leave the registry")
	}
}
