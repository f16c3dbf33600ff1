package storetest

import (
	"slices"

	"noncegate/nonce"
)

func (f *fixture) signers(q nonce.SignersQuery) []nonce.SignerFigures {
	f.Helper()
	page, err := f.Store.Signers(f.Context(), q)
	f.ok(err)
	if len(page) > q.Limit {
		f.Fatalf("%+v: got %d signers", q, len(page))
	}
	return page
}

func signerNames(page []nonce.SignerFigures) (names []string) {
	for _, s := range page {
		names = append(names, s.Signer)
	}
	return names
}

// lists fails the test unless the filter finds exactly these signers, of all and of
// named ones, at once and in pages.
func (f *fixture) lists(what string, filter nonce.SignerFilter, want ...string) {
	f.Helper()
	named := append([]string{"no such signer", want[0]}, want...)
	for _, names := range [][]string{nil, named, {}} {
		want := want
		if names != nil && len(names) == 0 {
			want = nil
		}
		f.same(what, signerNames(f.signers(nonce.SignersQuery{Filter: filter, Names: names, Limit: 1000})), want)
		var paged []string
		for q := (nonce.SignersQuery{Filter: filter, Names: names, Limit: 2}); ; q.After = paged[len(paged)-1] {
			page := f.signers(q)
			if len(page) == 0 {
				break
			}
			paged = append(paged, signerNames(page)...)
		}
		f.same(what+", in pages", paged, want)
	}
}

var figureRules = []rule{
	{"signers are listed in order of name, byte by byte, in pages", func(f *fixture) {
		names := []string{"~", "b", "B", "a", "a-b", "a:b", "Z", "_", "0", "ab"}
		for _, name := range names {
			f.take(alice, name)
		}
		slices.Sort(names)
		f.lists("all", nonce.AllSigners, names...)
		got := f.signers(nonce.SignersQuery{Names: []string{"b", "Z", "~"}, After: "Z", Limit: 1})
		f.same("some", signerNames(got), []string{"b"})
	}},
	{"the figures of a signer are those of its rows", func(f *fixture) {
		res := f.applied(alice, on(f.take(alice, signer)).hold(5, long).hold(3, 2*long))
		f.applied(alice, on(f.all(signer)).release(0, 1, 3, 6).end(2, 1, nonce.Consumed))
		f.applied(alice, on(f.all(signer)).again(3, 1, 3*long))
		f.applied(alice, on(f.all(signer)).goOn(5, 1, 3*long, 1, nonce.ReasonUnknown).goOn(7, 1, long, 1, nonce.ReasonUnknown))
		e := on(f.all(signer))
		e.Floor = 1
		f.applied(alice, e)
		f.take(bob, other)
		got := f.signers(nonce.SignersQuery{Limit: 9})
		for i := range got {
			got[i].OldestHold = exact(got[i].OldestHold)
		}
		f.same("figures", got, []nonce.SignerFigures{
			{Signer: other, LowestReleased: -1, Owner: "bob"},
			{
				Signer: signer, Next: 8, Floor: 1, Version: f.all(signer).Version, Held: 4, Unknown: 2, Released: 2,
				LowestReleased: 1, OldestHold: exact(res.Now.Add(long)), MaxAttempt: 2, Owner: "alice",
			},
		})
		snap := f.try(bob, short, nonce.Need{Signer: "third"})
		f.release(alice, []nonce.ReleaseTerm{{ID: f.all(signer).ID, Token: f.all(signer).Lease.Token}})
		f.passes(snap.Lease.ExpiresAt)
		for _, s := range f.signers(nonce.SignersQuery{Names: []string{signer, "third"}, Limit: 9}) {
			if s.Owner != "" {
				f.Errorf("got owner %q of %s", s.Owner, s.Signer)
			}
		}
	}},
	{"each filter finds the signers that stand out so, and no others", func(f *fixture) {
		for _, name := range []string{"gap1", "gap2", "gap3", "last", "full", "low", "none", "overdue1", "overdue2", "overdue3", "repeat1", "repeat2", "repeat3", "unknown1", "unknown2", "used"} {
			f.applied(alice, on(f.take(alice, name)).hold(4, long))
		}
		f.applied(alice, on(f.all("gap1")).release(1))                           // below held ones
		f.applied(alice, on(f.all("gap2")).release(2).end(3, 1, nonce.Consumed)) // below a consumed one
		f.applied(alice, on(f.all("gap3")).release(0, 2, 3))                     // with others above
		f.applied(alice, on(f.all("last")).release(2, 3))                        // all at the top
		f.applied(alice, on(f.all("full")).release(0, 1, 2, 3))
		e := on(f.all("low")).release(0) // below the floor
		e.Floor = 1
		f.applied(alice, e)
		for _, name := range []string{"repeat1", "repeat2", "repeat3", "used"} {
			f.applied(alice, on(f.all(name)).release(3))
			f.applied(alice, on(f.all(name)).again(3, 1, long))
			f.applied(alice, on(f.all(name)).end(3, 2, nonce.Released))
		}
		f.applied(alice, on(f.all("repeat1")).again(3, 2, long))
		f.applied(alice, on(f.all("repeat2")).again(3, 2, long))
		f.applied(alice, on(f.all("repeat2")).end(3, 3, nonce.Released))
		f.applied(alice, on(f.all("repeat3")).repair(1, nonce.Held, 1))
		f.applied(alice, on(f.all("repeat3")).repair(1, nonce.Held, 2))
		f.applied(alice, on(f.all("used")).again(3, 2, long))
		f.applied(alice, on(f.all("used")).end(3, 3, nonce.Consumed))
		f.applied(alice, on(f.all("unknown1")).goOn(0, 1, short, 0, nonce.ReasonUnknown))
		f.applied(alice, on(f.all("unknown2")).goOn(3, 1, long, 1, nonce.ReasonUnknown))
		f.applied(alice, on(f.all("overdue1")).goOn(0, 1, short, 0, ""))
		f.applied(alice, on(f.all("overdue2")).goOn(3, 1, short, 0, nonce.ReasonForwarded))
		res := f.applied(alice, on(f.all("overdue3")).goOn(1, 1, short, 0, nonce.ReasonUnknown).goOn(2, 1, short, 0, ""))
		f.passes(res.Now.Add(short))
		f.lists("gap", nonce.GapSigners, "gap1", "gap2", "gap3")
		f.lists("repeat", nonce.RepeatSigners, "repeat1", "repeat2", "repeat3")
		f.lists("unknown", nonce.UnknownSigners, "overdue3", "unknown1", "unknown2")
		f.lists("overdue", nonce.OverdueSigners, "overdue1", "overdue2", "overdue3")
		f.lists("all", nonce.AllSigners, "full", "gap1", "gap2", "gap3", "last", "low", "none", "overdue1", "overdue2", "overdue3", "repeat1", "repeat2", "repeat3", "unknown1", "unknown2", "used")
	}},
	{"totals count what is open in the whole store", func(f *fixture) {
		total := func() nonce.Totals {
			f.Helper()
			t, err := f.Store.Totals(f.Context())
			f.ok(err)
			return t
		}
		f.same("of nothing", total(), nonce.Totals{})
		f.filled("a", 4, 1, 2)
		f.applied(alice, on(f.filled("b", 3, 0)).again(0, 1, long).end(1, 1, nonce.Consumed))
		f.applied(alice, on(f.all("b")).end(0, 2, nonce.Released))
		f.applied(alice, on(f.all("b")).again(0, 2, long).goOn(2, 1, long, 0, nonce.ReasonUnknown))
		f.same("figures", total(), nonce.Totals{Held: 4, Unknown: 1, Released: 2, Repeated: 1})
		f.applied(alice, on(f.all("b")).goOn(2, 1, 0, 0, nonce.ReasonUnknown))
		f.passes(f.now().Add(short))
		if got := total().OldestOverdue; got != 0 {
			f.Errorf("an unknown hold is overdue by %v", got)
		}
		ended := f.applied(alice, on(f.all("a")).goOn(0, 1, short, 0, "").goOn(3, 1, 9*short, 0, "")).Now.Add(short)
		f.passes(ended.Add(20 * short))
		if got, most := total().OldestOverdue, f.now().Sub(ended); got < 20*short-short || got > most+short {
			f.Errorf("overdue by %v, want 20 ms to %v", got, most)
		}
	}},
	{"names of principals are remembered once, and found by those that have one", func(f *fixture) {
		ask := []nonce.Principal{nonce.PrincipalOf("payouts"), nonce.PrincipalOf("é \"'\\"), nonce.PrincipalOf("nobody"), 0, ann}
		named := func(want map[nonce.Principal]string) {
			f.Helper()
			got, err := f.Store.NamesOf(f.Context(), ask)
			f.ok(err)
			f.same("names", got, want)
		}
		named(map[nonce.Principal]string{})
		f.ok(f.Store.RememberNames(f.Context(), nil))
		f.ok(f.Store.RememberNames(f.Context(), []string{"payouts", "", "payouts"}))
		named(map[nonce.Principal]string{ask[0]: "payouts"})
		many := []string{"payouts", "é \"'\\"}
		for i := range 500 {
			many = append(many, string(rune('a'+i%26))+string(rune('0'+i/26)))
		}
		for range 2 {
			f.ok(f.Store.RememberNames(f.Context(), many))
		}
		named(map[nonce.Principal]string{ask[0]: "payouts", ask[1]: "é \"'\\"})
		ask = ask[:0]
		named(map[nonce.Principal]string{})
	}},
}
