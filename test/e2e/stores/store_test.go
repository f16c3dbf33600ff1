//go:build unix

package stores

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/test/e2e"
	"noncegate/wire"
)

func TestADatabaseThatWentBackStopsASignerUntilItHasASafeFloor(t *testing.T) {
	t.Parallel()
	db := e2e.Database(t)
	p := e2e.Launch(t, "--store="+db, "--lease-ttl=10m")
	c := p.Connect()
	lose := loseLater(t, db, c)
	for range 2 {
		c.Allocate(e2e.Account, "")
	}
	for range 3 {
		c.Allocate("bystander", "")
	}
	lose()
	floor := func(n int64) string { return fmt.Sprintf(`{"signer":%q,"floor":%d}`, e2e.Account, n) }
	for range 2 {
		c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
		c.Want("unavailable none", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":2,"txHash":%q}`, e2e.Account, e2e.Hash))
		c.Want("unavailable none", wire.MethodSetFloor, floor(2)) // below what was handed out
	}
	if got := e2e.Decode[wire.StatusResult](t, c.Want("ok", wire.MethodStatus, `[`+fmt.Sprintf("%q", e2e.Account)+`]`)); got.Next != 1 {
		t.Errorf("the status hides what the store has: %+v", got)
	}
	if got := c.Allocate("bystander", ""); got.Nonce != 3 {
		t.Errorf("another signer: %+v", got)
	}
	if !p.Metric("noncegate_store_went_back_total 1") {
		t.Error("there was no alarm")
	}
	p.Says(`"level":"ERROR","msg":"the store went back`)

	c.Want("ok", wire.MethodSetFloor, floor(3))
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 3 || got.Attempt != 1 {
		t.Errorf("with a safe floor: %+v, want nonce 3", got)
	}
	e2e.Consistent(t, db)
}

// loseLater lets a client allocate for account, and returns what loses all commits for it that
// come then, as a failover does.
func loseLater(t *testing.T, db string, c *e2e.Peer) (lose func()) {
	t.Helper()
	c.Allocate(e2e.Account, "")
	e2e.Execute(t, db, `CREATE TABLE before AS SELECT * FROM signer WHERE signer = '`+e2e.Account+`'`)
	return func() {
		e2e.Execute(t, db, `UPDATE signer s SET version = b.version, next_nonce = b.next_nonce, live = b.live FROM before b WHERE b.signer_id = s.signer_id`,
			`DROP TABLE before`)
	}
}

func TestAHeartbeatThatWentBackStopsTheNode(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]string{
		"the heartbeat was lost": `UPDATE gateway_node SET counter = 0`,
		"everything is gone":     `TRUNCATE gateway_node, signer, signer_history, signer_request, signer_due, signer_watch; UPDATE shard SET owner_node = '', owner_incarnation = 0, fencing_token = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			db := e2e.Database(t)
			p := e2e.Launch(t, "--store="+db, "--lease-ttl=1s")
			c := p.Connect()
			c.Allocate(e2e.Account, "")
			p.Await("two heartbeats", func() bool { return e2e.Rows(t, db, `SELECT 1 FROM gateway_node WHERE counter > 1`) != "" })
			e2e.Execute(t, db, loss)
			p.Await("/readyz to fail", func() bool { code, _ := p.Get("/readyz"); return code == 503 })
			if _, body := p.Get("/readyz"); !strings.Contains(body, "the store went back") {
				t.Errorf("/readyz: %s", body)
			}
			before := e2e.Everything(t, db)
			c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation("another", ""))
			c.Want("unavailable none", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":9}`, e2e.Account))
			if after := e2e.Everything(t, db); after != before {
				t.Errorf("it wrote after that\nbefore\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func TestARowLockedByAnOutsiderHoldsUpItsOwnSignerOnly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := e2e.Database(t)
			p := e2e.Launch(t, "--store="+db, "--mode="+mode, "--workers=1", "--max-holds=4096")
			c, other := p.Connect(), p.Connect()
			c.Allocate(e2e.Account, "")
			other.Allocate("other", "")

			outsider := e2e.Dial(t, db)
			lock := func() func() {
				tx, err := outsider.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), `SELECT 1 FROM `+"signer"+` WHERE signer = $1 FOR UPDATE`, e2e.Account); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}

			unlock := lock()
			id := c.Send(wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			for range 20 {
				other.Allocate("other", "")
			}
			unlock()
			if r := c.Answer(id); r.Error != nil {
				t.Errorf("when the lock is gone: %v", r.Error)
			}

			unlock = lock()
			asked := time.Now()
			id = c.Send(wire.MethodAllocate, e2e.Allocation(e2e.Account, ""))
			done := make(chan *e2e.Reply)
			go func() { // c is this goroutine's meanwhile
				defer close(done)
				if r, err := c.Read(); err == nil {
					done <- r
				}
			}()
			served := 0
			for waiting := true; waiting; {
				select {
				case r := <-done:
					waiting = false
					if r == nil || r.ID != id || r.Reason() != "unavailable none" || mode == "worker-queue" && !strings.Contains(r.Error.Message, "locked by another session") {
						t.Errorf("while it is locked: %+v", r)
					}
				default:
					other.Allocate("other", "")
					served++
				}
			}
			if took := time.Since(asked); took < time.Second || took > 10*time.Second {
				t.Errorf("it was refused after %v", took)
			}
			if served < 20 { // they would wait as long as the lock lasts
				t.Errorf("only %d requests of another signer were served meanwhile", served)
			}
			unlock()
			if got := c.Allocate(e2e.Account, ""); got.Nonce != 2 {
				t.Errorf("afterwards %+v, want nonce 2", got)
			}
			e2e.Consistent(t, db)
		})
	}
}

// A store that answers, and refuses, looks well to /readyz and to the heartbeat.
func TestWhatTheStoreRefusesIsInTheLog(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := e2e.Database(t)
			p := e2e.Launch(t, "--store="+db, "--mode="+mode)
			c := p.Connect()
			table := "signer"
			e2e.Execute(t, db, `ALTER TABLE `+table+` RENAME TO hidden`)
			for _, r := range []*e2e.Reply{
				c.Want("unavailable none", wire.MethodAllocate, e2e.Allocation(e2e.Account, "")),
				c.Want("unavailable none", wire.MethodStatus, fmt.Sprintf("[%q]", e2e.Account)),
			} {
				if !strings.Contains(r.Error.Message, "the store refused it") {
					t.Errorf("clients are told %q", r.Error.Message)
				}
			}
			p.Says(`relation \"` + table + `\" does not exist`)
			log := p.Printed()
			if n := strings.Count(log, "the store does not do what requests need"); n != 1 {
				t.Errorf("the log says why %d times:\n%s", n, log)
			}
		})
	}
}
