//go:build unix

package stores

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"noncegate/test/lab/expect"
	"noncegate/wire"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/e2e"
)

// markUsed marks a nonce used at its first attempt.
func markUsed(c *e2e.Peer, signer string, nonce int64) {
	c.Helper()
	c.Want("ok", wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, e2e.Hash))
}

// used hands out nonces of a signer, one after another, and marks the first ones used.
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
	expect.Must(t, err)
	_, err = db.Exec(`UPDATE signer_history SET at = at - 120000`)
	expect.Must(t, db.Close())
	expect.Must(t, err)

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
