//go:build unix

package main

import (
	"maps"
	"syscall"
	"testing"
)

// touch asks for every signer, so that their leases go on.
func touch(c *peer, signers []string) {
	c.Helper()
	for _, s := range signers {
		c.allocate(s, "")
	}
}

// idle waits until nobody owns any of the signers.
func idle(c *peer, signers []string) {
	c.Helper()
	for _, s := range signers {
		await(c, "the lease of "+s+" to end", func() bool { return statusOf(c, s).Owner == "" })
	}
}

func TestANodeThatJoinsOrLeavesMovesOnlyWhatItMustAndNothingInUse(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b", "--lease-ttl=2s")
	c := f.nodes["a"].connect()
	signers := named("signer", 24)
	before := owners(c, signers)
	f.launch("c")
	f.nodes["a"].await("a to know c", func() bool {
		touch(c, signers) // they stay in use
		return f.nodes["a"].value("noncegate_peers_linked") == 2
	})
	if after := owners(c, signers); !maps.Equal(after, before) {
		t.Errorf("signers in use moved when c joined:\n%v\n%v", before, after)
	}
	idle(c, signers)
	joined := owners(c, signers)
	for _, s := range signers {
		if joined[s] != before[s] && joined[s] != "c" {
			t.Errorf("%s moved from %s to %s when c joined", s, before[s], joined[s])
		}
	}
	if moved := len(of(joined, "c")); moved == 0 || moved > len(signers)*2/3 {
		t.Errorf("%d of %d signers moved when c joined", moved, len(signers))
	}
	tokens := make(map[string]int64)
	for _, s := range signers {
		tokens[s] = statusOf(c, s).FencingToken
	}
	f.nodes["c"].signal(syscall.SIGTERM)
	if code := f.nodes["c"].exit(); code != exitOK {
		t.Errorf("c ended with %d", code)
	}
	if left := owners(c, signers); !maps.Equal(left, before) {
		t.Errorf("after c left they are at\n%v\nnot where they were before it joined:\n%v", left, before)
	}
	for _, s := range signers {
		if st := statusOf(c, s); joined[s] != "c" && st.FencingToken != tokens[s] {
			t.Errorf("%s was acquired anew although %s stayed", s, joined[s])
		}
	}
	consistent(t, f.db)
}

// TestABasicNodeServesBesideNodesThatOwn: it takes no lease and forwards nothing, and
// all it does is in order with what the others do.
func TestABasicNodeServesBesideNodesThatOwn(t *testing.T) {
	t.Parallel()
	f := serveEach(t, "a b c=basic")
	stop := make(chan struct{})
	c := f.crowd(stop, 6)
	c.reach(1500)
	close(stop)
	c.all.Wait()
	c.only("ok")
	c.stored(f.db)
	basic := f.nodes["c"]
	if basic.value(`noncegate_lease_acquire_total{result="acquired"}`) != 0 || basic.value("noncegate_signers_owned") != 0 ||
		f.sum(`noncegate_forwarded_total{result="answered"}`) == 0 {
		t.Error("the basic node owns something, or the others forwarded nothing")
	}
	if nodes := rows(t, f.db, `SELECT DISTINCT owner_node FROM signer_nonce_state WHERE owner_node NOT IN ('a', 'b')`); nodes != "" {
		t.Errorf("owners: %s", nodes)
	}
	if tokens := rows(t, f.db, `SELECT count(*) FILTER (WHERE fencing_token = 0) > 0, count(*) FILTER (WHERE fencing_token > 0) > 0 FROM signer_nonce_allocation`); tokens != "(t,t)" {
		t.Errorf("allocations by the basic node, by owners: %s", tokens)
	}
}
