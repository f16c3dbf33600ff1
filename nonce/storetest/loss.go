package storetest

import (
	"errors"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

func isOtherEngine(err error) bool {
	return errors.Is(err, nonce.ErrOtherEngine) && nonce.OutcomeOf(err) == nonce.Aborted
}

var returnRules = []engineRule{
	{"a signer returns on each condition only, and is the reliable engine's again", func(f *engines) {
		snap := f.follows(f.after(f.entered(signer, 2)).hold(1, long))
		for name, try := range map[string]func(t *nonce.MoveTerm) lease.Holder{
			"another owner":       func(*nonce.MoveTerm) lease.Holder { return bob },
			"another incarnation": func(*nonce.MoveTerm) lease.Holder { return alice2 },
			"another token":       func(t *nonce.MoveTerm) lease.Holder { t.Token--; return alice },
			"an older version":    func(t *nonce.MoveTerm) lease.Holder { t.Version--; return alice },
			"one not flushed yet": func(t *nonce.MoveTerm) lease.Holder { t.Version++; return alice },
		} {
			f.stays(signer, func() {
				term := moveOf(snap)
				if h := try(&term); f.tryGive(h, term) {
					f.Errorf("%s: it returned", name)
				}
			})
		}
		f.give(alice, snap)
		want := snap
		want.Engine, want.Identity = nonce.Reliable, nonce.Identity{}
		f.unchanged(want)
		if f.tryGive(alice, moveOf(snap)) {
			f.Error("it returned twice")
		}
		f.applied(alice, on(snap).hold(1, long).end(2, 1, nonce.Consumed))
	}},
}

// lose declares signers lost.
func (f *engines) lose(h lease.Holder, margin time.Duration, snaps ...nonce.Snapshot) []bool {
	f.Helper()
	terms := make([]nonce.ReserveTerm, len(snaps))
	for i, s := range snaps {
		terms[i] = reserveOf(s, 0)
	}
	lost, err := f.Lose(f.Context(), h, margin, terms)
	if f.ok(err); len(lost) != len(snaps) {
		f.Fatalf("got %d results for %d signers", len(lost), len(snaps))
	}
	return lost
}

// lost has a signer lost that holds 0, 1 and 2 for long, released 3, consumed 4, and
// handed out up to 13, for a doubt that does not end, or soon does.
func (f *engines) lost(name string, grant time.Duration) (before, after nonce.Snapshot) {
	f.Helper()
	f.up()
	f.filled(name, 5, 3)
	f.applied(alice, on(f.all(name)).end(4, 1, nonce.Consumed))
	before = f.all(name)
	f.enter(alice, nonce.MoveTerm{ID: before.ID, Token: before.Lease.Token, Version: before.Version, Identity: redis1, Ceiling: 14}, grant, short)
	before = f.all(name)
	if lost := f.lose(alice, short, before); !lost[0] {
		f.Fatal("not lost")
	}
	return before, f.all(name)
}

var lossRules = []engineRule{
	{"a loss returns the signer with a new epoch, the cursor at the ceiling, and a row for what had none", func(f *engines) {
		before, got := f.lost(signer, long)
		if got.Engine != nonce.Reliable || got.Identity != (nonce.Identity{}) || got.Version != nonce.NextEpoch(before.Version) || got.Next != 14 || got.Held != 3 {
			f.Errorf("got %+v", got)
		}
		if got.DoubtBelow != 14 || !exact(got.DoubtUntil).Equal(exact(before.GrantUntil.Add(2*short))) {
			f.Errorf("got a doubt below %d until %v, want 14 and %v", got.DoubtBelow, got.DoubtUntil, before.GrantUntil.Add(2*short))
		}
		f.same("lease", got.Lease.Token, before.Lease.Token)
		rows := inOrder(got.Rows)
		f.same("rows before", rows[:5], inOrder(before.Rows))
		want := make([]nonce.Row, 0, 9)
		for n := int64(5); n < 14; n++ {
			want = append(want, nonce.Row{Nonce: n, Status: nonce.Released, Token: before.Lease.Token, Reason: nonce.ReasonInDoubt})
		}
		f.same("new rows", rows[5:], want)
	}},
	{"in doubt nothing is offered or due, and holds are held", func(f *engines) {
		f.up()
		at := f.applied(alice, on(f.take(alice, signer)).hold(2, short).hold(1, 2*short)).Now
		f.applied(alice, on(f.all(signer)).release(1))
		snap := f.all(signer)
		f.enter(alice, nonce.MoveTerm{ID: snap.ID, Token: snap.Lease.Token, Version: snap.Version, Identity: redis1, Ceiling: 5}, 300*short, short)
		f.lose(alice, short, snap)
		f.passes(at.Add(2 * short))
		got := f.all(signer)
		due, _, err := f.Due(f.Context(), 10)
		f.ok(err)
		sum, err := f.EngineStore.Summary(f.Context(), signer)
		f.ok(err)
		if !got.Now.Before(got.DoubtUntil) {
			f.Fatal("the doubt ended before the test could look")
		}
		if len(got.Released) > 0 || got.ReleasedMore || len(got.Due) > 0 || len(due) > 0 {
			f.Errorf("released %v, due %+v and %+v", got.Released, got.Due, due)
		}
		if got.Held != 2 || sum.Held != 2 || sum.LowestHeld != 0 || sum.Released != 3 {
			f.Errorf("got %d held, %+v", got.Held, sum)
		}
		for _, row := range inOrder(got.Rows) {
			if until := at.Add(2 * short); row.Status == nonce.Held && row.HeldUntil.After(until) {
				f.Errorf("nonce %d is held until %v, its holder was told %v at most", row.Nonce, row.HeldUntil, until)
			}
		}
		f.same("listed", exactly(withoutUpdates(f.list(nonce.ListQuery{Signer: signer, Limit: 9}).Rows)), inOrder(got.Rows))

		// New ones are handed out meanwhile, and may come back.
		e := on(got).hold(2, long)
		for i := range e.Rows {
			e.Rows[i].Attempt = nonce.FirstAttempt(got.Version)
		}
		f.applied(alice, e)
		f.applied(alice, on(f.all(signer)).end(5, nonce.FirstAttempt(got.Version), nonce.Released))
		if got = f.all(signer); got.Now.Before(got.DoubtUntil) && !slices.Equal(got.Released, []int64{5}) {
			f.Errorf("released %v, want the one above the doubt", got.Released)
		}

		f.passes(got.DoubtUntil)
		got = f.all(signer)
		if due := noncesOf(got.Due); !slices.Equal(due, []int64{0, 2}) || !slices.Equal(got.Released, []int64{1, 3, 4, 5}) {
			f.Errorf("after it: due %v, released %v", due, got.Released)
		}
		if sum, err = f.EngineStore.Summary(f.Context(), signer); err != nil || sum.Held != 1 || sum.Released != 6 {
			f.Errorf("after it: got %+v, %v", sum, err)
		}
		f.applied(alice, on(got).end(0, 1, nonce.Released).end(2, 1, nonce.Released).again(3, 0, long))
		e = on(f.all(signer)).again(0, 1, long)
		f.passes(f.applied(alice, e).Now)
		if row := f.load(nonce.Need{Signer: signer, Nonces: []int64{0}}).Rows[0]; !row.HeldUntil.After(got.Now.Add(long - time.Minute)) {
			f.Errorf("handed out again for %v: held until %v", long, row.HeldUntil)
		}
	}},
	{"what is in doubt may be marked used, at once", func(f *engines) {
		_, got := f.lost(signer, long)
		f.applied(alice, on(got).end(0, 1, nonce.Consumed).row(nonce.RowChange{
			Nonce: 9, FromStatus: nonce.Released, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{9},
		}))
	}},
	{"only its owner declares a signer lost, once", func(f *engines) {
		snap, reliable := f.entered(signer, 2), f.filled(other, 2)
		old := snap
		old.Lease.Token--
		for name, c := range map[string]struct {
			h lease.Holder
			s nonce.Snapshot
		}{
			"another owner": {bob, snap}, "another incarnation": {alice2, snap}, "an older token": {alice, old}, "the reliable engine": {alice, reliable},
		} {
			f.stays(signer, func() {
				f.stays(other, func() {
					if lost := f.lose(c.h, short, c.s); lost[0] {
						f.Errorf("%s: declared lost", name)
					}
				})
			})
		}
		third := f.entered("third", 1)
		if lost := f.lose(alice, short, third, reliable, snap); !slices.Equal(lost, []bool{true, false, true}) {
			f.Errorf("got %v", lost)
		}
		f.stays(signer, func() {
			if lost := f.lose(alice, short, snap); lost[0] {
				f.Error("lost twice")
			}
		})
	}},
	{"after a loss no event of before is applied, and no commit under its version", func(f *engines) {
		snap := f.entered(signer, 2)
		late := f.after(snap).hold(2, long)
		f.lose(alice, short, snap)
		f.skips("an event of the epoch before", late, nonce.FlushOver)
		f.refused(alice, on(snap).hold(1, long))
		if f.tryGive(alice, moveOf(snap)) {
			f.Error("it returned")
		}
	}},
	{"a signer in doubt does not enter until the doubt is over, and then only tells where it was", func(f *engines) {
		_, got := f.lost(signer, 100*short)
		if res, now := f.enter(alice, moveOf(got), long, long); res.Applied && now.Before(got.DoubtUntil) {
			f.Fatalf("entered at %v, in doubt until %v", now, got.DoubtUntil)
		}
		f.passes(got.DoubtUntil)
		if res, _ := f.enter(alice, moveOf(got), long, long); !res.Applied {
			f.Fatal("refused after the doubt")
		}
		if got = f.all(signer); got.DoubtBelow != 14 || !got.DoubtUntil.IsZero() {
			f.Errorf("got %+v", got.Standing)
		}
		e := f.after(got).again(5, nonce.FirstAttempt(got.Version)).end(0, 1, nonce.Released)
		until := e.At.Add(long)
		e.row(nonce.FlushRow{Nonce: 1, Status: nonce.Held, Attempt: nonce.FirstAttempt(got.Version), HeldUntil: until})
		got = f.follows(e)
		if row := f.load(nonce.Need{Signer: signer, Nonces: []int64{1}}).Rows[0]; !exact(row.HeldUntil).Equal(exact(until)) {
			f.Errorf("handed out again: held until %v, want %v", row.HeldUntil, until)
		}
		f.lose(alice, short, got)
		if again := f.all(signer); nonce.EpochOf(again.Version) != 2 || again.Next != 14+block {
			f.Errorf("lost again: got %+v", again)
		}
	}},
	{"a floor above the ceiling leaves nothing to make rows for", func(f *engines) {
		snap := f.entered(signer, 2)
		e := f.after(snap)
		e.Floor, e.Next, e.BelowFloor = 50, 50, true
		f.lose(alice, short, f.follows(e))
		if got := f.all(signer); got.Next != 50 || got.Floor != 50 || len(got.Rows) != 2 {
			f.Errorf("got %+v", got)
		}
	}},
}

func withoutUpdates(rows []nonce.Row) []nonce.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].UpdatedAt = time.Time{}
	}
	return rows
}
