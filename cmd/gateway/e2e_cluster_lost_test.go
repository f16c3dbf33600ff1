//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"noncegate/wire"
)

// The times in this file are logged for whoever wants to know. What fails a test is
// several times as long, because the machine may be busy with something else.

// atOnce is the longest that a refusal may take which nobody has to wait for.
const atOnce = 1500 * time.Millisecond

// serveAgain asks for one signer after the other until each was given a nonce, and
// returns how long after began the last was, and the longest time of an answer. A
// refusal must be one of reasons.
func serveAgain(c *peer, signers []string, began time.Time, reasons ...string) (last, slowest time.Duration) {
	c.Helper()
	left := slices.Clone(signers)
	await(c, "signers to be served again", func() bool {
		left = slices.DeleteFunc(left, func(s string) bool {
			asked := time.Now()
			r := c.call(wire.MethodAllocate, allocation(s, ""))
			slowest = max(slowest, time.Since(asked))
			if r.Error != nil && !slices.Contains(reasons, r.reason()) {
				c.Fatalf("%s: %v", s, r.Error)
			}
			return r.Error == nil
		})
		return len(left) == 0
	})
	return time.Since(began), slowest
}

func TestLongTheSignersOfANodeThatWasKilledAreServedElsewhereWhenTheirLeasesEnd(t *testing.T) {
	t.Parallel()
	ttl := 3 * time.Second
	longest := ttl + time.Second
	f := serveEach(t, "a b c", "--lease-ttl="+ttl.String())
	crowding := make(chan struct{})
	load := f.crowd(crowding, 6)
	toB, toC := f.nodes["b"].connect(), f.nodes["c"].connect()
	signers := of(owners(toB, named("account", 30)), "a")
	if len(signers) == 0 {
		t.Fatal("a owns nothing")
	}
	load.reach(200)
	owners(toB, signers) // as late as possible: the leases end a TTL after this
	f.nodes["a"].signal(syscall.SIGKILL)
	killed := time.Now()
	// What is under way just now may have happened; after that nothing was sent.
	atB, slowest := serveAgain(toB, signers, killed, "unavailable none", "unavailable unknown")
	load.reach(200)
	close(crowding)
	load.all.Wait()
	load.only("ok", "unavailable none", "unavailable unknown")
	t.Logf("%d signers of the node that was killed, lease TTL %v: all served again after %v; slowest answer meanwhile %v", len(signers), ttl, atB, slowest)
	if atB > longest || slowest > atOnce {
		t.Errorf("it took %v, and the slowest answer meanwhile %v", atB, slowest)
	}
	for s, o := range owners(toC, signers) { // the leases of what was served again may have ended
		if o != "b" && o != "c" {
			t.Errorf("%s is owned by %q", s, o)
		}
	}
	if took := f.nodes["b"].value(`noncegate_lease_acquire_total{result="takeover"}`) + f.nodes["c"].value(`noncegate_lease_acquire_total{result="takeover"}`); took == 0 {
		t.Error("nothing was taken over")
	}
	f.drop("a")
	kept(t, f.db, load)
}

// kept fails the test unless all that a crowd was told is in the database, and
// beyond that at most the last request of each connection that ended. Nodes give
// request ids of their own to what they forward; those are left out.
func kept(t testing.TB, db string, c *crowd) {
	t.Helper()
	text := query(t, db, `
		SELECT format('%s %s %s', s.signer, g.nonce, g.attempt) AS what, g.request_id FROM given g JOIN signers s USING (signer_id)
		WHERE g.request_id LIKE 'r-%'`)
	stored := make(map[string]bool)
	for line := range strings.Lines(text) {
		stored[strings.TrimSpace(line)] = true
	}
	for what, id := range c.given {
		if line := fmt.Sprintf("(%q,%s)", what, id); !stored[line] {
			t.Errorf("%s was answered and is not in the store", line)
		}
	}
	if more := len(stored) - len(c.given); more < 0 || more > len(c.ended) {
		t.Errorf("%d are in the store, %d were answered, %d connections ended", len(stored), len(c.given), len(c.ended))
	}
	consistent(t, db)
}

// TestLongASignerFirstAskedForShortlyBeforeItsDeadOwnersLeaseEndsIsServedThen: a node that
// only then hears who the owner was is not told how long the lease still runs, and
// must not wait for a whole one.
func TestLongASignerFirstAskedForShortlyBeforeItsDeadOwnersLeaseEndsIsServedThen(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Second
	f := serveEach(t, "a b c", "--lease-ttl="+ttl.String())
	toB, toC := f.nodes["b"].connect(), f.nodes["c"].connect()
	signers := of(owners(f.nodes["a"].connect(), named("account", 30)), "a")
	f.nodes["a"].signal(syscall.SIGKILL)
	killed := time.Now()
	f.nodes["a"].exit()
	await(t, "b and c to have lost their links to a", func() bool {
		return f.nodes["b"].value("noncegate_peers_linked") == 1 && f.nodes["c"].value("noncegate_peers_linked") == 1
	})
	await(t, "the leases to end soon", func() bool {
		until := statusOf(toB, signers[0]).LeaseUntil
		return until == nil || time.Until(time.Time(*until)) < ttl/5
	})
	var both sync.WaitGroup
	both.Go(func() { serveAgain(toC, signers, killed, "unavailable none") })
	took, slowest := serveAgain(toB, signers, killed, "unavailable none")
	both.Wait()
	t.Logf("lease TTL %v: all served again %v after the kill; slowest answer meanwhile %v", ttl, took, slowest)
	if took > ttl+2*time.Second {
		t.Errorf("it took %v", took)
	}
	consistent(t, f.db)
}

func TestTheSignersOfANodeThatDrainsAreServedElsewhereAtOnce(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b", "--lease-ttl=10m", "--drain-timeout=10s")
	toB := f.nodes["b"].connect()
	all := named("account", 60)
	owners(toB, all)
	// Some of the shards that a owns go to c now.
	f.launch("c")
	f.linked()
	toC := f.nodes["c"].connect()
	owner := owners(toB, all)
	signers := of(owner, "a")
	if !maps.Equal(owner, owners(toC, all)) {
		t.Fatal("b and c do not agree who owns what")
	}
	f.nodes["a"].signal(syscall.SIGTERM)
	told := time.Now()
	half := len(signers) / 2
	first, slowest := serveAgain(toB, signers[:half], told) // no refusal is right
	// The other half is asked for when a is gone for good: nobody has told b and c
	// of these that their owner went, and the leases would have run for minutes.
	if code := f.nodes["a"].exit(); code != exitOK {
		t.Errorf("a ended with %d", code)
	}
	began := time.Now()
	later, slowestLater := serveAgain(toC, signers[half:], began)
	t.Logf("%d signers of the node that drains: %v after the signal; slowest answer %v. %d when it has gone: %v, slowest %v",
		half, first, slowest, len(signers)-half, later, slowestLater)
	if max(slowest, slowestLater) > atOnce {
		t.Errorf("the slowest answer took %v", max(slowest, slowestLater))
	}
	if n := f.nodes["b"].value(`noncegate_lease_acquire_total{result="takeover"}`); n != 0 {
		t.Errorf("%v leases had to be waited for", n)
	}
	consistent(t, f.db)
}

// TestLongAPausedOwnerLosesItsSignersToTheOthersAndServesOnWhenItWakes: its own clients
// wait for it, those of other nodes until it counts as lost. Then they are served
// elsewhere, with what they had asked for done once, or not known to be done.
func TestLongAPausedOwnerLosesItsSignersToTheOthersAndServesOnWhenItWakes(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c", "--forward-timeout=2s")
	toA, toB := f.nodes["a"].connect(), f.nodes["b"].connect()
	signers := of(owners(toB, named("account", 20)), "a")
	if len(signers) < 2 {
		t.Fatal("a owns too little")
	}
	owners(toA, signers) // now each has handed out 0 and 1
	f.nodes["a"].pause()
	paused := time.Now()
	atA := make(map[string]int64)
	for _, s := range signers {
		atA[s] = toA.send(wire.MethodAllocate, allocation(s, "at-a-"+s))
	}
	var late []int64
	for _, s := range signers {
		late = append(late, toB.send(wire.MethodAllocate, allocation(s, "")), toB.send(wire.MethodMarkUsed, mark(s, 0)))
	}
	for _, id := range late {
		if r := toB.answer(id); r.Error != nil && r.reason() != "unavailable unknown" && r.reason() != "unavailable none" {
			t.Errorf("a request that was under way was answered %v", r.Error)
		}
	}
	underWay := time.Since(paused)
	took, slowest := serveAgain(toB, signers, paused, "unavailable none")
	t.Logf("owner paused, forward timeout 2 s, lease TTL 1 s: what was under way was answered after %v, all signers served again after %v, slowest answer then %v",
		underWay, took, slowest)
	if took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	f.nodes["a"].signal(syscall.SIGCONT)
	for s, id := range atA {
		// a notices that it was fenced, and routes what its own client asked for, as soon
		// as it has its links to the others again.
		r := toA.answer(id)
		if r.reason() == "unavailable none" || r.reason() == "unavailable unknown" {
			toB.allocate(s, "at-a-"+s)
			continue
		}
		if r.Error != nil {
			t.Errorf("%s: a client of the paused node was told %v", s, r.Error)
			continue
		}
		if again := toB.allocate(s, "at-a-"+s); again.Nonce != decode[wire.AllocateResult](t, r).Nonce {
			t.Errorf("%s: repeated at b it is nonce %d", s, again.Nonce)
		}
	}
	f.linked()
	touch(toA, signers)
	touch(toB, signers)
	consistent(t, f.db)
	if twice := query(t, f.db, `SELECT signer_id, request_id, count(*) FROM given GROUP BY 1, 2 HAVING count(*) <> 1`); twice != "" {
		t.Errorf("requests with several nonces: %s", twice)
	}
}

func TestLongAPostgresThatIsGoneIsSaidAtOnceByEveryNodeAndFoundAgainByEach(t *testing.T) {
	f := serveEach(t, "a b c=basic")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	load := f.crowd(ctx.Done(), 6)
	conns := f.connectEach()
	signers := named("account", 8)
	owners(conns["a"], signers)
	load.reach(200)
	if err := pg.Kill(); err != nil {
		t.Fatal(err)
	}
	var slowest time.Duration
	const rounds = 8
	for i := range rounds {
		for _, s := range signers {
			for name, c := range conns {
				asked := time.Now()
				r := c.call(wire.MethodAllocate, allocation(s, ""))
				slowest = max(slowest, time.Since(asked))
				// What went into a connection that is broken may have been sent.
				if why := r.reason(); why != "unavailable none" && (why != "unavailable unknown" || i == rounds-1) {
					t.Errorf("%s without a store: %s %v", name, why, r.Error)
				}
			}
		}
	}
	if err := pg.Restart(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for name, c := range conns {
		took, _ := serveAgain(c, signers, back, "unavailable none")
		t.Logf("%s served every signer %v after the store was back", name, took)
	}
	t.Logf("slowest refusal without a store: %v", slowest)
	if slowest > 3*time.Second {
		t.Errorf("a refusal took %v", slowest)
	}
	load.reach(200)
	cancel()
	load.all.Wait()
	load.only("ok", "unavailable none", "unavailable unknown")
	kept(t, f.db, load)
}
