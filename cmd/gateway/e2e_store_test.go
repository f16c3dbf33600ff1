//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/wire"
)

func TestADatabaseThatWentBackStopsASignerUntilItHasASafeFloor(t *testing.T) {
	t.Parallel()
	db := database(t)
	p := launch(t, "--store="+db, "--lease-ttl=10m")
	c := p.connect()
	lose := loseLater(t, db, c)
	for range 2 {
		c.allocate(account, "")
	}
	for range 3 {
		c.allocate("bystander", "")
	}
	lose()
	floor := func(n int64) string { return fmt.Sprintf(`{"signer":%q,"floor":%d}`, account, n) }
	for range 2 {
		c.want("unavailable none", wire.MethodAllocate, allocation(account, ""))
		c.want("unavailable none", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":2,"txHash":%q}`, account, hash))
		c.want("unavailable none", wire.MethodSetFloor, floor(2)) // below what was handed out
	}
	if got := decode[wire.StatusResult](t, c.want("ok", wire.MethodStatus, `[`+fmt.Sprintf("%q", account)+`]`)); got.Next != 1 {
		t.Errorf("the status hides what the store has: %+v", got)
	}
	if got := c.allocate("bystander", ""); got.Nonce != 3 {
		t.Errorf("another signer: %+v", got)
	}
	if !p.metric("noncegate_store_went_back_total 1") {
		t.Error("there was no alarm")
	}
	p.says(`"level":"ERROR","msg":"the store went back`)

	c.want("ok", wire.MethodSetFloor, floor(3))
	if got := c.allocate(account, ""); got.Nonce != 3 || got.Attempt != 1 {
		t.Errorf("with a safe floor: %+v, want nonce 3", got)
	}
	consistent(t, db)
}

// loseLater lets a client allocate for account, and returns what loses all commits for it that
// come then, as a failover does.
func loseLater(t *testing.T, db string, c *peer) (lose func()) {
	t.Helper()
	c.allocate(account, "")
	execute(t, db, `CREATE TABLE before AS SELECT * FROM signer WHERE signer = '`+account+`'`)
	return func() {
		execute(t, db, `UPDATE signer s SET version = b.version, next_nonce = b.next_nonce, live = b.live FROM before b WHERE b.signer_id = s.signer_id`,
			`DROP TABLE before`)
	}
}

func TestAHeartbeatThatWentBackStopsTheNode(t *testing.T) {
	t.Parallel()
	for name, loss := range map[string]string{
		"the heartbeat was lost": `UPDATE gateway_node SET counter = 0`,
		"everything is gone":     `TRUNCATE gateway_node, signer, signer_history, signer_request, signer_due; UPDATE shard SET owner_node = '', owner_incarnation = 0, fencing_token = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			db := database(t)
			p := launch(t, "--store="+db, "--lease-ttl=1s")
			c := p.connect()
			c.allocate(account, "")
			p.await("two heartbeats", func() bool { return rows(t, db, `SELECT 1 FROM gateway_node WHERE counter > 1`) != "" })
			execute(t, db, loss)
			p.await("/readyz to fail", func() bool { code, _ := p.get("/readyz"); return code == 503 })
			if _, body := p.get("/readyz"); !strings.Contains(body, "the store went back") {
				t.Errorf("/readyz: %s", body)
			}
			before := everything(t, db)
			c.want("unavailable none", wire.MethodAllocate, allocation(account, ""))
			c.want("unavailable none", wire.MethodAllocate, allocation("another", ""))
			c.want("unavailable none", wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":9}`, account))
			if after := everything(t, db); after != before {
				t.Errorf("it wrote after that\nbefore\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func TestARowLockedByAnOutsiderHoldsUpItsOwnSignerOnly(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := database(t)
			p := launch(t, "--store="+db, "--mode="+mode, "--workers=1", "--max-holds=4096")
			c, other := p.connect(), p.connect()
			c.allocate(account, "")
			other.allocate("other", "")

			outsider := dial(t, db)
			lock := func() func() {
				tx, err := outsider.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(t.Context(), `SELECT 1 FROM `+"signer"+` WHERE signer = $1 FOR UPDATE`, account); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}

			unlock := lock()
			id := c.send(wire.MethodAllocate, allocation(account, ""))
			for range 20 {
				other.allocate("other", "")
			}
			unlock()
			if r := c.answer(id); r.Error != nil {
				t.Errorf("when the lock is gone: %v", r.Error)
			}

			unlock = lock()
			asked := time.Now()
			id = c.send(wire.MethodAllocate, allocation(account, ""))
			done := make(chan *reply)
			go func() { // c is this goroutine's meanwhile
				defer close(done)
				if r, err := c.read(); err == nil {
					done <- r
				}
			}()
			served := 0
			for waiting := true; waiting; {
				select {
				case r := <-done:
					waiting = false
					if r == nil || r.ID != id || r.reason() != "unavailable none" || mode == "worker-queue" && !strings.Contains(r.Error.Message, "locked by another session") {
						t.Errorf("while it is locked: %+v", r)
					}
				default:
					other.allocate("other", "")
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
			if got := c.allocate(account, ""); got.Nonce != 2 {
				t.Errorf("afterwards %+v, want nonce 2", got)
			}
			consistent(t, db)
		})
	}
}

// A store that answers, and refuses, looks well to /readyz and to the heartbeat.
func TestWhatTheStoreRefusesIsInTheLog(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := database(t)
			p := launch(t, "--store="+db, "--mode="+mode)
			c := p.connect()
			table := "signer"
			execute(t, db, `ALTER TABLE `+table+` RENAME TO hidden`)
			for _, r := range []*reply{
				c.want("unavailable none", wire.MethodAllocate, allocation(account, "")),
				c.want("unavailable none", wire.MethodStatus, fmt.Sprintf("[%q]", account)),
			} {
				if !strings.Contains(r.Error.Message, "the store refused it") {
					t.Errorf("clients are told %q", r.Error.Message)
				}
			}
			p.says(`relation \"` + table + `\" does not exist`)
			log := p.log.String()
			if n := strings.Count(log, "the store does not do what requests need"); n != 1 {
				t.Errorf("the log says why %d times:\n%s", n, log)
			}
		})
	}
}
