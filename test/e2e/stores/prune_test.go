//go:build unix

package stores

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"noncegate/wire"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/e2e"
)

// markUsed marks a nonce used at its first attempt.
func markUsed(c *e2e.Peer, signer string, nonce int64) {
	c.Helper()
	c.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, e2e.Hash))
}

// used hands out nonces of a signer, one after another, and marks the first ones
// used.
func used(c *e2e.Peer, signer string, n, used int64) {
	c.Helper()
	for i := range n {
		if got := c.Allocate(signer, fmt.Sprint("id-", i)); got.Nonce != i {
			c.Fatalf("got nonce %d, want %d", got.Nonce, i)
		}
		if i < used {
			markUsed(c, signer, i)
		}
	}
}

// left are the nonces of a signer that have a row, and what its status says.
func left(c *e2e.Peer, signer string) (nonces []int64, status wire.StatusResult) {
	c.Helper()
	page := e2e.Decode[wire.ListResult](c, c.Want("ok", wire.MethodList, fmt.Sprintf(`{"signer":%q,"limit":1000}`, signer)))
	for _, a := range page.Allocations {
		nonces = append(nonces, a.Nonce)
	}
	return nonces, e2e.Decode[wire.StatusResult](c, c.Want("ok", wire.MethodStatus, fmt.Sprintf(`[%q]`, signer)))
}

// TestLongOldConsumedAllocationsArePrunedWhileClientsWork: rows are made old behind
// the gateway's back, because no test waits for a retention.
func TestLongOldConsumedAllocationsArePrunedWhileClientsWork(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"worker-queue", "basic"} {
		t.Run(mode, func(t *testing.T) {
			db := e2e.Database(t)
			args := []string{"--store=" + db, "--node-id=n", "--mode=" + mode, "--consumed-retention=1m", "--max-holds=4096", "--hold-ttl=10m", "--lease-ttl=10m"}
			p := e2e.Launch(t, args...)
			c := p.Connect()
			used(c, e2e.Account, 300, 290)
			used(c, "idle", 2, 2)
			crowd := p.Crowd(t.Context(), 4)
			crowd.Reach(100)
			e2e.Execute(t, db, `UPDATE signer_history SET at = at - 120000`)
			p.Await("the pruning", func() bool { return p.Metric("noncegate_pruned_total 292") })
			crowd.Reach(200)
			p.Signal(syscall.SIGKILL)
			crowd.All.Wait()
			p.Exit()
			crowd.Only("ok")
			e2e.ConsistentButPruned(t, db)

			c = e2e.Launch(t, args...).Connect()
			nonces, status := left(c, e2e.Account)
			if len(nonces) != 10 || nonces[0] != 290 || status.Next != 300 || status.Held != 10 || status.Consumed != 290 {
				t.Errorf("after the restart: rows %v, %+v", nonces, status)
			}
			c.Want("conflict", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":5,"txHash":%q}`, e2e.Account, e2e.Hash))
			c.Want("conflict", wire.MethodAllocate, e2e.Allocation(e2e.Account, "id-5"))
			if got := c.Allocate(e2e.Account, "id-295"); got.Nonce != 295 {
				t.Errorf("a hold that still runs is answered with %d", got.Nonce)
			}
			if got := c.Allocate(e2e.Account, ""); got.Nonce != 300 {
				t.Errorf("the next one is %d", got.Nonce)
			}
			if got := c.Allocate("idle", ""); got.Nonce != 2 {
				t.Errorf("the next one of an idle signer is %d", got.Nonce)
			}
		})
	}
}

func TestLongASignerOfAStoppedGatewayIsPrunedByTheNextStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.db")
	args := []string{"--store=sqlite:" + path, "--node-id=n", "--consumed-retention=1m"}
	p := e2e.Launch(t, args...)
	used(p.Connect(), e2e.Account, 5, 3)
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(); code != e2e.ExitOK {
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

	p = e2e.Launch(t, args...)
	p.Await("the pruning", func() bool { return p.Metric("noncegate_pruned_total 3") })
	c := p.Connect()
	nonces, status := left(c, e2e.Account)
	owner := "n" // of the signer's shard; of the signer
	if len(nonces) != 2 || nonces[0] != 3 || status.Consumed != 3 || status.Owner != owner {
		t.Errorf("rows %v, %+v", nonces, status)
	}
	if got := c.Allocate(e2e.Account, ""); got.Nonce != 5 {
		t.Errorf("the next one is %d", got.Nonce)
	}
}
