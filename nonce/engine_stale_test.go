package nonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// notLongerThanHeld runs an allocate that repeats one, and compares what it says is
// left of the hold, counted from sending, with the deadline.
func notLongerThanHeld(t *testing.T, sent time.Time, op *nonce.Op) {
	t.Helper()
	if op.Err != nil {
		t.Fatalf("got %v", op.Err)
	}
	if until := sent.Add(op.HoldLeft); until.After(op.HeldUntil) {
		t.Errorf("its holder counts until %v, and the hold ends at %v", clockTime(until), clockTime(op.HeldUntil))
	}
}

func TestARepeatAfterARefusalDoesNotSayThatMoreOfTheHoldIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		old := p.entered("old", "allocate hold=3s -> 0#1") // nothing is due before the end, and read again for that
		old.want("allocate hold=3s id=x -> 1#1")
		p.leaseEnds()
		next := p.start("next")
		p.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpReserve {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
			}
			return nil
		})
		next.want("allocate hold=3s id=x -> none") // it has read the hold, and got no block
		p.onBefore(nil)
		time.Sleep(500 * time.Millisecond)
		sent, again := time.Now(), parse(t, "allocate hold=3s id=x")
		next.do(again)
		notLongerThanHeld(t, sent, again)
		time.Sleep(time.Until(again.HeldUntil) + time.Millisecond)
		next.want("allocate hold=3s id=x -> conflict 1#1=RELEASED")
	})
}

func TestWhatJoinsAGroupThatWaitsForTheFlushIsReadForItToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		old := p.entered("old", "allocate -> 0#1")
		old.want("allocate -> 1#1", "allocate hold=3s id=x -> 2#1")
		p.leaseEnds()
		p.goal = nonce.GoalDrain
		next := p.start("next")
		first := next.lineOf("allocate hold=3s id=x")
		time.Sleep(200 * time.Millisecond)
		sent, again, used, released := time.Now(), next.lineOf("allocate hold=3s id=x"), next.lineOf("used 1#1"), next.lineOf("release 0#1")
		if synctest.Wait(); first.answered() {
			t.Fatal("it was answered before the flush")
		}
		p.flush()
		for _, w := range []struct {
			op   *pending
			want string
		}{{first, "2#1"}, {again, "2#1"}, {used, "CONSUMED"}, {released, "RELEASED"}} {
			if got := w.op.wait(); got != w.want {
				t.Errorf("%v: got %q, want %q", w.op.op.Kind, got, w.want)
			}
		}
		notLongerThanHeld(t, sent, again.op)
	})
}
