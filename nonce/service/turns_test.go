package service_test

import (
	"fmt"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// asked is an allocate of a principal.
func asked(by nonce.Principal, name string) *noncetest.Op {
	op := allocate(name)
	op.Principal = by
	return op
}

// TestAGreedyPrincipalHoldsUpAModestOneForOneBatch counts turns: in order of arrival
// the modest one would wait for 63 batches.
func TestAGreedyPrincipalHoldsUpAModestOneForOneBatch(t *testing.T) {
	for name, policy := range map[string]func(*service.Config){"fail-fast": func(*service.Config) {}, "caller-runs": callerRuns} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", slots(1024), maxBatch(16), policy)
			began, open := n.disk.holdCommit("plug")
			defer open()
			plug := n.send(asked(1, "plug"))
			<-began
			greedy := make([]*noncetest.Op, 1000)
			for i := range greedy {
				greedy[i] = asked(1, fmt.Sprint("s", i%40))
			}
			ps := n.send(greedy...)
			waited := make([]int, 5)
			var modest []*pending
			for i := range waited {
				op := asked(2, "modest")
				slot, ok := n.Reserve(op.Signer, op.Principal)
				if !ok {
					t.Fatal("no slot for the modest one")
				}
				p := newPending(op)
				p.then = func() { waited[i] = n.fig.numCommits() }
				n.submit(slot, p)
				modest = append(modest, p)
			}
			open()
			results(plug)
			for i, p := range modest {
				if got, want := p.wait(), fmt.Sprintf("%d#1", i); got != want {
					t.Errorf("the modest one's op %d: got %q, want %q", i, got, want)
				}
				if waited[i] != 2 { // that which was under way, and its own
					t.Errorf("op %d was answered after %d batches, want 2", i, waited[i])
				}
			}
			results(ps)
			if got := n.fig.numCommits(); got < 63 {
				t.Errorf("%d batches in all: nobody was greedy", got)
			}
		})
	}
}

// TestWithCallerRunsWhoIsAboveItsShareRunsItsOwn, and what is before it, and waits for
// its turn meanwhile.
func TestWithCallerRunsWhoIsAboveItsShareRunsItsOwn(t *testing.T) {
	n := start(t, newDisk(), "a", slots(4), maxBatch(2), callerRuns)
	began, open := n.disk.holdCommit("plug")
	defer open()
	ps := n.send(asked(1, "plug"))
	<-began
	ps = append(ps, n.send(asked(1, signer), asked(1, signer), asked(1, signer), asked(2, "modest"))...)
	own := newPending(asked(1, signer))
	slot, ok := n.Reserve(signer, 1)
	if !ok {
		t.Fatal("refused with caller-runs")
	}
	done := make(chan struct{})
	go func() { defer close(done); n.submit(slot, own) }()
	open()
	<-done
	if !own.answered() || own.wait() != "3#1" {
		t.Errorf("its caller returned before it was run, or it is %q", own.wait())
	}
	if got := results(ps); got[4] != "0#1" {
		t.Errorf("got %q", got)
	}
}
