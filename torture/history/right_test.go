package history

import "testing"

func TestWhatAGatewayThatIsRightDoesIsNeverCalledWrong(t *testing.T) {
	unknown := 0
	for seed := range uint64(200) {
		h := random(seed)
		r := check(h)
		for _, v := range r.Violations {
			t.Errorf("seed %d: %v", seed, v)
		}
		if t.Failed() {
			return
		}
		unknown += r.Unknown
	}
	if unknown < 1000 {
		t.Errorf("only %d calls had an unknown outcome", unknown)
	}
}

func TestARequestIdThatIsToldLaterWhatItGotEarlierIsRight(t *testing.T) {
	w := newWorld()
	w.forget(w.allocate("r"))
	w.allocate("") // sees that something was handed out
	w.allocate("r")
	if r := check(w.end()); !r.OK() {
		t.Error(r.Violations)
	}
}

// The repeat of an id says nothing of when its nonce was handed out first, and so
// nothing of when the nonces above it were.
func TestARequestIdThatIsToldAgainDoesNotMoveWhatWasHandedOutBehindIt(t *testing.T) {
	for _, next := range []string{"s", ""} { // the lost answer is told again, or never
		w := newWorld()
		w.allocate("r")
		w.forget(w.allocate("s"))
		w.status()
		w.allocate("r")
		w.allocate(next)
		if r := check(w.end()); !r.OK() {
			t.Errorf("then %q: %v", next, r.Violations)
		}
	}
}

func TestConcurrentCallsMayTakeEffectInAnyOrder(t *testing.T) {
	w := newWorld()
	w.allocate("")
	w.allocate("")
	a, b := &w.h.Calls[0], &w.h.Calls[1]
	a.Start, b.Start = 0, 0
	a.End = b.End
	a.Nonces, b.Nonces = b.Nonces, a.Nonces
	a.HeldUntil, b.HeldUntil = b.HeldUntil, a.HeldUntil
	if r := check(w.end()); !r.OK() {
		t.Error(r.Violations)
	}
}
