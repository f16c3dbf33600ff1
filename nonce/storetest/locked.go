package storetest

import (
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
)

// locked writes a signer as mode basic does.
func (f *fixture) locked(name string, change func(*nonce.Write)) nonce.Committed {
	f.Helper()
	got, err := f.Locked(f.Context(), nonce.SignerNeed{Signer: name}, func(l nonce.Loaded) (nonce.Write, error) {
		s := l.Signers[0].Signer
		s.Version++
		w := nonce.Write{Name: name, Signer: s}
		change(&w)
		return w, nil
	})
	f.ok(err)
	return got
}

var lockedRules = []rule{
	{"a locked write goes beside an owner, under token 0, and its version tells the owner", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		believed := f.after(term, name)
		got := f.locked(name, func(w *nonce.Write) { w.Term, w.Signer.Next = term, 9 })
		if !slices.Equal(got.Results, []nonce.WriteResult{nonce.Applied}) {
			f.Fatalf("got %+v", got)
		}
		if got := f.read(name); got.Token != 0 || got.Signer.Version != 2 || got.Signer.Next != 9 || got.Shard.Owner != f.alice {
			f.Errorf("got %+v", got)
		}
		f.results(f.alice, []nonce.Write{believed}, nonce.Moved)
		f.results(f.alice, []nonce.Write{f.after(term, name)}, nonce.Applied)
		if got := f.read(name); got.Token != term.Token || got.Signer.Next != 10 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a locked write needs no owner, and begins a signer", func(f *fixture) {
		name := f.named(0, 0)
		f.locked(name, func(w *nonce.Write) { w.Signer.Next = 1 })
		if got := f.read(name); got.Signer.Version != 1 || got.Signer.Next != 1 {
			f.Errorf("got %+v", got)
		}
	}},
	{"an error of a locked plan is returned, and nothing happened", func(f *fixture) {
		name, no := f.named(0, 0), errors.New("no")
		_, err := f.Locked(f.Context(), nonce.SignerNeed{Signer: name}, func(nonce.Loaded) (nonce.Write, error) { return nonce.Write{}, no })
		if !errors.Is(err, no) || f.read(name).Signer.Version != 0 {
			f.Errorf("got %v and %+v", err, f.read(name))
		}
	}},
	{"a locked plan sees history and request ids, and a known one is told", func(f *fixture) {
		name := f.named(0, 0)
		f.locked(name, func(w *nonce.Write) {
			w.Signer.Next, w.History, w.Requests = 1, []nonce.Past{{Nonce: 0, Attempt: 1}}, []nonce.Request{{ID: "a"}}
		})
		got, err := f.Locked(f.Context(), nonce.SignerNeed{Signer: name, History: []int64{0}, Requests: []string{"a"}}, func(l nonce.Loaded) (nonce.Write, error) {
			s := l.Signers[0]
			if s.History[0] == nil || s.Requests["a"] == nil {
				f.Errorf("the plan sees %+v", s)
			}
			s.Signer.Version++
			return nonce.Write{Name: name, Signer: s.Signer, Requests: []nonce.Request{{ID: "a"}}}, nil
		})
		f.ok(err)
		if !slices.Equal(got.Results, []nonce.WriteResult{nonce.IDKnown}) {
			f.Errorf("got %+v", got)
		}
	}},
}

// due lists the signers that are due.
func (f *fixture) due(limit int, shards ...int) (names []string) {
	f.Helper()
	got, err := f.Due(f.Context(), shards, limit)
	f.ok(err)
	for _, e := range got {
		if nonce.ShardOf(e.Signer, f.Shards()) != e.Shard || e.At > f.now().UnixMilli() {
			f.Errorf("%+v at %d", e, f.now().UnixMilli())
		}
		names = append(names, e.Signer)
	}
	return names
}

var dueRules = []rule{
	{"a signer is listed for a time, and found from then on by whoever asks for its shard", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		w := f.first(term, name)
		w.DueAt = f.now().Add(time.Minute).UnixMilli()
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		if got := f.due(9, 0); len(got) != 0 {
			f.Errorf("found early: %v", got)
		}
		f.db.Advance(time.Minute)
		if got := f.due(9, 0); !slices.Equal(got, []string{name}) {
			f.Errorf("found %v", got)
		}
		if got := f.due(9, 1); len(got) != 0 {
			f.Errorf("found in another shard: %v", got)
		}
	}},
	{"a signer is listed once, for the earliest time, and anew once that has come", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		began := f.now()
		list := func(in time.Duration) {
			w := f.after(term, name)
			w.DueAt = began.Add(in).UnixMilli()
			f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		}
		list(10 * time.Minute)
		list(5 * time.Minute)
		list(20 * time.Minute) // later: it stays
		f.db.Advance(6 * time.Minute)
		if got := f.due(9, 0); !slices.Equal(got, []string{name}) {
			f.Errorf("found %v", got)
		}
		list(30 * time.Minute) // whoever looked lists it anew
		if got := f.due(9, 0); len(got) != 0 {
			f.Errorf("found %v", got)
		}
		f.db.Advance(25 * time.Minute)
		if got := f.due(9, 0); !slices.Equal(got, []string{name}) {
			f.Errorf("found %v", got)
		}
	}},
	{"a signer that has no hold to be ended is listed no more, once the time has come for which it was listed", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		write := func(due int64, check bool) {
			f.Helper()
			w := f.after(term, name)
			w.DueAt, w.Check = due, check
			if check {
				w.Signer.Version--
			}
			f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		}
		soon := func() int64 { return f.now().Add(time.Minute).UnixMilli() }
		for _, check := range []bool{false, true} {
			write(soon(), false)
			write(nonce.Unlisted, check) // its time has not come
			f.db.Advance(2 * time.Minute)
			write(0, check)
			if got := f.due(9, 0); !slices.Equal(got, []string{name}) {
				f.Errorf("found %v", got)
			}
			write(nonce.Unlisted, check)
			if got := f.due(9, 0); len(got) != 0 {
				f.Errorf("found %v", got)
			}
		}
	}},
	{"a comparison lists a signer that has a row, and writes nothing else", func(f *fixture) {
		term, name, nobody := f.take(f.alice, 0), f.named(0, 0), f.named(0, 1)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		was := f.read(name)
		check := func(name string, version int64) nonce.Write {
			return nonce.Write{Name: name, Term: term, Generation: f.Generation(), Check: true, Signer: nonce.Signer{Version: version}, DueAt: f.now().UnixMilli()}
		}
		f.results(f.alice, []nonce.Write{check(name, 2), check(nobody, 0)}, nonce.Moved, nonce.Applied)
		f.db.Advance(time.Minute)
		if got := f.due(9, 0); len(got) != 0 {
			f.Errorf("found %v", got)
		}
		f.results(f.alice, []nonce.Write{check(name, 1)}, nonce.Applied)
		if got := f.due(9, 0); !slices.Equal(got, []string{name}) {
			f.Errorf("found %v", got)
		}
		f.unchanged(name, was)
	}},
	{"those that are due come earliest first, and no more than are wanted", func(f *fixture) {
		term := f.take(f.alice, 0)
		for i, in := range []time.Duration{3, 1, 2} {
			w := f.first(term, f.named(0, i))
			w.DueAt = f.now().Add(in * time.Second).UnixMilli()
			f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		}
		f.db.Advance(time.Minute)
		if got := f.due(2, 0, 1); !slices.Equal(got, []string{f.named(0, 1), f.named(0, 2)}) {
			f.Errorf("found %v", got)
		}
	}},
}
