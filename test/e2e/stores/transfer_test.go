//go:build unix

package stores

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// Live accounts move from SQLite to PostgreSQL and back: their holds, request ids and cursors go on.
func TestAccountsMoveToAnotherStoreAndBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	stores := []string{"sqlite:" + file("a.db"), e2e.Database(t), "sqlite:" + file("b.db")}

	first := e2e.Launch(t, "--store="+stores[0])
	c := first.Connect()
	held := c.Allocate(e2e.Account, "kept")
	c.Allocate(e2e.Account, "")
	if o := e2e.Run(t, "export", file("running"), "--store="+stores[0]); o.Code != 0 || !strings.Contains(o.Stderr, "goes on handing out its nonces") {
		t.Fatalf("export beside the gateway: %+v", o)
	}
	if o := e2e.Run(t, "import", file("running"), "--store="+stores[0]); o.Code == 0 || !strings.Contains(o.Stderr, "in use") {
		t.Fatalf("import beside the gateway: %+v", o)
	}
	c.Want("ok", wire.MethodMarkUsed, e2e.Mark(e2e.Account, 1))
	first.Signal(syscall.SIGTERM)
	first.Exit()

	for i, store := range stores[1:] {
		kept := file("kept" + string(rune('0'+i)))
		if o := e2e.Run(t, "export", kept, "--history", "--store="+stores[i]); o.Code != 0 || o.Stdout != "" {
			t.Fatalf("export: %+v", o)
		}
		if o := e2e.Run(t, "import", kept, "--store="+store); o.Code != 0 || !strings.HasPrefix(o.Stderr, "imported 1 signers with ") {
			t.Fatalf("import: %+v", o)
		}
		if o := e2e.Run(t, "import", kept, "--store="+store); o.Code != 1 || !strings.Contains(o.Stderr, "nothing was imported: the store knows signer "+e2e.Account) {
			t.Fatalf("import again: %+v", o)
		}
		p := e2e.Launch(t, "--store="+store)
		c := p.Connect()
		if again := c.Allocate(e2e.Account, "kept"); again.Nonce != held.Nonce || again.Attempt != held.Attempt || again.HeldUntil != held.HeldUntil {
			t.Errorf("the request id is answered with %+v, and was with %+v", again, held)
		}
		if next := c.Allocate(e2e.Account, ""); next.Nonce != int64(2+i) {
			t.Errorf("the next nonce is %d, want %d", next.Nonce, 2+i)
		}
		used := e2e.Decode[wire.ListResult](t, c.Want("ok", wire.MethodList, `{"signer":"`+e2e.Account+`","status":"CONSUMED"}`))
		if len(used.Allocations) != 1 || used.Allocations[0].TxHash != e2e.Hash {
			t.Errorf("consumed are %+v", used.Allocations)
		}
		p.Signal(syscall.SIGTERM)
		p.Exit()
	}
	last := e2e.Launch(t, "--store="+stores[2]).Connect()
	last.Want("ok", wire.MethodMarkUsed, e2e.Mark(e2e.Account, held.Nonce))
}
