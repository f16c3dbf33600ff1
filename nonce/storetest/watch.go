package storetest

import (
	"fmt"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// watched are the signers of some shards that are watched, in words, those of one page after the
// other.
func (f *fixture) watched(limit int, shards ...int) (words []string) {
	f.Helper()
	for after := int64(0); ; {
		page, err := f.Watched(f.Context(), shards, after, limit)
		f.ok(err)
		if len(page) > limit {
			f.Fatalf("got %d signers, and %d were wanted", len(page), limit)
		}
		for _, e := range page {
			if e.ID <= after {
				f.Fatalf("entry %d comes after %d", e.ID, after)
			}
			after = e.ID
			words = append(words, fmt.Sprint(e.Signer, " ", e.Kind.String(), " ", e.Nonce, " ", e.Since))
		}
		if len(page) < limit {
			slices.Sort(words)
			return words
		}
	}
}

// watch lists a signer that has a row, by a comparison or with a write.
func (f *fixture) watch(w nonce.Write, check bool, as nonce.Watch) {
	f.Helper()
	w.Watch = as
	if check {
		w.Check = true
		w.Signer.Version--
	}
	f.results(f.alice, []nonce.Write{w}, nonce.Applied)
}

var watchRules = []rule{
	{"signers that are watched are found by shard, in pages, until they are not watched any more", func(f *fixture) {
		terms := f.both()
		var want []string
		for i := range 5 {
			name := f.named(i%2, i/2)
			w := f.first(terms[i%2], name)
			w.Watch.Kind = nonce.WatchOn
			f.results(f.alice, []nonce.Write{w}, nonce.Applied)
			if i%2 == 0 {
				want = append(want, name+"  0 0")
			}
		}
		slices.Sort(want)
		other := f.first(terms[0], f.named(0, 9)) // nobody watches it
		f.results(f.alice, []nonce.Write{other}, nonce.Applied)
		for _, limit := range []int{1, 2, 9} {
			if got := f.watched(limit, 0); !slices.Equal(got, want) {
				f.Errorf("in pages of %d: got %q, want %q", limit, got, want)
			}
		}
		if got := f.watched(9, 0, 1); len(got) != 5 {
			f.Errorf("of both shards: got %q", got)
		}
		for i, check := range []bool{false, true} {
			name := f.named(0, i)
			f.watch(f.after(terms[0], name), check, nonce.Watch{Kind: nonce.WatchOff})
			want = slices.DeleteFunc(want, func(w string) bool { return w == name+"  0 0" })
			if got := f.watched(9, 0); !slices.Equal(got, want) {
				f.Errorf("after %s: got %q, want %q", name, got, want)
			}
		}
	}},
	{"what is found out of a watched signer stays until something else is, whoever lists it again", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		for i, step := range []struct {
			as   nonce.Watch
			want string
		}{
			{nonce.Watch{Kind: nonce.WatchOn}, "  0 0"},
			{nonce.Watch{Kind: nonce.WatchGap, Nonce: 3, Since: 77}, " gap 3 77"},
			{nonce.Watch{Kind: nonce.WatchOn}, " gap 3 77"},
			{nonce.Watch{}, " gap 3 77"},
			{nonce.Watch{Kind: nonce.WatchStuck, Nonce: 4, Since: 78}, " stuck 4 78"},
			{nonce.Watch{Kind: nonce.WatchDropped, Nonce: 4, Since: 79}, " dropped 4 79"},
			{nonce.Watch{Kind: nonce.WatchClear}, "  0 0"},
		} {
			f.watch(f.after(term, name), i%2 == 1, step.as)
			if got := f.watched(9, 0); !slices.Equal(got, []string{name + step.want}) {
				f.Errorf("%+v: got %q, want %q", step.as, got, step.want)
			}
		}
	}},
	{"a write that is left out lists nobody and unlists nobody, and a signer without a row is not listed", func(f *fixture) {
		term, name, nobody := f.take(f.alice, 0), f.named(0, 0), f.named(0, 1)
		w := f.first(term, name)
		w.Watch.Kind = nonce.WatchOn
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		was := f.read(name)
		for _, as := range []nonce.WatchKind{nonce.WatchOff, nonce.WatchGap} {
			for _, check := range []bool{false, true} {
				old := f.after(term, name)
				old.Signer.Version++
				old.Check, old.Watch.Kind = check, as
				lost := f.after(term, name)
				lost.Term.Token--
				lost.Watch.Kind = as
				f.results(f.alice, []nonce.Write{old}, nonce.Moved)
				f.results(f.alice, []nonce.Write{lost}, nonce.NotOwner)
			}
		}
		none := nonce.Write{Name: nobody, Term: term, Generation: f.Generation(), Check: true, Watch: nonce.Watch{Kind: nonce.WatchOn}}
		f.results(f.alice, []nonce.Write{none}, nonce.Applied)
		if got := f.watched(9, 0); !slices.Equal(got, []string{name + "  0 0"}) {
			f.Errorf("got %q", got)
		}
		f.unchanged(name, was)
	}},
	{"who is in mode basic lists signers too", func(f *fixture) {
		name := f.named(0, 0)
		f.locked(name, func(w *nonce.Write) { w.Watch.Kind = nonce.WatchOn })
		if got := f.watched(9, 0); !slices.Equal(got, []string{name + "  0 0"}) {
			f.Errorf("got %q", got)
		}
	}},
	{"the filters tell signers that do not move from those of no chain with a nonce that others wait behind", func(f *fixture) {
		terms := f.both()
		gap := []nonce.Entry{f.released(0, 1), f.hold(1, 1, time.Hour)}
		for name, as := range map[string]nonce.Watch{
			"alone": {}, "fine": {Kind: nonce.WatchOn}, "clear": {Kind: nonce.WatchClear},
			"gap": {Kind: nonce.WatchGap, Nonce: 1, Since: 77}, "stuck": {Kind: nonce.WatchStuck}, "dropped": {Kind: nonce.WatchDropped},
		} {
			f.put(terms, name, 2, gap...)
			f.watch(f.another(terms, name), true, as)
		}
		f.finds(nonce.GapSigners, "alone")
		f.finds(nonce.TroubledSigners, "gap", "stuck", "dropped")
		got := f.signers(nonce.SignersQuery{Filter: nonce.TroubledSigners, After: "dropped", Limit: 1})
		if len(got) != 1 || got[0].Signer != "gap" || got[0].Watch != (nonce.Watch{Kind: nonce.WatchGap, Nonce: 1, Since: 77}) || got[0].Held != 1 || got[0].Released != 1 {
			f.Errorf("got %+v", got)
		}
	}},
}

// another is one more write of a signer of shard 0 or 1.
func (f *fixture) another(terms []lease.ShardTerm, name string) nonce.Write {
	return f.after(terms[nonce.ShardOf(name, f.Shards())], name)
}
