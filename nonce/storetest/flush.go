package storetest

import (
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
)

// event builds an event of Redis that follows a snapshot, keeping Next and Held
// right.
type event struct{ nonce.FlushEvent }

func (f *engines) after(s nonce.Snapshot) *event {
	return &event{nonce.FlushEvent{
		ID: s.ID, Signer: s.Signer, Token: s.Lease.Token, From: s.Version, To: s.Version + 1, At: f.now().Add(-time.Minute),
		Next: s.Next, Floor: s.Floor, Held: s.Held,
	}}
}

// hold hands out n new nonces.
func (e *event) hold(n int, d time.Duration) *event {
	for range n {
		e.row(nonce.FlushRow{Nonce: e.Next, Fresh: true, Status: nonce.Held, Attempt: 1, HeldUntil: e.At.Add(d)})
		e.Next++
		e.Held++
	}
	return e
}

// again hands out a released nonce.
func (e *event) again(n, attempt int64) *event {
	e.Held++
	return e.row(nonce.FlushRow{Nonce: n, Status: nonce.Held, Attempt: attempt, HeldUntil: e.At.Add(long)})
}

// end ends the hold of a nonce.
func (e *event) end(n, attempt int64, status nonce.Status) *event {
	e.Held--
	r := nonce.FlushRow{Nonce: n, Status: status, Attempt: attempt, Reason: "given back"}
	if status == nonce.Consumed {
		r.Reason, r.TxHash = "", nonce.TxHash{0: 0xab, 31: byte(n)}
	}
	return e.row(r)
}

func (e *event) row(r nonce.FlushRow) *event {
	r.Token = e.Token
	e.Rows = append(e.Rows, r)
	return e
}

// merged makes the event one of n changes.
func (e *event) merged(n int64) *event {
	e.To = e.From + n
	return e
}

func (e *event) asked(id string, nonces ...int64) *event {
	r := nonce.Remembered{Request: nonce.Request{ID: id, Hash: [16]byte{0: 1, 15: byte(len(id))}, Nonces: nonces}, At: e.At}
	for range nonces {
		r.Attempts = append(r.Attempts, 1)
	}
	e.Requests = append(e.Requests, r)
	return e
}

func (f *engines) apply(events ...*event) []nonce.FlushVerdict {
	f.Helper()
	verdicts, err := f.tryApply(events...)
	if f.ok(err); len(verdicts) != len(events) {
		f.Fatalf("got %d verdicts for %d events", len(verdicts), len(events))
	}
	return verdicts
}

func (f *engines) tryApply(events ...*event) ([]nonce.FlushVerdict, error) {
	list := make([]nonce.FlushEvent, len(events))
	for i, e := range events {
		list[i] = e.FlushEvent
	}
	return f.Apply(f.Context(), long, list)
}

// follows applies one event that must be applied, and returns the signer.
func (f *engines) follows(e *event) nonce.Snapshot {
	f.Helper()
	if v := f.apply(e); v[0] != nonce.FlushApplied {
		f.Fatalf("got verdict %d", v[0])
	}
	return f.all(e.Signer)
}

// skips applies an event that must leave no trace.
func (f *engines) skips(what string, e *event, want nonce.FlushVerdict) {
	f.Helper()
	f.stays(e.Signer, func() {
		f.Helper()
		if v := f.apply(e); v[0] != want {
			f.Errorf("%s: got verdict %d, want %d", what, v[0], want)
		}
	})
}

var flushRules = []engineRule{
	{"the row and its allocations follow an event", func(f *engines) {
		snap := f.entered(signer, 4, 1)
		e := f.after(snap).hold(2, long).end(0, 1, nonce.Consumed).end(2, 1, nonce.Released).again(1, 2).asked("r", 4, 5)
		got := f.follows(e)
		if got.Version != snap.Version+1 || got.Next != 6 || got.Held != 4 || !slices.Equal(got.Released, []int64{2}) {
			f.Errorf("got %+v", got)
		}
		token, until := snap.Lease.Token, e.At.Add(long)
		f.same("rows", inOrder(got.Rows), exactly([]nonce.Row{
			{Nonce: 0, Status: nonce.Consumed, Attempt: 1, Token: token, TxHash: nonce.TxHash{0: 0xab}},
			{Nonce: 1, Status: nonce.Held, Attempt: 2, Token: token, HeldUntil: until},
			{Nonce: 2, Status: nonce.Released, Attempt: 1, Token: token, Reason: "given back"},
			f.load(nonce.Need{Signer: signer, Nonces: []int64{3}}).Rows[0],
			{Nonce: 4, Status: nonce.Held, Attempt: 1, Token: token, HeldUntil: until},
			{Nonce: 5, Status: nonce.Held, Attempt: 1, Token: token, HeldUntil: until},
		}))
		f.same("standing", got.Standing, snap.Standing)
		got = f.load(nonce.Need{Signer: signer, RequestIDs: []string{"r"}})
		f.same("requests", got.Requests, []nonce.Request{e.Requests[0].Request})
		for _, row := range f.list(nonce.ListQuery{Signer: signer, Limit: 9}).Rows {
			if row.Nonce != 3 && !exact(row.UpdatedAt).Equal(exact(e.At)) {
				f.Errorf("nonce %d was updated at %v, want %v", row.Nonce, row.UpdatedAt, e.At)
			}
		}
	}},
	{"merged events raise the version by all of them, and each row says how it ended", func(f *engines) {
		snap := f.entered(signer, 2)
		e := f.after(snap).merged(7).row(nonce.FlushRow{Nonce: 2, Fresh: true, Status: nonce.Consumed, Attempt: 3, TxHash: nonce.TxHash{1}}).
			row(nonce.FlushRow{Nonce: 3, Fresh: true, Status: nonce.Released, Attempt: 2, Reason: "late"}).again(0, 5)
		e.Next, e.Held = 4, 2
		got := f.follows(e)
		if got.Version != snap.Version+7 || got.Next != 4 || got.Held != 2 || !slices.Equal(got.Released, []int64{3}) {
			f.Errorf("got %+v", got)
		}
		rows := inOrder(got.Rows)
		if rows[0].Attempt != 5 || rows[2].TxHash != (nonce.TxHash{1}) || rows[2].Attempt != 3 || rows[3].Reason != "late" {
			f.Errorf("got %+v", rows)
		}
	}},
	{"an event is applied once, and is known again", func(f *engines) {
		snap := f.entered(signer, 2)
		first := f.after(snap).hold(1, long)
		second := f.after(f.follows(first)).hold(1, long)
		f.skips("repeated", first, nonce.FlushAlready)
		f.follows(second)
		f.skips("repeated late", first, nonce.FlushAlready)
		f.skips("repeated", second, nonce.FlushAlready)
	}},
	{"an event is applied at its version only", func(f *engines) {
		snap := f.follows(f.after(f.entered(signer, 2)).hold(1, long))
		early := f.after(snap).hold(1, long)
		early.From, early.To = early.From+1, early.To+1
		f.skips("one before is missing", early, nonce.FlushGap)
		merged := f.after(snap).hold(1, long)
		merged.From--
		f.skips("a part of it is applied", merged, nonce.FlushPartly)
		unknown := f.after(snap).hold(1, long)
		unknown.ID = 1 << 40
		f.skips("no such signer", unknown, nonce.FlushGap)
	}},
	{"an event of a signer that returned counts no more", func(f *engines) {
		snap := f.follows(f.after(f.entered(signer, 2)).hold(1, long))
		last, next := f.after(snap).hold(1, long), f.after(snap).hold(2, long)
		last.From, last.To = last.From-1, last.To-1
		f.give(alice, snap)
		f.skips("the last one", last, nonce.FlushAlready)
		f.skips("one after it", next, nonce.FlushOver)
		f.applied(alice, on(f.all(signer)).hold(1, long))
		f.skips("one of a version that the reliable engine made", next, nonce.FlushAlready)
	}},
	{"the owner's token is no condition of an event, and its lease is renewed by its own only", func(f *engines) {
		snap := f.entered(signer, 1)
		f.try(alice, short, nonce.Need{Signer: signer})
		before := f.all(signer)
		got := f.follows(f.after(snap).hold(1, long))
		f.same("lease", got.Lease, before.Lease)
		now := f.now()
		got = f.follows(f.after(got).hold(1, long))
		if e := got.Lease.ExpiresAt; e.Before(now.Add(long)) || e.After(got.Now.Add(long)) {
			f.Errorf("flushed after %v for %v, expires at %v", now, long, e)
		}
		verdicts, err := f.Apply(f.Context(), short, []nonce.FlushEvent{f.after(got).hold(1, long).FlushEvent})
		if f.ok(err); verdicts[0] != nonce.FlushApplied || f.all(signer).Lease.ExpiresAt != got.Lease.ExpiresAt {
			f.Errorf("got verdict %d and lease %+v, want %+v still", verdicts[0], f.all(signer).Lease, got.Lease)
		}
	}},
	{"a lease that was given back stays so", func(f *engines) {
		snap := f.entered(signer, 1)
		f.release(alice, []nonce.ReleaseTerm{{ID: snap.ID, Token: snap.Lease.Token}})
		e := f.after(f.all(signer)).hold(1, long)
		if got := f.follows(e); got.Lease.Holder.Node != "" || got.Lease.Held(got.Now) {
			f.Errorf("got %+v", got.Lease)
		}
	}},
	{"events of many signers are applied together, each or not, in any order", func(f *engines) {
		a, b, c := f.entered("a", 1), f.entered("b", 1), f.filled("c", 1)
		gap := f.after(b).hold(1, long)
		gap.From, gap.To = gap.From+1, gap.To+1
		got := f.apply(f.after(c).hold(1, long), gap, f.after(a).hold(2, long))
		if !slices.Equal(got, []nonce.FlushVerdict{nonce.FlushOver, nonce.FlushGap, nonce.FlushApplied}) {
			f.Errorf("got %v", got)
		}
		f.unchanged(b)
		f.unchanged(c)
		if got := f.all("a"); got.Next != 3 || len(got.Rows) != 3 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a floor consumes what is released below it, also of the same event", func(f *engines) {
		snap := f.entered(signer, 6, 0, 3, 5)
		e := f.after(snap).end(1, 1, nonce.Released).end(4, 1, nonce.Released).row(nonce.FlushRow{Nonce: 6, Fresh: true, Status: nonce.Released, Attempt: 1})
		e.Floor, e.Next, e.BelowFloor = 4, 7, true
		got := f.follows(e)
		var below []int64
		for _, row := range inOrder(got.Rows) {
			if row.Status == nonce.Consumed && row.Reason == nonce.ReasonBelowFloor {
				below = append(below, row.Nonce)
			}
		}
		if got.Floor != 4 || !slices.Equal(below, []int64{0, 1, 3}) || !slices.Equal(got.Released, []int64{4, 5, 6}) {
			f.Errorf("floor %d, below %v, released %v", got.Floor, below, got.Released)
		}
		e = f.after(got).hold(1, long)
		e.Floor = 5
		if got = f.follows(e); !slices.Equal(got.Released, []int64{5, 6}) || len(got.Rows) != 8 {
			f.Errorf("a floor that consumes nothing by itself: got %+v", got)
		}
	}},
	{"a request id that Redis took for new replaces what is remembered longer than it should be", func(f *engines) {
		f.up()
		f.applied(alice, on(f.take(alice, signer)).hold(1, long).asked("r"))
		f.enter(alice, moveOf(f.all(signer)), long, long)
		e := f.after(f.all(signer)).hold(2, long).asked("r", 1, 2).asked("s")
		f.follows(e)
		got := f.load(nonce.Need{Signer: signer, RequestIDs: []string{"r"}})
		f.same("requests", got.Requests, []nonce.Request{e.Requests[0].Request})
	}},
}

// flushedRowRules: an event meets rows that are not as Redis left them.
var flushedRowRules = []engineRule{
	{"an event never changes what is consumed, and may say it again", func(f *engines) {
		snap := f.follows(f.after(f.entered(signer, 3)).end(0, 1, nonce.Consumed))
		before := f.list(nonce.ListQuery{Signer: signer, Limit: 1}).Rows
		e := f.after(snap).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{0: 0xab}, Reason: "again"})
		e.At = e.At.Add(time.Second)
		f.follows(e)
		f.same("the row", f.list(nonce.ListQuery{Signer: signer, Limit: 1}).Rows, before)
	}},
	{"what the floor gave up may turn out to be used", func(f *engines) {
		f.up()
		f.filled(signer, 3, 0)
		f.applied(alice, on(f.all(signer)).raise(2))
		f.enter(alice, moveOf(f.all(signer)), long, long)
		for _, status := range []nonce.Status{nonce.Released, nonce.Held} {
			f.contradicts("given up, and then "+status.String(), f.after(f.all(signer)).row(nonce.FlushRow{Nonce: 0, Status: status, Attempt: 1}))
		}
		e := f.after(f.all(signer)).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{7}, Reason: nonce.ReasonBelowFloor})
		f.follows(e)
		row := f.list(nonce.ListQuery{Signer: signer, Limit: 1}).Rows[0]
		if row.TxHash != (nonce.TxHash{7}) || row.Reason != nonce.ReasonBelowFloor || !exact(row.UpdatedAt).Equal(exact(e.At)) {
			f.Errorf("got %+v", row)
		}
		f.contradicts("by another transaction", f.after(f.all(signer)).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{8}, Reason: nonce.ReasonBelowFloor}))
	}},
	{"an event that a row contradicts aborts the call and leaves no trace", func(f *engines) {
		bystander := f.entered(other, 1)
		snap := f.follows(f.after(f.entered(signer, 5, 3)).end(0, 1, nonce.Consumed).end(4, 1, nonce.Released).again(3, 2))
		for name, e := range map[string]*event{
			"a new nonce with a row":            f.after(snap).row(nonce.FlushRow{Nonce: 1, Fresh: true, Status: nonce.Held, Attempt: 2, HeldUntil: snap.Now}),
			"a row that is not there":           f.after(snap).end(5, 1, nonce.Released),
			"consumed by another transaction":   f.after(snap).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: nonce.TxHash{9}}),
			"consumed by no transaction":        f.after(snap).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 1}),
			"consumed at another attempt":       f.after(snap).row(nonce.FlushRow{Nonce: 0, Status: nonce.Consumed, Attempt: 2, TxHash: nonce.TxHash{0: 0xab}}),
			"a consumed one that is released":   f.after(snap).end(0, 1, nonce.Released),
			"a consumed one that is held":       f.after(snap).again(0, 2),
			"an attempt before":                 f.after(snap).end(3, 1, nonce.Released),
			"a hold under the attempt it had":   f.after(snap).again(4, 1),
			"one of two rows that is not there": f.after(snap).end(1, 1, nonce.Released).end(7, 1, nonce.Released),
		} {
			f.contradicts(name, e, f.after(bystander).hold(1, long))
		}
		f.follows(f.after(snap).end(4, 1, nonce.Consumed).end(3, 2, nonce.Released).again(1, 2))
	}},
}

// contradicts applies events together of which the first must be refused by a row.
func (f *engines) contradicts(what string, e *event, beside ...*event) {
	f.Helper()
	f.stays(e.Signer, func() {
		f.Helper()
		f.stays(other, func() {
			f.Helper()
			_, err := f.tryApply(append([]*event{e}, beside...)...)
			if err == nil || nonce.OutcomeOf(err) != nonce.Aborted || !errors.Is(err, nonce.ErrInvariant) {
				f.Errorf("%s: got %v", what, err)
			}
		})
	})
}
