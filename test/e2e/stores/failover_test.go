//go:build unix

package stores

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"noncegate/test/e2e"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/pgtest"
	"noncegate/wire"
)

// replicated starts a primary with a replica that follows it asynchronously, and returns them with the URL that names both.
func replicated(t *testing.T) (primary, replica *pgtest.Server, both string) {
	t.Helper()
	primary, err := pgtest.Start()
	expect.Must(t, err)
	t.Cleanup(func() { _ = primary.Close() })
	e2e.MigrateFor(t, primary.URL("postgres"))
	if replica, err = primary.Standby(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = replica.Close() })
	u, err := url.Parse(primary.URL("postgres"))
	expect.Must(t, err)
	u.Host += "," + replica.Addr()
	return primary, replica, u.String()
}

// TestLongAFailoverThatLostWritesIsNoticedAndComeBackFrom is the runbook "The database went
// back" of docs/runbooks.md, with a real standby that is promoted.
func TestLongAFailoverThatLostWritesIsNoticedAndComeBackFrom(t *testing.T) {
	primary, replica, both := replicated(t)
	// One node, which remembers all signers: what another one takes over is not compared.
	a := e2e.Launch(t, "--store="+both, "--node-id=a", "--lease-ttl=2s")
	toA := a.Connect()
	for range 3 {
		toA.Allocate(e2e.Account, "")
		toA.Allocate("bystander", "")
	}
	expect.Must(t, replica.Follows(t.Context(), primary))
	expect.Must(t, replica.Unfollow(t.Context()))
	lost := toA.Allocate(e2e.Account, "lost") // and acknowledged
	unseen := toA.Allocate("unseen", "")      // of a signer that the replica has never heard of
	expect.Must(t, primary.Kill())
	expect.Must(t, replica.Promote(t.Context()))

	// Whoever asks for what was lost is refused until somebody says what is safe: with the signer alone, or the whole node.
	a.Await("the node to find the new primary", func() bool {
		code, body := a.Get("/readyz")
		return code == 200 || strings.Contains(body, "the store went back")
	})
	for _, signer := range []string{e2e.Account, "unseen", e2e.Account} {
		if r := toA.Call(wire.MethodAllocate, e2e.Allocation(signer, "")); r.Error == nil {
			t.Fatalf("it handed out %s after it was lost", r.Result)
		} else if r.Reason() != "unavailable none" && r.Reason() != "unavailable unknown" {
			t.Fatal(r.Error)
		}
	}
	a.Await("an alarm", func() bool {
		log := a.Printed()
		return strings.Contains(log, `"level":"ERROR","msg":"the store went back`) || strings.Contains(log, "this node stopped serving")
	})

	// 1: stop all. 3: one node where no client is, and floors above all that was given.
	a.Signal(syscall.SIGTERM)
	a.Exit()
	alone := e2e.Launch(t, "--store="+both, "--node-id=floors")
	c := alone.Connect()
	for signer, floor := range map[string]int64{e2e.Account: lost.Nonce + 1, "bystander": 3, "unseen": unseen.Nonce + 1} {
		alone.Await("the floor of "+signer, func() bool { // where a lease of a still runs
			return c.Call(wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":%d}`, signer, floor)).Error == nil
		})
	}
	alone.Signal(syscall.SIGTERM)
	if code := alone.Exit(); code != 0 {
		t.Errorf("the node for floors ended with %d", code)
	}
	// 4: the nodes as usual.
	again := e2e.Launch(t, "--store="+both, "--node-id=a").Connect()
	for signer, floor := range map[string]int64{e2e.Account: lost.Nonce + 1, "bystander": 3, "unseen": unseen.Nonce + 1} {
		if got := again.Allocate(signer, ""); got.Nonce != floor {
			t.Errorf("%s is given %d, want %d", signer, got.Nonce, floor)
		}
	}
	if got := again.Allocate(e2e.Account, "lost"); got.Nonce <= lost.Nonce {
		t.Errorf("the request id that was lost is given %d, which somebody may hold", got.Nonce)
	}
	e2e.Consistent(t, replica.URL("postgres"))
}
