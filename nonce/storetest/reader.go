package storetest

import (
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var readerRules = []rule{
	{"a summary of a signer that does not exist says so", func(f *fixture) {
		got, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		if got.Exists || got.LowestHeld != -1 || got.Held != 0 || got.Consumed != 0 {
			f.Fatalf("got %+v", got)
		}
	}},
	{"a summary counts overdue holds as released and as consumed below the floor", func(f *fixture) {
		snap := f.take(alice, signer)
		f.applied(alice, on(snap).hold(2, short).hold(4, long))   // 0-1 short, 2-5 long
		res := f.applied(alice, on(f.all(signer)).hold(2, short)) // 6-7 short
		f.applied(alice, on(f.all(signer)).end(3, 1, nonce.Consumed).release(4).raise(1))
		f.passes(res.Now.Add(short))
		got, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		// 0 overdue below the floor, 1 6 7 overdue, 2 5 held, 3 consumed, 4 released
		want := nonce.Summary{
			Exists: true, Next: 8, Floor: 1, Version: snap.Version + 3, Held: 2, Released: 4, Consumed: 2, LowestHeld: 2, Overdue: 3,
			Lease: f.all(signer).Lease,
		}
		if got.Now.IsZero() {
			f.Error("a summary without the store's clock")
		}
		got.Now, got.Lease.ExpiresAt, want.Lease.ExpiresAt = time.Time{}, exact(got.Lease.ExpiresAt), exact(want.Lease.ExpiresAt)
		f.same("summary", got, want)
	}},
	{"what lies below the floor counts as consumed, skipped nonces and released rows too", func(f *fixture) {
		e := on(f.filled(signer, 3, 0, 1)).raise(10)
		e.BelowFloor = false
		f.applied(alice, e)
		got, err := f.Store.Summary(f.Context(), signer)
		f.ok(err)
		if got.Held != 1 || got.Released != 0 || got.Consumed != 9 || got.LowestHeld != 2 {
			f.Fatalf("got %+v", got)
		}
	}},
	{"a list comes in order of nonce, in pages", func(f *fixture) {
		f.filled(signer, 7, 1, 4, 5)
		for _, want := range []struct {
			q        nonce.ListQuery
			nonces   []int64
			nextFrom int64
		}{
			{nonce.ListQuery{Limit: 7}, []int64{0, 1, 2, 3, 4, 5, 6}, -1},
			{nonce.ListQuery{Limit: 3}, []int64{0, 1, 2}, 3},
			{nonce.ListQuery{From: 3, Limit: 3}, []int64{3, 4, 5}, 6},
			{nonce.ListQuery{From: 6, Limit: 3}, []int64{6}, -1},
			{nonce.ListQuery{From: 7, Limit: 3}, nil, -1},
			{nonce.ListQuery{Status: nonce.Released, Limit: 2}, []int64{1, 4}, 5},
			{nonce.ListQuery{Status: nonce.Released, From: 5, Limit: 2}, []int64{5}, -1},
			{nonce.ListQuery{Status: nonce.Held, From: 1, Limit: 9}, []int64{2, 3, 6}, -1},
			{nonce.ListQuery{Status: nonce.Consumed, Limit: 9}, nil, -1},
		} {
			want.q.Signer = signer
			got := f.list(want.q)
			if !slices.Equal(noncesOf(got.Rows), want.nonces) {
				f.Errorf("%+v: got %v, want %v", want.q, noncesOf(got.Rows), want.nonces)
			}
			if want.nextFrom < 0 && got.NextFrom != -1 || want.nextFrom >= 0 && !f.leadsTo(want.q, got.NextFrom, want.nextFrom) {
				f.Errorf("%+v: next page from %d, want %d", want.q, got.NextFrom, want.nextFrom)
			}
		}
	}},
	{"a list of a signer that does not exist is empty", func(f *fixture) {
		if got := f.list(nonce.ListQuery{Signer: signer, Limit: 5}); len(got.Rows) != 0 || got.NextFrom != -1 {
			f.Fatalf("got %+v", got)
		}
	}},
	{"a list shows an overdue hold as it stands, and when each row changed", func(f *fixture) {
		res := f.applied(alice, on(f.take(alice, signer)).hold(1, short).hold(1, long))
		f.passes(res.Now.Add(short))
		last := f.applied(alice, on(f.all(signer)).release(1))
		got := f.list(nonce.ListQuery{Signer: signer, Limit: 5}).Rows
		if len(got) != 2 || got[0].Status != nonce.Held || !exact(got[0].HeldUntil).Equal(exact(res.Now.Add(short))) {
			f.Fatalf("got %+v", got)
		}
		if !exact(got[0].UpdatedAt).Equal(exact(res.Now)) || !exact(got[1].UpdatedAt).Equal(exact(last.Now)) {
			f.Errorf("commits at %v and %v: got %+v", res.Now, last.Now, got)
		}
	}},
	{"a list shows the request id of the present attempt only", func(f *fixture) {
		f.applied(alice, on(f.take(alice, signer)).hold(2, long).asked("r").hold(1, long))
		f.applied(alice, on(f.all(signer)).release(0).end(1, 1, nonce.Consumed))
		f.showsRequests("r", "r", "")
		f.applied(alice, on(f.all(signer)).again(0, 1, long))
		f.showsRequests("", "r", "")
		f.applied(alice, on(f.all(signer)).end(0, 2, nonce.Released))
		f.applied(alice, on(f.all(signer)).again(0, 2, long).asked("s"))
		f.showsRequests("s", "r", "")
	}},
	{"due finds signers with an overdue hold, earliest deadline first, with their leases", func(f *fixture) {
		var last time.Time
		for i, hold := range []time.Duration{3 * short, long, short, 2 * short} {
			name := fmt.Sprint("s", i)
			until := f.applied(alice, on(f.take(alice, name)).hold(2, hold)).Now.Add(hold)
			if hold < long && until.After(last) {
				last = until
			}
			f.passes(f.now()) // so that no two commits share a time
		}
		f.passes(last)
		f.take(alice2, "s0")
		early := f.all("s2")
		f.release(alice, []nonce.ReleaseTerm{{ID: early.ID, Token: early.Lease.Token}})

		due, now, err := f.Store.Due(f.Context(), 10)
		f.ok(err)
		got := map[string]lease.Holder{}
		var deadlines []time.Time
		for _, d := range due {
			got[d.Signer] = d.Lease.Holder
			first := f.all(d.Signer).Due[0].HeldUntil
			deadlines = append(deadlines, first)
			if want := exact(now).Sub(exact(first)); d.Overdue < want-time.Microsecond || d.Overdue > want+time.Microsecond {
				f.Errorf("%s is overdue by %v, want %v", d.Signer, d.Overdue, want)
			}
		}
		want := map[string]lease.Holder{"s0": alice2, "s2": {}, "s3": alice}
		f.same("holders", got, want)
		if len(due) != 3 || !slices.IsSortedFunc(deadlines, time.Time.Compare) || deadlines[2].After(now) {
			f.Errorf("at %v: got %+v with deadlines %v", now, due, deadlines)
		}
		first, _, err := f.Store.Due(f.Context(), 1)
		f.ok(err)
		if len(first) != 1 || first[0].Signer != due[0].Signer {
			f.Errorf("at most 1: got %+v, want %+v", first, due[0])
		}
	}},
	{"a signer is overdue by its first hold, whichever nonce that has", func(f *fixture) {
		late := f.applied(alice, on(f.take(alice, signer)).hold(1, 20*short).hold(1, short).hold(1, long)).Now.Add(20 * short)
		f.passes(late)
		due, now, err := f.Store.Due(f.Context(), 10)
		f.ok(err)
		if least := now.Sub(late) + 19*short; len(due) != 1 || due[0].Overdue < least-time.Microsecond {
			f.Errorf("got %+v, want one overdue by %v", due, least)
		}
	}},
	{"a hold that ended is not due", func(f *fixture) {
		res := f.applied(alice, on(f.take(alice, signer)).hold(2, short))
		f.passes(res.Now.Add(short))
		f.applied(alice, on(f.all(signer)).release(0).end(1, 1, nonce.Consumed))
		if due, _, err := f.Store.Due(f.Context(), 10); err != nil || len(due) != 0 {
			f.Fatalf("got %+v, %v", due, err)
		}
	}},
	{"remembered requests are pruned by age, a few at a time, and are new again", func(f *fixture) {
		snap := f.take(alice, signer)
		res := f.applied(alice, on(snap).hold(1, long).asked("a").hold(1, long).asked("b").hold(1, long).asked("c"))
		for range 2 {
			if n := f.prune(long, 10); n != 0 {
				f.Fatalf("pruned %d young requests", n)
			}
		}
		f.passes(res.Now.Add(short))
		got := []int{f.prune(short, 2), f.prune(short, 2), f.prune(short, 2)}
		if !slices.Equal(got, []int{2, 1, 0}) {
			f.Fatalf("pruned %v, want [2 1 0]", got)
		}
		f.applied(alice, on(f.all(signer)).hold(1, long).asked("a"))
		if got := f.all(signer); len(got.Rows) != 4 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a store has a name and answers a ping", func(f *fixture) {
		f.ok(f.Store.Ping(f.Context()))
		first := f.Store.Epoch()
		if again := f.Store.Epoch(); f.Store.Name() == "" || again != first {
			f.Errorf("name %q, epoch %d, then %d", f.Store.Name(), first, again)
		}
	}},
}

func (f *fixture) list(q nonce.ListQuery) nonce.ListPage {
	f.Helper()
	page, err := f.Store.List(f.Context(), q)
	f.ok(err)
	return page
}

// leadsTo reports whether a page from got begins with the nonce want.
func (f *fixture) leadsTo(q nonce.ListQuery, got, want int64) bool {
	q.From = got
	page := f.list(q)
	return got >= 0 && got <= want && len(page.Rows) > 0 && page.Rows[0].Nonce == want
}

// showsRequests compares the request ids that a list shows of the first nonces.
func (f *fixture) showsRequests(want ...string) {
	f.Helper()
	for i, row := range f.list(nonce.ListQuery{Signer: signer, Limit: len(want)}).Rows {
		if row.RequestID != want[i] {
			f.Errorf("nonce %d: got request %q, want %q", i, row.RequestID, want[i])
		}
	}
}

func (f *fixture) prune(age time.Duration, limit int) int {
	f.Helper()
	n, err := f.Store.PruneRequests(f.Context(), age, limit)
	f.ok(err)
	return n
}
