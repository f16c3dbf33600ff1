package storetest

import (
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// put writes a signer of shard 0 or 1 whatever it was, with the cursor above the last entry.
func (f *fixture) put(terms []lease.ShardTerm, name string, next int64, live ...nonce.Entry) nonce.Write {
	f.Helper()
	s := f.read(name).Signer
	w := nonce.Write{Name: name, Term: terms[nonce.ShardOf(name, f.Shards())], Generation: f.Generation(), Signer: nonce.Signer{Version: s.Version + 1, Next: next, Floor: s.Floor, Live: live}}
	f.results(f.alice, []nonce.Write{w}, nonce.Applied)
	return w
}

func (f *fixture) released(n, attempt int64) nonce.Entry {
	return nonce.Entry{Nonce: n, Attempt: attempt, Status: nonce.Released, Holder: 7}
}

func (f *fixture) noted(e nonce.Entry, reason string) nonce.Entry {
	e.Note = &nonce.Note{Reason: reason}
	return e
}

func (f *fixture) both() []lease.ShardTerm {
	f.Helper()
	return []lease.ShardTerm{f.take(f.alice, 0), f.take(f.alice, 1)}
}

func (f *fixture) signers(q nonce.SignersQuery) []nonce.SignerFigures {
	f.Helper()
	page, err := f.Signers(f.Context(), q)
	f.ok(err)
	if len(page) > q.Limit {
		f.Fatalf("%+v: got %d signers", q, len(page))
	}
	return page
}

func names(page []nonce.SignerFigures) (names []string) {
	for _, s := range page {
		names = append(names, s.Signer)
	}
	return names
}

// finds fails the test unless the filter finds exactly these signers, of all and of named
// ones, at once and in pages.
func (f *fixture) finds(filter nonce.SignerFilter, want ...string) {
	f.Helper()
	slices.Sort(want)
	for _, named := range [][]string{nil, append([]string{"no such signer", want[0]}, want...), {}} {
		want := want
		if named != nil && len(named) == 0 {
			want = nil
		}
		if got := names(f.signers(nonce.SignersQuery{Filter: filter, Names: named, Limit: 1000})); !slices.Equal(got, want) {
			f.Errorf("filter %d of %q: got %q, want %q", filter, named, got, want)
		}
		var paged []string
		for q := (nonce.SignersQuery{Filter: filter, Names: named, Limit: 2}); ; q.After = paged[len(paged)-1] {
			page := names(f.signers(q))
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			if len(paged) > 100 {
				f.Fatalf("the pages do not end: %q", paged)
			}
		}
		if !slices.Equal(paged, want) {
			f.Errorf("filter %d of %q in pages: got %q, want %q", filter, named, paged, want)
		}
	}
}

func (f *fixture) totals() nonce.Totals {
	f.Helper()
	t, err := f.Totals(f.Context())
	f.ok(err)
	return t
}

var figureRules = []rule{
	{"signers are listed in order of name, byte by byte, in pages", func(f *fixture) {
		terms := f.both()
		all := []string{"~", "b", "B", "a", "a-b", "a:b", "Z", "_", "0", "ab"}
		for _, name := range all {
			f.put(terms, name, 1)
		}
		f.finds(nonce.AllSigners, all...)
		got := f.signers(nonce.SignersQuery{Names: []string{"b", "Z", "~"}, After: "Z", Limit: 1})
		if !slices.Equal(names(got), []string{"b"}) {
			f.Errorf("got %+v", got)
		}
	}},
	{"the figures of a signer are those of what lives of it", func(f *fixture) {
		terms := f.both()
		name, bobs := f.named(0, 0), f.named(1, 0)
		f.put(terms, bobs, 1)
		f.put(terms, name, 9,
			f.released(0, 1), f.hold(1, 1, 2*time.Hour), f.hold(3, 2, time.Hour), f.released(4, 1), f.noted(f.hold(5, 1, 3*time.Hour), nonce.ReasonUnknown), f.released(7, 1))
		w := f.after(terms[0], name)
		w.Signer.Live, w.Signer.Next, w.Signer.Floor = w.Signer.Live[:6], 9, 1
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		f.db.Advance(2 * ttl)
		f.renew(f.bob, ttl)
		f.take(f.bob, nonce.ShardOf(bobs, 2))
		for _, got := range f.signers(nonce.SignersQuery{Limit: 9}) {
			want := nonce.SignerFigures{Signer: bobs, Next: 1, Version: 1, LowestReleased: -1, Owner: "bob"}
			if got.Signer == name {
				want = nonce.SignerFigures{
					Signer: name, Next: 9, Floor: 1, Version: 2, Held: 3, Unknown: 1, Released: 2,
					LowestReleased: 4, OldestHold: time.UnixMilli(w.Signer.Live[2].Until), MaxAttempt: 2, // alice's lease is over
				}
			}
			if !got.OldestHold.Equal(want.OldestHold) {
				f.Errorf("%s: the oldest hold is that of %v, want %v", got.Signer, got.OldestHold, want.OldestHold)
			}
			got.OldestHold = want.OldestHold
			if got != want {
				f.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
	}},
	{"each filter finds the signers that stand out so, and no others", func(f *fixture) {
		terms := f.both()
		in := time.Hour
		unknown := func(n int64) nonce.Entry { return f.noted(f.hold(n, 1, in), nonce.ReasonUnknown) }
		f.put(terms, "gap1", 4, f.hold(0, 1, in), f.released(1, 1), f.hold(2, 1, in))             // below held ones
		f.put(terms, "gap2", 4, f.released(2, 1))                                                 // below a consumed one
		f.put(terms, "gap3", 4, f.released(0, 1), f.hold(1, 2, in), f.released(2, 1))             // with others above
		f.put(terms, "last", 4, f.hold(1, 1, in), f.released(2, 1), f.released(3, 1))             // all at the top
		f.put(terms, "full", 2, f.released(0, 1), f.released(1, 1))                               // all
		f.put(terms, "none", 4)                                                                   // nothing
		f.put(terms, "repeat1", 4, f.hold(3, 3, in))                                              // held
		f.put(terms, "repeat2", 4, f.released(3, 4))                                              // released
		f.put(terms, "unknown1", 4, unknown(0))                                                   // its time is to come
		f.put(terms, "unknown2", 4, f.noted(f.hold(3, 2, -time.Minute), nonce.ReasonUnknown))     // its time is over
		f.put(terms, "overdue1", 4, f.hold(0, 1, -time.Minute), unknown(1))                       // and another
		f.put(terms, "overdue2", 4, f.noted(f.hold(3, 1, -time.Minute), nonce.ReasonRecordFirst)) // with a reason
		f.finds(nonce.GapSigners, "gap1", "gap2", "gap3")
		f.finds(nonce.RepeatSigners, "repeat1", "repeat2")
		f.finds(nonce.UnknownSigners, "unknown1", "unknown2", "overdue1")
		f.finds(nonce.OverdueSigners, "overdue1", "overdue2")
		f.finds(nonce.AllSigners, "gap1", "gap2", "gap3", "last", "full", "none", "repeat1", "repeat2", "unknown1", "unknown2", "overdue1", "overdue2")
	}},
	{"totals count what is open in the whole store", func(f *fixture) {
		if got := f.totals(); got != (nonce.Totals{}) {
			f.Errorf("of nothing: %+v", got)
		}
		terms := f.both()
		f.put(terms, f.named(0, 0), 5, f.hold(0, 1, time.Hour), f.released(1, 3), f.hold(3, 2, time.Minute))
		f.put(terms, f.named(1, 0), 5, f.hold(0, 3, 2*time.Minute), f.noted(f.hold(2, 1, time.Second), nonce.ReasonUnknown))
		want := nonce.Totals{Held: 4, Unknown: 1, Released: 1, Repeated: 2}
		for range 2 {
			if got := f.totals(); got != want {
				f.Errorf("got %+v, want %+v", got, want)
			}
			f.db.Advance(10 * time.Second) // an unknown hold is not overdue
		}
		f.db.Advance(5 * time.Minute)
		if got := f.totals().OldestOverdue.Round(10 * time.Second); got != 4*time.Minute+20*time.Second {
			f.Errorf("overdue by %v", got)
		}
		for i := range 300 {
			f.put(terms, f.named(i%2, 1+i/2), 1, f.released(0, 1))
		}
		if got := f.totals(); got.Held != 4 || got.Released != 301 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a signer that cannot be read stops no other", func(f *fixture) {
		terms := f.both()
		bad, good := f.named(0, 0), f.named(0, 1)
		f.put(terms, bad, 2, f.hold(0, 1, -time.Minute), f.released(1, 5))
		f.put(terms, good, 2, f.hold(0, 1, -time.Minute), f.released(1, 5))
		f.db.Damage(f.T, bad)
		if got := f.load(nonce.SignerNeed{Signer: bad}, nonce.SignerNeed{Signer: good}); got[0].Err == nil || got[0].Signer.Version != 1 || got[0].Signer.Live != nil || got[1].Err != nil || len(got[1].Signer.Live) != 2 {
			f.Errorf("got %+v", got)
		}
		_, err := f.List(f.Context(), nonce.ListQuery{Signer: bad, Limit: 9})
		f.aborted(err, nonce.ErrLive)
		f.finds(nonce.AllSigners, bad, good)
		f.finds(nonce.OverdueSigners, good)
		for _, s := range f.signers(nonce.SignersQuery{Limit: 9}) {
			if s.Unreadable != (s.Signer == bad) || s.Next != 2 || s.Owner != "alice" || (s.Held > 0) != (s.Signer == good) {
				f.Errorf("got %+v", s)
			}
		}
		if got := f.totals(); got.Held != 1 || got.Repeated != 1 || got.Unreadable != 1 {
			f.Errorf("got %+v", got)
		}
		f.results(f.alice, []nonce.Write{f.after(terms[0], good)}, nonce.Applied)
	}},
	{"names of principals are remembered once, and found by those that have one", func(f *fixture) {
		ask := []nonce.Principal{nonce.PrincipalOf("payouts"), nonce.PrincipalOf("é \"'\\"), nonce.PrincipalOf("nobody"), 0}
		named := func(want ...string) {
			f.Helper()
			got, err := f.NamesOf(f.Context(), ask)
			f.ok(err)
			for _, name := range want {
				if got[nonce.PrincipalOf(name)] != name {
					f.Errorf("%q is called %q", name, got[nonce.PrincipalOf(name)])
				}
			}
			if len(got) != len(want) {
				f.Errorf("got %q", got)
			}
		}
		named()
		f.ok(f.RememberNames(f.Context(), nil))
		f.ok(f.RememberNames(f.Context(), []string{"payouts", "", "payouts"}))
		named("payouts")
		many := []string{"payouts", "é \"'\\"}
		for i := range 500 {
			many = append(many, fmt.Sprint("principal ", i))
		}
		for range 2 {
			f.ok(f.RememberNames(f.Context(), many))
		}
		named("payouts", "é \"'\\")
	}},
	{"a store answers, and has a name", func(f *fixture) {
		f.ok(f.Ping(f.Context()))
		if f.Name() == "" {
			f.Error("it has none")
		}
	}},
}
