package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"noncegate/nonce"
)

var commitRules = []rule{
	{"a commit writes its rows and raises the version by one", func(f *fixture) {
		snap := f.take(alice, signer)
		res := f.applied(alice, on(snap).hold(3, long))
		got := f.all(signer)
		if got.Next != 3 || got.Held != 3 || got.Version != snap.Version+1 || got.Lease.Token != snap.Lease.Token || len(got.Rows) != 3 {
			f.Fatalf("got %+v", got)
		}
		f.applied(alice, on(got).release(0).end(2, 1, nonce.Consumed))
		got = f.all(signer)
		if got.Held != 1 || got.Version != snap.Version+2 || !slices.Equal(got.Released, []int64{0}) {
			f.Fatalf("after two commits from %v: got %+v", res.Now, got)
		}
	}},
	{"a deadline is the clock of the commit plus the hold", func(f *fixture) {
		before := f.now()
		res := f.applied(alice, on(f.take(alice, signer)).hold(1, long).hold(1, 2*long))
		if res.Now.Before(before) || res.Now.After(f.now()) {
			f.Errorf("the commit of %v says it was at %v", before, res.Now)
		}
		for _, row := range f.all(signer).Rows {
			if want := exact(res.Now.Add(long * time.Duration(1+row.Nonce))); !exact(row.HeldUntil).Equal(want) {
				f.Errorf("nonce %d: got %v, want %v", row.Nonce, row.HeldUntil, want)
			}
		}
	}},
	{"a row that ends loses its deadline, one handed out again everything of its last hold", func(f *fixture) {
		snap := f.filled(signer, 1, 0)
		if got := snap.Rows[0]; !got.HeldUntil.IsZero() || got.Reason == "" {
			f.Fatalf("released: got %+v", got)
		}
		snap = f.take(alice2, signer)
		res := f.applied(alice2, on(snap).again(0, 1, long))
		f.same("row", f.all(signer).Rows, []nonce.Row{
			{Nonce: 0, Status: nonce.Held, Attempt: 2, Token: snap.Lease.Token, HeldUntil: res.Now.Add(long)},
		})
	}},
	{"a stale change leaves the others of its batch applied", func(f *fixture) {
		var edits []*edit
		for i := range 5 {
			edits = append(edits, on(f.take(alice, fmt.Sprint("s", i))).hold(2, long))
		}
		edits[1].Token--
		edits[3].Version++
		res := f.commit(alice, edits...)
		if want := []bool{true, false, true, false, true}; !slices.Equal(res.Applied, want) {
			f.Fatalf("got %v, want %v", res.Applied, want)
		}
		for i, applied := range res.Applied {
			if got := f.all(fmt.Sprint("s", i)); (got.Next == 2) != applied || (len(got.Rows) == 2) != applied {
				f.Errorf("signer %d: got %+v", i, got)
			}
		}
	}},
	{"a change that is not applied cannot abort the others", func(f *fixture) {
		stale := on(f.filled(signer, 2))
		stale.Version--
		stale.row(nonce.RowChange{Nonce: 0, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long}).end(1, 7, nonce.Consumed)
		before := f.all(signer)
		res := f.commit(alice, stale, on(f.take(alice, other)).hold(1, long))
		if want := []bool{false, true}; !slices.Equal(res.Applied, want) {
			f.Fatalf("got %v, want %v", res.Applied, want)
		}
		f.unchanged(before)
	}},
	{"a new nonce that already has a row aborts everything", func(f *fixture) {
		snap := f.filled(signer, 2)
		f.aborts(on(snap).row(nonce.RowChange{Nonce: 1, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long}))
	}},
	{"a row in another status aborts everything", func(f *fixture) {
		f.violates(on(f.filled(signer, 2, 1)).end(1, 1, nonce.Consumed))
	}},
	{"a row at another attempt aborts everything", func(f *fixture) {
		f.violates(on(f.filled(signer, 2, 1)).again(1, 2, long))
	}},
	{"a row that does not exist aborts everything", func(f *fixture) {
		f.violates(on(f.filled(signer, 2)).end(5, 1, nonce.Consumed))
	}},
	{"raising the floor consumes what is released below it, after the rows of the change", func(f *fixture) {
		snap := f.filled(signer, 6, 0, 4)
		f.applied(alice, on(snap).release(1, 3).end(2, 1, nonce.Consumed).raise(4))
		got := f.all(signer)
		type state struct {
			status nonce.Status
			reason string
		}
		want := []state{
			{nonce.Consumed, nonce.ReasonBelowFloor}, {nonce.Consumed, nonce.ReasonBelowFloor}, {nonce.Consumed, ""},
			{nonce.Consumed, nonce.ReasonBelowFloor}, {nonce.Released, "given back"}, {nonce.Held, ""},
		}
		for i, row := range inOrder(got.Rows) {
			if (state{row.Status, row.Reason}) != want[i] || row.Attempt != 1 {
				f.Errorf("nonce %d: got %v %q attempt %d, want %v", i, row.Status, row.Reason, row.Attempt, want[i])
			}
		}
		if got.Floor != 4 || got.Held != 1 || got.Next != 6 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a floor without BelowFloor leaves the rows", func(f *fixture) {
		e := on(f.filled(signer, 3, 0)).raise(9)
		e.BelowFloor = false
		f.applied(alice, e)
		if got := f.all(signer); got.Floor != 9 || got.Next != 9 || len(got.Rows) != 3 || got.Rows[0].Status == nonce.Consumed {
			f.Fatalf("got %+v", got)
		}
	}},
	{"the floor of one signer touches no other", func(f *fixture) {
		before := f.filled(other, 3, 0, 1)
		f.applied(alice, on(f.filled(signer, 3, 0, 1)).raise(3))
		f.unchanged(before)
	}},
	{"a check compares and writes nothing", func(f *fixture) {
		snap := f.filled(signer, 2, 1)
		check, stale := on(snap), on(f.filled(other, 1))
		check.Check, check.Next, check.Held = true, 99, 99
		stale.Check = true
		stale.Version--
		res := f.commit(alice, check, stale)
		if want := []bool{true, false}; !slices.Equal(res.Applied, want) {
			f.Fatalf("got %v, want %v", res.Applied, want)
		}
		f.unchanged(snap)
		if res := f.commit(bob, check); res.Applied[0] {
			f.Error("a check of somebody else's lease was true")
		}
	}},
	{"an empty commit is no error", func(f *fixture) {
		if res := f.commit(alice); len(res.Applied) != 0 {
			f.Fatalf("got %+v", res)
		}
	}},
	{"an unknown signer id is not applied", func(f *fixture) {
		e := on(f.take(alice, signer)).hold(1, long)
		e.ID += 1000
		if res := f.commit(alice, e); res.Applied[0] {
			f.Fatal("applied")
		}
	}},
	{"a commit of a thousand signers answers each", func(f *fixture) {
		var needs []nonce.Need
		for i := range 1000 {
			needs = append(needs, nonce.Need{Signer: fmt.Sprint("s", i)})
		}
		snaps, err := f.Store.Acquire(f.Context(), alice, long, needs)
		f.ok(err)
		stale := func(i int) bool { return i%3 == 2 }
		edits := make([]*edit, len(snaps))
		for i, s := range snaps {
			edits[i] = on(s).hold(1+i%4, long)
			if stale(i) {
				edits[i].Token--
			}
		}
		applied := f.commit(alice, edits...).Applied
		snaps, err = f.Store.Load(f.Context(), needs)
		f.ok(err)
		for i, s := range snaps {
			want := int64(1 + i%4)
			if stale(i) {
				want = 0
			}
			if applied[i] == stale(i) || s.Next != want {
				f.Fatalf("signer %d: applied %t, next %d, want %d", i, applied[i], s.Next, want)
			}
		}
	}},
	{"the largest numbers and odd text come back as they were", func(f *fixture) {
		const top = math.MaxInt64
		snap := f.take(alice, signer)
		e := on(snap)
		e.Next, e.Floor, e.Held = top, top-9, 1
		e.row(nonce.RowChange{Nonce: top - 1, Fresh: true, Status: nonce.Held, Attempt: top - 3, Hold: long})
		e.asked(`r'"\%_{},é😀`)
		e.row(nonce.RowChange{Nonce: top - 2, Fresh: true, Status: nonce.Held, Attempt: 1, Hold: long})
		f.applied(alice, e)
		odd := nonce.RowChange{
			Nonce: top - 2, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Released, Attempt: 1, Reason: `'"\%_{},NULL é😀`,
		}
		f.applied(alice, on(f.load(nonce.Need{Signer: signer})).row(odd))
		got := f.load(nonce.Need{Signer: signer, Released: 1, Nonces: []int64{top - 1}, RequestIDs: []string{`r'"\%_{},é😀`}})
		if got.Next != top || got.Floor != top-9 || !slices.Equal(got.Released, []int64{top - 2}) {
			f.Errorf("got %+v", got)
		}
		rows := inOrder(got.Rows)
		if len(rows) != 2 || rows[0].Reason != odd.Reason || rows[1].Nonce != top-1 || rows[1].Attempt != top-3 {
			f.Errorf("got %+v", rows)
		}
		f.same("requests", got.Requests, e.Requests)
	}},
}

// aborts commits the edit beside a good change of another signer, wants both to
// leave no trace, and returns the error.
func (f *fixture) aborts(bad *edit) error {
	f.Helper()
	good := on(f.filled(other, 1)).hold(1, long)
	before, beforeOther := f.all(signer), f.all(other)
	_, err := f.tryCommit(alice, good, bad)
	if err == nil || nonce.OutcomeOf(err) != nonce.Aborted {
		f.Fatalf("got %v, want an aborted commit", err)
	}
	f.unchanged(before)
	f.unchanged(beforeOther)
	f.applied(alice, good)
	return err
}

// violates is aborts with ErrInvariant as the cause.
func (f *fixture) violates(bad *edit) {
	f.Helper()
	if err := f.aborts(bad); !errors.Is(err, nonce.ErrInvariant) {
		f.Errorf("got %v, want %v", err, nonce.ErrInvariant)
	}
}
