package nonce_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// TestAPruningThatComesAfterATakeOverChangesNothing: it was planned before, and
// is refused by the store.
func TestAPruningThatComesAfterATakeOverChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n := start(t, d, "a", retention(time.Minute))
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		began, goOn := make(chan struct{}), make(chan struct{})
		d.onBefore(once(memstore.OpConsumed, signer, func(memstore.Call) error { close(began); <-goOn; return nil }))
		<-began
		other := start(t, d, "b")
		d.endLease(t, signer)
		other.want("allocate -> 1#1")
		version := d.summary(t, signer).Version
		close(goOn)
		synctest.Wait()
		if got, want := d.rows(t, signer), "0#1=CONSUMED/1 1#1=HELD"; got != want || d.summary(t, signer).Version != version {
			t.Errorf("got rows %s, version %d, want %s, %d", got, d.summary(t, signer).Version, want, version)
		}
		n.want("allocate -> fenced", "allocate -> not_owner b ws://b")
	})
}

// TestAfterAPruningOfUnknownOutcomeTheSignerIsAcquiredAnew: whether it happened
// or not, nothing is answered under the old token.
func TestAfterAPruningOfUnknownOutcomeTheSignerIsAcquiredAnew(t *testing.T) {
	for name, lose := range map[string]func(*disk, func(memstore.Call) error){"reply": (*disk).onAfter, "pruning": (*disk).onBefore} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, newDisk(), "a", retention(time.Minute))
				n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
				lose(n.disk, once(memstore.OpConsumed, signer, cut))
				aged()
				n.want("allocate -> 1#1", "used 1#1 -> CONSUMED")
				if got := n.disk.summary(t, signer).Lease.Token; got < 2 {
					t.Errorf("got token %d, want a new one", got)
				}
				if got := n.UnknownCommits(); got != 1 {
					t.Errorf("counted %d commits of unknown outcome, want 1", got)
				}
				aged()
				n.want("list -> ", "allocate -> 2#1")
			})
		})
	}
}

func TestAPruningThatIsRefusedIsLeftToTheNextWalk(t *testing.T) {
	for name, cause := range map[string]error{
		"locked":  &nonce.StoreError{Outcome: nonce.Aborted, Err: context.DeadlineExceeded},
		"wrong":   &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant},
		"away":    &nonce.StoreError{Outcome: nonce.NotSent, Err: context.DeadlineExceeded},
		"no look": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, n *node) {
				n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
				var refused atomic.Int64
				n.disk.onBefore(func(c memstore.Call) error {
					if c.Op == memstore.OpConsumed && cause != nil || c.Op == memstore.OpPrunable && cause == nil {
						refused.Add(1)
						return &nonce.StoreError{Outcome: nonce.OutcomeOf(cause), Err: cause}
					}
					return nil
				})
				aged()
				if refused.Load() == 0 {
					t.Error("it was not tried")
				}
				if got := n.fig.get(&n.fig.invariant); (got > 0) != (name == "wrong") {
					t.Errorf("counted %d alarms", got)
				}
				n.want("list -> 0#1=CONSUMED/1")
				n.disk.onBefore(nil)
				aged()
				n.want("list -> ", "allocate -> 1#1")
			}, retention(time.Minute))
		})
	}
}

// TestAnAllocateOfUnknownOutcomeWhoseNonceWasPrunedMeanwhileStaysUnknown: a row
// that is missing below what was pruned says nothing.
func TestAnAllocateOfUnknownOutcomeWhoseNonceWasPrunedMeanwhileStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n, other := start(t, d, "a"), start(t, d, "b", basicMode)
		d.onAfter(once(memstore.OpCommit, signer, cut))
		d.onBefore(func(c memstore.Call) error {
			if touches(c, memstore.OpAcquire, signer) && d.summary(t, signer).Next > 0 {
				d.onBefore(nil)
				other.want("used 0#1 -> CONSUMED") // somebody guessed, or was told of it
				d.pruneAll(t, signer)
			}
			return nil
		})
		n.want("allocate -> unknown", "allocate -> 1#1")
		if got, want := d.rows(t, signer), "1#1=HELD"; got != want {
			t.Errorf("got rows %s, want %s", got, want)
		}
	})
}
