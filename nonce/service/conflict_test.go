package service_test

import (
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func TestACommitRefusedBecauseANodeOfTheOtherModeWroteIsCountedOnce(t *testing.T) {
	d := newDisk()
	owner, other := start(t, d, "owner"), start(t, d, "other", basicMode)
	allocate := func() *nonce.Op { return &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1} }
	if got := owner.do(allocate()); got != "0#1" {
		t.Fatalf("the owner is handed out %s", got)
	}
	if got := owner.VersionConflicts(); got != 0 {
		t.Errorf("%d conflicts before anybody else wrote, want 0", got)
	}
	if got := other.do(allocate()); got != "1#1" {
		t.Fatalf("the other is handed out %s", got)
	}
	if got := owner.do(allocate()); got != "2#1" {
		t.Errorf("the owner is handed out %s next, want 2#1", got)
	}
	if mine, others := owner.VersionConflicts(), other.VersionConflicts(); mine != 1 || others != 0 {
		t.Errorf("%d conflicts of the owner and %d of the other, want 1 and 0", mine, others)
	}
}

func TestALockedRowAndALostLeaseAreNoVersionConflicts(t *testing.T) {
	d := newDisk()
	owner := start(t, d, "owner")
	allocate := func() *nonce.Op { return &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1} }
	if got := owner.do(allocate()); got != "0#1" {
		t.Fatalf("the owner is handed out %s", got)
	}
	locked := 2
	d.onLock(func(string) bool { locked--; return locked >= 0 })
	if got := owner.do(allocate()); got != "1#1" {
		t.Errorf("the owner of a row that is locked for a while is handed out %s", got)
	}
	d.onLock(nil)
	lose := once(memstore.OpCommit, signer, func(memstore.Call) error {
		d.ahead.Add(int64(2 * settings().LeaseTTL))
		d.onBefore(nil)
		preferred := start(t, d, "b")
		if got := preferred.do(allocate()); got != "2#1" {
			t.Errorf("the node that should have it is handed out %s", got)
		}
		return nil
	})
	d.onBefore(lose)
	if got := owner.do(allocate()); got != "fenced" {
		t.Errorf("the owner that lost the lease is told %s", got)
	}
	if got := owner.VersionConflicts(); got != 0 {
		t.Errorf("%d conflicts, want 0", got)
	}
}
