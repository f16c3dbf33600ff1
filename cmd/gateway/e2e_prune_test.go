//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"noncegate/wire"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// markUsed marks a nonce used at its first attempt.
func (c *peer) markUsed(signer string, nonce int64) {
	c.Helper()
	c.want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, hash))
}

// used hands out nonces of a signer, one after another, and marks the first ones
// used.
func (c *peer) used(signer string, n, used int64) {
	c.Helper()
	for i := range n {
		if got := c.allocate(signer, fmt.Sprint("id-", i)); got.Nonce != i {
			c.Fatalf("got nonce %d, want %d", got.Nonce, i)
		}
		if i < used {
			c.markUsed(signer, i)
		}
	}
}

// left are the nonces of a signer that have a row, and what its status says.
func (c *peer) left(signer string) (nonces []int64, status wire.StatusResult) {
	c.Helper()
	page := decode[wire.ListResult](c, c.want("ok", wire.MethodList, fmt.Sprintf(`{"signer":%q,"limit":1000}`, signer)))
	for _, a := range page.Allocations {
		nonces = append(nonces, a.Nonce)
	}
	return nonces, decode[wire.StatusResult](c, c.want("ok", wire.MethodStatus, fmt.Sprintf(`[%q]`, signer)))
}

// TestLongOldConsumedAllocationsArePrunedWhileClientsWork: rows are made old behind
// the gateway's back, because no test waits for a retention.
func TestLongOldConsumedAllocationsArePrunedWhileClientsWork(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := database(t)
			args := []string{"--store=" + db, "--node-id=n", "--mode=" + mode, "--consumed-retention=1m", "--max-holds=4096", "--hold-ttl=10m", "--lease-ttl=10m"}
			p := launch(t, args...)
			c := p.connect()
			c.used(account, 300, 290)
			c.used("idle", 2, 2)
			crowd := p.crowd(t.Context(), 4)
			crowd.reach(100)
			execute(t, db, `UPDATE signer_history SET at = at - 120000`)
			p.await("the pruning", func() bool { return p.metric("noncegate_pruned_total 292") })
			crowd.reach(200)
			p.signal(syscall.SIGKILL)
			crowd.all.Wait()
			p.exit()
			crowd.only("ok")
			consistentButPruned(t, db)

			c = launch(t, args...).connect()
			nonces, status := c.left(account)
			if len(nonces) != 10 || nonces[0] != 290 || status.Next != 300 || status.Held != 10 || status.Consumed != 290 {
				t.Errorf("after the restart: rows %v, %+v", nonces, status)
			}
			c.want("conflict", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":5,"txHash":%q}`, account, hash))
			c.want("conflict", wire.MethodAllocate, allocation(account, "id-5"))
			if got := c.allocate(account, "id-295"); got.Nonce != 295 {
				t.Errorf("a hold that still runs is answered with %d", got.Nonce)
			}
			if got := c.allocate(account, ""); got.Nonce != 300 {
				t.Errorf("the next one is %d", got.Nonce)
			}
			if got := c.allocate("idle", ""); got.Nonce != 2 {
				t.Errorf("the next one of an idle signer is %d", got.Nonce)
			}
		})
	}
}

func TestLongASignerOfAStoppedGatewayIsPrunedByTheNextStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.db")
	args := []string{"--store=sqlite:" + path, "--node-id=n", "--consumed-retention=1m"}
	p := launch(t, args...)
	p.connect().used(account, 5, 3)
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != exitOK {
		t.Fatalf("exit %d", code)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(`UPDATE signer_history SET at = at - 120000`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}

	p = launch(t, args...)
	p.await("the pruning", func() bool { return p.metric("noncegate_pruned_total 3") })
	c := p.connect()
	nonces, status := c.left(account)
	owner := "n" // of the signer's shard; of the signer
	if len(nonces) != 2 || nonces[0] != 3 || status.Consumed != 3 || status.Owner != owner {
		t.Errorf("rows %v, %+v", nonces, status)
	}
	if got := c.allocate(account, ""); got.Nonce != 5 {
		t.Errorf("the next one is %d", got.Nonce)
	}
}
