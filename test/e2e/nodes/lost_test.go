//go:build unix

package nodes

import (
	"context"
	"maps"
	"sync"
	"syscall"
	"testing"
	"time"

	"noncegate/test/e2e"
	"noncegate/wire"
)

// The times in this file are logged for whoever wants to know. What fails a test is
// several times as long, because the machine may be busy with something else.

func TestLongTheSignersOfANodeThatWasKilledAreServedElsewhereWhenTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	ttl := 3 * time.Second
	longest := ttl + time.Second
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
	if atB > longest || slowest > e2e.AtOnce {
		t.Errorf("it took %v, and the slowest answer meanwhile %v", atB, slowest)
	}
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

// TestLongASignerFirstAskedForShortlyBeforeItsDeadOwnersLeaseEndsIsServedThen: a node that
// only then hears who the owner was is not told how long the lease still runs, and
// must not wait for a whole one.
func TestLongASignerFirstAskedForShortlyBeforeItsDeadOwnersLeaseEndsIsServedThen(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	f := e2e.ServeEach(t, "a b c", "--lease-ttl="+ttl.String())
	toB, toC := f.Nodes["b"].Connect(), f.Nodes["c"].Connect()
	signers := e2e.OwnedBy(e2e.Owners(f.Nodes["a"].Connect(), e2e.Signers("account", 30)), "a")
	f.Nodes["a"].Signal(syscall.SIGKILL)
	killed := time.Now()
	f.Nodes["a"].Exit()
	e2e.Await(t, "b and c to have lost their links to a", func() bool {
		return f.Nodes["b"].Value("noncegate_peers_linked") == 1 && f.Nodes["c"].Value("noncegate_peers_linked") == 1
	})
	e2e.Await(t, "the leases to end soon", func() bool {
		until := e2e.StatusOf(toB, signers[0]).LeaseUntil
		return until == nil || time.Until(time.Time(*until)) < ttl/5
	})
	var both sync.WaitGroup
	both.Go(func() { e2e.ServeAgain(toC, signers, killed, "unavailable none") })
	took, slowest := e2e.ServeAgain(toB, signers, killed, "unavailable none")
	both.Wait()
	t.Logf("lease TTL %v: all served again %v after the kill; slowest answer meanwhile %v", ttl, took, slowest)
	if took > ttl+2*time.Second {
		t.Errorf("it took %v", took)
	}
	e2e.Consistent(t, f.DB)
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
	if max(slowest, slowestLater) > e2e.AtOnce {
		t.Errorf("the slowest answer took %v", max(slowest, slowestLater))
	}
	if n := f.Nodes["b"].Value(`noncegate_lease_acquire_total{result="takeover"}`); n != 0 {
		t.Errorf("%v leases had to be waited for", n)
	}
	e2e.Consistent(t, f.DB)
}

// TestLongAPausedOwnerLosesItsSignersToTheOthersAndServesOnWhenItWakes: its own clients
// wait for it, those of other nodes until it counts as lost. Then they are served
// elsewhere, with what they had asked for done once, or not known to be done.
func TestLongAPausedOwnerLosesItsSignersToTheOthersAndServesOnWhenItWakes(t *testing.T) {
	t.Parallel()
	f := e2e.ServeEach(t, "a b c", "--forward-timeout=2s")
	toA, toB := f.Nodes["a"].Connect(), f.Nodes["b"].Connect()
	signers := e2e.OwnedBy(e2e.Owners(toB, e2e.Signers("account", 20)), "a")
	if len(signers) < 2 {
		t.Fatal("a owns too little")
	}
	e2e.Owners(toA, signers) // now each has handed out 0 and 1
	f.Nodes["a"].Pause()
	paused := time.Now()
	atA := make(map[string]int64)
	for _, s := range signers {
		atA[s] = toA.Send(wire.MethodAllocate, e2e.Allocation(s, "at-a-"+s))
	}
	var late []int64
	for _, s := range signers {
		late = append(late, toB.Send(wire.MethodAllocate, e2e.Allocation(s, "")), toB.Send(wire.MethodMarkUsed, e2e.Mark(s, 0)))
	}
	for _, id := range late {
		if r := toB.Answer(id); r.Error != nil && r.Reason() != "unavailable unknown" && r.Reason() != "unavailable none" {
			t.Errorf("a request that was under way was answered %v", r.Error)
		}
	}
	underWay := time.Since(paused)
	took, slowest := e2e.ServeAgain(toB, signers, paused, "unavailable none")
	t.Logf("owner paused, forward timeout 2 s, lease TTL 1 s: what was under way was answered after %v, all signers served again after %v, slowest answer then %v",
		underWay, took, slowest)
	if took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	f.Nodes["a"].Signal(syscall.SIGCONT)
	for s, id := range atA {
		// a notices that it was fenced, and routes what its own client asked for, as soon
		// as it has its links to the others again.
		r := toA.Answer(id)
		if r.Reason() == "unavailable none" || r.Reason() == "unavailable unknown" {
			toB.Allocate(s, "at-a-"+s)
			continue
		}
		if r.Error != nil {
			t.Errorf("%s: a client of the paused node was told %v", s, r.Error)
			continue
		}
		if again := toB.Allocate(s, "at-a-"+s); again.Nonce != e2e.Decode[wire.AllocateResult](t, r).Nonce {
			t.Errorf("%s: repeated at b it is nonce %d", s, again.Nonce)
		}
	}
	f.Linked()
	e2e.Touch(toA, signers)
	e2e.Touch(toB, signers)
	e2e.Consistent(t, f.DB)
	if twice := e2e.Query(t, f.DB, `SELECT signer_id, request_id, count(*) FROM given GROUP BY 1, 2 HAVING count(*) <> 1`); twice != "" {
		t.Errorf("requests with several nonces: %s", twice)
	}
}

func TestLongAPostgresThatIsGoneIsSaidAtOnceByEveryNodeAndFoundAgainByEach(t *testing.T) {
	f := e2e.ServeEach(t, "a b c=basic")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load := f.Crowd(ctx.Done(), 6)
	conns := f.ConnectEach()
	signers := e2e.Signers("account", 8)
	e2e.Owners(conns["a"], signers)
	load.Reach(200)
	if err := e2e.PG.Kill(); err != nil {
		t.Fatal(err)
	}
	var slowest time.Duration
	const rounds = 8
	for i := range rounds {
		for _, s := range signers {
			for name, c := range conns {
				asked := time.Now()
				r := c.Call(wire.MethodAllocate, e2e.Allocation(s, ""))
				slowest = max(slowest, time.Since(asked))
				// What went into a connection that is broken may have been sent.
				if why := r.Reason(); why != "unavailable none" && (why != "unavailable unknown" || i == rounds-1) {
					t.Errorf("%s without a store: %s %v", name, why, r.Error)
				}
			}
		}
	}
	if err := e2e.PG.Restart(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for name, c := range conns {
		took, _ := e2e.ServeAgain(c, signers, back, "unavailable none")
		t.Logf("%s served every signer %v after the store was back", name, took)
	}
	t.Logf("slowest refusal without a store: %v", slowest)
	if slowest > 3*time.Second {
		t.Errorf("a refusal took %v", slowest)
	}
	load.Reach(200)
	cancel()
	load.All.Wait()
	load.Only("ok", "unavailable none", "unavailable unknown")
	load.Kept(f.DB)
}
