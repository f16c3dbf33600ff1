//go:build unix

package nodes

import (
	"maps"
	"syscall"
	"testing"
	"time"

	"noncegate/test/e2e"
)

// The times in this file are logged for whoever wants to know. None fails a test.

func TestLongTheSignersOfANodeThatWasKilledAreServedElsewhereWhenTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	f := e2e.ServeEach(t, "a b c", "--lease-ttl="+ttl.String())
	crowding := make(chan struct{})
	load := f.Crowd(crowding, 6)
	toB, toC := f.Nodes["b"].Connect(), f.Nodes["c"].Connect()
	signers := e2e.OwnedBy(e2e.Owners(toB, e2e.Signers("account", 30)), "a")
	if len(signers) == 0 {
		t.Fatal("a owns nothing")
	}
	load.Reach(200)
	e2e.Owners(toB, signers) // as late as possible: the leases end a TTL after this
	f.Nodes["a"].Signal(syscall.SIGKILL)
	killed := time.Now()
	// What is under way just now may have happened; after that nothing was sent.
	atB, slowest := e2e.ServeAgain(toB, signers, killed, "unavailable none", "unavailable unknown")
	load.Reach(200)
	close(crowding)
	load.All.Wait()
	load.Only("ok", "unavailable none", "unavailable unknown")
	t.Logf("%d signers of the node that was killed, lease TTL %v: all served again after %v; slowest answer meanwhile %v", len(signers), ttl, atB, slowest)
	for s, o := range e2e.Owners(toC, signers) { // the leases of what was served again may have ended
		if o != "b" && o != "c" {
			t.Errorf("%s is owned by %q", s, o)
		}
	}
	if took := f.Nodes["b"].Value(`noncegate_lease_acquire_total{result="takeover"}`) + f.Nodes["c"].Value(`noncegate_lease_acquire_total{result="takeover"}`); took == 0 {
		t.Error("nothing was taken over")
	}
	f.Drop("a")
	load.Kept(f.DB)
}

func TestTheSignersOfANodeThatDrainsAreServedElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b", "--lease-ttl=10m", "--drain-timeout=10s")
	toB := f.Nodes["b"].Connect()
	all := e2e.Signers("account", 60)
	e2e.Owners(toB, all)
	// Some of the shards that a owns go to c now.
	f.Launch("c")
	f.Linked()
	toC := f.Nodes["c"].Connect()
	owner := e2e.Owners(toB, all)
	signers := e2e.OwnedBy(owner, "a")
	if !maps.Equal(owner, e2e.Owners(toC, all)) {
		t.Fatal("b and c do not agree who owns what")
	}
	f.Nodes["a"].Signal(syscall.SIGTERM)
	told := time.Now()
	half := len(signers) / 2
	first, slowest := e2e.ServeAgain(toB, signers[:half], told) // no refusal is right
	// The other half is asked for when a is gone for good: nobody has told b and c
	// of these that their owner went, and the leases would have run for minutes.
	f.Nodes["a"].Ends()
	began := time.Now()
	later, slowestLater := e2e.ServeAgain(toC, signers[half:], began)
	t.Logf("%d signers of the node that drains: %v after the signal; slowest answer %v. %d when it has gone: %v, slowest %v",
		half, first, slowest, len(signers)-half, later, slowestLater)
	if n := f.Nodes["b"].Value(`noncegate_lease_acquire_total{result="takeover"}`); n != 0 {
		t.Errorf("%v leases had to be waited for", n)
	}
	e2e.Consistent(t, f.DB)
}
