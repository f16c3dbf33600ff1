//go:build unix

package stores

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"noncegate/test/lab/expect"
	"noncegate/wire"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"noncegate/test/e2e"
)

func TestLongASignerOfAStoppedGatewayIsPrunedByTheNextStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.db")
	args := []string{"--store=sqlite:" + path, "--node-id=n", "--consumed-retention=1m"}
	p := e2e.Launch(t, args...)
	c := p.Connect()
	for i := range int64(5) {
		if c.Allocate(e2e.Account, ""); i < 3 {
			c.Want("ok", wire.MethodMarkUsed, e2e.Mark(e2e.Account, i))
		}
	}
	p.Stop()
	db, err := sql.Open("sqlite", path)
	expect.Must(t, err)
	_, err = db.Exec(`UPDATE signer_history SET at = at - 120000`)
	expect.Must(t, errors.Join(err, db.Close()))

	p = e2e.Launch(t, args...)
	p.Await("the pruning", func() bool { return p.Metric("noncegate_pruned_total 3") })
	page := e2e.Decode[wire.ListResult](t, p.Connect().Want("ok", wire.MethodList, fmt.Sprintf(`{"signer":%q}`, e2e.Account)))
	if len(page.Allocations) != 2 || page.Allocations[0].Nonce != 3 {
		t.Errorf("rows %v", page.Allocations)
	}
}
