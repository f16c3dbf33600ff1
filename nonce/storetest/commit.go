package storetest

import (
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var commitRules = []rule{
	{"what was committed is read, by every handle", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		w := f.first(term, name)
		w.Signer.Floor = 0
		w.History = []nonce.Past{}
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		again := &fixture{T: f.T, Store: f.db.Open(f.T), db: f.db}
		for _, h := range []*fixture{f, again} {
			if got := h.read(name); got.Signer.Version != 1 || got.Signer.Next != 1 || !slices.Equal(got.Signer.Live, w.Signer.Live) ||
				got.Token != term.Token || got.Shard.Owner != f.alice || got.Shard.Token != term.Token || got.Err != nil {
				f.Errorf("got %+v", got)
			}
		}
	}},
	{"a commit under an older token is refused and leaves no trace", func(f *fixture) {
		old, name := f.take(f.alice, 0), f.named(0, 0)
		f.results(f.alice, []nonce.Write{f.first(old, name)}, nonce.Applied)
		term := f.take(f.alice, 0)
		was := f.read(name)
		w := f.after(old, name)
		w.History, w.Requests = []nonce.Past{{Nonce: 0, Attempt: 1}}, []nonce.Request{{ID: "a"}}
		f.results(f.alice, []nonce.Write{w}, nonce.NotOwner)
		f.unchanged(name, was)
		got := f.load(nonce.SignerNeed{Signer: name, History: []int64{0}, Requests: []string{"a"}})[0]
		if got.History[0] != nil || got.Requests["a"] != nil {
			f.Errorf("it left %+v", got)
		}
		f.results(f.alice, []nonce.Write{f.after(term, name)}, nonce.Applied)
	}},
	{"a commit by another node, or another incarnation, is refused whatever token it names", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		f.results(f.bob, []nonce.Write{f.first(term, name)}, nonce.NotOwner)
		again := f.node("alice")
		f.results(again, []nonce.Write{f.first(term, name)}, nonce.NotOwner)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
	}},
	{"a commit for a shard that was given back is refused", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		_, err := f.Release(f.Context(), f.alice, []lease.ShardTerm{term})
		f.ok(err)
		f.results(f.alice, []nonce.Write{f.first(term, name), f.first(lease.ShardTerm{Token: term.Token + 1}, name)}, nonce.NotOwner, nonce.NotOwner)
	}},
	{"an owner whose lease is over still commits while nobody took the shard, because times decide nothing", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		f.db.Advance(2 * ttl)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
	}},
	{"a signer is written under the shard that it is of, and no other", func(f *fixture) {
		f.take(f.alice, 0)
		wrong := f.take(f.alice, 1)
		f.results(f.alice, []nonce.Write{f.first(wrong, f.named(0, 0))}, nonce.NotOwner)
	}},
	{"a commit on another version is refused and leaves no trace, and the others of its batch stand", func(f *fixture) {
		one, two := f.take(f.alice, 0), f.take(f.alice, 1)
		stale, fresh, far := f.named(0, 0), f.named(0, 1), f.named(1, 0)
		f.results(f.alice, []nonce.Write{f.first(one, stale)}, nonce.Applied)
		f.results(f.alice, []nonce.Write{f.first(one, stale), f.first(one, fresh), f.first(two, far)}, nonce.Moved, nonce.Applied, nonce.Applied)
		ahead := f.after(one, stale)
		ahead.Signer.Version++
		f.results(f.alice, []nonce.Write{ahead}, nonce.Moved)
		if got := f.read(stale).Signer; got.Version != 1 || got.Next != 1 {
			f.Errorf("got %+v", got)
		}
	}},
	{"a batch of signers of several shards loses those of the shard that was lost, and no others", func(f *fixture) {
		lost, kept := f.take(f.alice, 0), f.take(f.alice, 1)
		f.db.Advance(2 * ttl)
		f.renew(f.bob, ttl)
		f.take(f.bob, 0)
		f.results(f.alice, []nonce.Write{f.first(lost, f.named(0, 0)), f.first(kept, f.named(1, 0))}, nonce.NotOwner, nonce.Applied)
	}},
	{"a comparison tells and writes nothing", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		check := func(version int64) nonce.Write {
			return nonce.Write{Name: name, Term: term, Generation: f.Generation(), Check: true, Signer: nonce.Signer{Version: version}}
		}
		f.results(f.alice, []nonce.Write{check(0), check(1)}, nonce.Applied, nonce.Moved)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		was := f.read(name)
		f.results(f.alice, []nonce.Write{check(1), check(0)}, nonce.Applied, nonce.Moved)
		f.results(f.bob, []nonce.Write{check(1)}, nonce.NotOwner)
		f.unchanged(name, was)
	}},
	{"a known request id is not applied and leaves no trace", func(f *fixture) {
		term, name, other := f.take(f.alice, 0), f.named(0, 0), f.named(0, 1)
		w := f.first(term, name)
		w.Requests = []nonce.Request{{ID: "a", Hash: [16]byte{1}, Nonces: []int64{0}, Attempts: []int64{1}}}
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		was := f.read(name)
		again, elsewhere := f.after(term, name), f.first(term, other)
		again.Requests, elsewhere.Requests = []nonce.Request{{ID: "b"}, {ID: "a"}}, w.Requests
		f.results(f.alice, []nonce.Write{again, elsewhere}, nonce.IDKnown, nonce.Applied)
		w.History = nil // what it wrote before is there, and with it its id: its version says more
		f.results(f.alice, []nonce.Write{w}, nonce.Moved)
		f.unchanged(name, was)
		got := f.load(nonce.SignerNeed{Signer: name, Requests: []string{"a", "b"}})[0].Requests
		if got["b"] != nil || got["a"] == nil || got["a"].Hash != w.Requests[0].Hash || !slices.Equal(got["a"].Nonces, []int64{0}) || !slices.Equal(got["a"].Attempts, []int64{1}) {
			f.Errorf("got %+v", got)
		}
	}},
	{"history is inserted, and changed only where that is said, and to an attempt that is not lower", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		past := func(version, attempt int64, hash byte) nonce.Write {
			p := nonce.Past{Nonce: 0, Attempt: attempt, Holder: 7, Again: hash != 5, Note: nonce.Note{TxHash: nonce.TxHash{hash}, Reason: nonce.ReasonMined}}
			return nonce.Write{Name: name, Term: term, Generation: f.Generation(), Signer: nonce.Signer{Version: version, Next: 1}, History: []nonce.Past{p}}
		}
		f.results(f.alice, []nonce.Write{past(1, 2, 1)}, nonce.Applied)
		f.results(f.alice, []nonce.Write{past(2, 2, 2)}, nonce.Applied)
		f.results(f.alice, []nonce.Write{past(3, 3, 3)}, nonce.Applied)
		_, err := f.Commit(f.Context(), f.alice, []nonce.Write{f.first(term, f.named(0, 1)), past(4, 2, 4)})
		f.aborted(err, nonce.ErrInvariant)
		_, err = f.Commit(f.Context(), f.alice, []nonce.Write{f.first(term, f.named(0, 1)), past(4, 4, 5)})
		f.aborted(err, nonce.ErrInvariant)
		may := f.first(term, f.named(0, 1)) // what one row may do, another may not
		may.Signer.Next, may.History = 1, []nonce.Past{{Nonce: 0, Attempt: 1, Holder: 7, Again: true, Note: nonce.Note{Reason: nonce.ReasonMined}}}
		_, err = f.Commit(f.Context(), f.alice, []nonce.Write{may, past(4, 4, 5)})
		f.aborted(err, nonce.ErrInvariant)
		if f.read(f.named(0, 1)).Signer.Version != 0 {
			f.Error("a signer of the aborted batch was written")
		}
		got := f.load(nonce.SignerNeed{Signer: name, History: []int64{0, 1}})[0]
		if p := got.History[0]; p == nil || p.Attempt != 3 || p.TxHash != (nonce.TxHash{3}) || p.Holder != 7 || p.Reason != nonce.ReasonMined || got.Signer.Version != 3 {
			f.Errorf("got %+v of %+v", p, got)
		}
		if p, asked := got.History[1]; !asked || p != nil {
			f.Errorf("of a nonce without a row: %+v", p)
		}
	}},
	{"a cursor or floor that falls aborts everything", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		w := f.first(term, name)
		w.Signer.Next, w.Signer.Floor = 5, 3
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		for _, s := range []nonce.Signer{{Version: 2, Next: 4, Floor: 3}, {Version: 2, Next: 5, Floor: 2}} {
			_, err := f.Commit(f.Context(), f.alice, []nonce.Write{{Name: name, Term: term, Generation: f.Generation(), Signer: s}})
			f.aborted(err, nonce.ErrInvariant)
		}
	}},
	{"a write that ends a hold is left out before its time", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		for version := range int64(2) { // of a signer that has no row, and of one that has
			w := f.after(term, name)
			w.NotBefore = f.now().Add(time.Minute).UnixMilli()
			f.results(f.alice, []nonce.Write{w}, nonce.TooEarly)
			if f.read(name).Signer.Version != version {
				f.Error("it left a trace")
			}
			f.db.Advance(time.Minute + time.Millisecond)
			f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		}
	}},
	{"a commit whose belief is of another epoch is not sent, as a whole", func(f *fixture) {
		term := f.take(f.alice, 0)
		w, other := f.first(term, f.named(0, 0)), f.first(term, f.named(0, 1))
		other.Generation++
		_, err := f.Commit(f.Context(), f.alice, []nonce.Write{w, other})
		if err == nil || nonce.OutcomeOf(err) != nonce.NotSent || f.read(w.Name).Signer.Version != 0 {
			f.Errorf("got %v", err)
		}
	}},
	{"a commit of a thousand signers answers each", func(f *fixture) {
		var writes []nonce.Write
		var want []nonce.WriteResult
		terms := []lease.ShardTerm{f.take(f.alice, 0), f.take(f.alice, 1)}
		for i := range 1000 {
			w := f.first(terms[i%2], f.named(i%2, i/2))
			want = append(want, nonce.Applied)
			if i%10 == 0 {
				w.Signer.Version, want[i] = 7, nonce.Moved
			}
			writes = append(writes, w)
		}
		f.results(f.alice, writes, want...)
	}},
}

var loadRules = []rule{
	{"a signer that was never written has version 0, and its shard's owner", func(f *fixture) {
		term := f.take(f.alice, 1)
		got := f.load(nonce.SignerNeed{Signer: f.named(1, 0), History: []int64{3}, Requests: []string{"x"}})[0]
		if got.Signer.Version != 0 || got.Signer.Next != 0 || len(got.Signer.Live) != 0 || got.Token != 0 || got.Shard.Token != term.Token || got.Shard.Owner != f.alice {
			f.Errorf("got %+v", got)
		}
		if p, asked := got.History[3]; p != nil || !asked {
			f.Errorf("history %+v", got.History)
		}
		if q, asked := got.Requests["x"]; q != nil || !asked {
			f.Errorf("requests %+v", got.Requests)
		}
	}},
	{"many signers are loaded in order, one twice too", func(f *fixture) {
		term := f.take(f.alice, 0)
		a, b := f.named(0, 0), f.named(0, 1)
		f.results(f.alice, []nonce.Write{f.first(term, b)}, nonce.Applied)
		got := f.load(nonce.SignerNeed{Signer: a}, nonce.SignerNeed{Signer: b}, nonce.SignerNeed{Signer: b})
		if got[0].Signer.Version != 0 || got[1].Signer.Version != 1 || got[2].Signer.Version != 1 {
			f.Errorf("got %+v", got)
		}
	}},
	{"pruning deletes old history, and nothing of any signer", func(f *fixture) {
		term, name := f.take(f.alice, 0), f.named(0, 0)
		w := f.first(term, name)
		w.Signer.Next = 3
		w.History = []nonce.Past{{Nonce: 1, Attempt: 1}, {Nonce: 2, Attempt: 1}}
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		f.db.Advance(time.Hour)
		next := f.after(term, name)
		next.Signer.Next, next.History = 5, []nonce.Past{{Nonce: 4, Attempt: 1}}
		f.results(f.alice, []nonce.Write{next}, nonce.Applied)
		was := f.read(name)
		for want := range 3 {
			n, err := f.Prune(f.Context(), f.now().Add(-time.Minute), 1)
			if f.ok(err); n != max(0, 1-want/2) {
				f.Errorf("call %d deleted %d", want, n)
			}
		}
		f.unchanged(name, was)
		got := f.load(nonce.SignerNeed{Signer: name, History: []int64{1, 2, 4}})[0].History
		if got[1] != nil || got[2] != nil || got[4] == nil {
			f.Errorf("left are %+v", got)
		}
	}},
}
