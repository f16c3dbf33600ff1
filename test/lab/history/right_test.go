package history

import "testing"

func TestLongWhatAGatewayThatIsRightDoesIsNeverCalledWrong(t *testing.T) {
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

// A ninth transaction of one hand-out is a conflict, and the first eight stay.
func TestEightTransactionsOfANonceAreRightAndANinthIsRefused(t *testing.T) {
	w := newWorld()
	w.allocate("")
	for range 9 {
		w.mark(MarkUsed, 0, 1)
	}
	if last := w.h.Calls[len(w.h.Calls)-1]; last.Outcome != Refused {
		t.Fatalf("the ninth is %s", last.Outcome)
	}
	if r := check(w.end()); len(r.Violations) > 0 {
		t.Errorf("found %v", r.Violations)
	}
	w = newWorld()
	w.allocate("")
	for range 9 {
		w.mark(MarkUsed, 0, 1)
	}
	h := w.end()
	c := last(h, MarkUsed)
	c.Outcome, c.State, c.Reason, c.Seen = Happened, Consumed, "", nil
	row := &h.Final.Signers[0].Rows[0]
	row.Replaced, row.TxHash = append(row.Replaced, row.TxHash), c.TxHash
	if r := check(h); len(r.Violations) == 0 {
		t.Error("nine are taken for right")
	}
}

func TestAStatusThatShowsARowThatIsBehindIsRight(t *testing.T) {
	w := newWorld()
	w.allocate("")
	w.status()
	s := w.status()
	s.Version, s.Next = 0, 0
	h := w.end()
	if r := check(h); r.OK() {
		t.Error("where rows are not behind it is not")
	}
	h.RowsBehind = true
	if r := check(h); !r.OK() {
		t.Error(r.Violations)
	}
}
