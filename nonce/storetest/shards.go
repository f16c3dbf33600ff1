package storetest

import (
	"slices"
	"time"

	"noncegate/lease"
)

var shardRules = []rule{
	{"a shard that is free is taken, and its token is raised", func(f *fixture) {
		first, second := f.take(f.alice, 0), f.take(f.alice, 0)
		if first.Token < 1 || second.Token != first.Token+1 {
			f.Errorf("tokens %d and %d", first.Token, second.Token)
		}
	}},
	{"a shard whose owner's lease runs is not taken", func(f *fixture) {
		term := f.take(f.alice, 0)
		if got := f.acquire(f.bob, 0)[0]; got.Taken || got.Owner != f.alice || got.Token != term.Token {
			f.Errorf("got %+v", got)
		}
	}},
	{"a shard whose owner's lease is over is taken", func(f *fixture) {
		f.take(f.alice, 0)
		f.db.Advance(ttl / 2)
		f.renew(f.bob, ttl)
		if f.acquire(f.bob, 0)[0].Taken {
			f.Error("it is taken before the lease is over")
		}
		f.db.Advance(ttl / 2)
		f.take(f.bob, 0)
	}},
	{"a renewed lease keeps all shards, and ends ttl after the store's time, also when that was set back", func(f *fixture) {
		f.take(f.alice, 0)
		f.take(f.alice, 1)
		taken := func(by lease.Holder) (n int) {
			f.Helper()
			f.renew(by, ttl)
			for _, got := range f.acquire(by, 0, 1) {
				if got.Taken {
					n++
				}
			}
			return n
		}
		ends := func(in time.Duration) {
			f.Helper()
			if r := f.renew(f.alice, in); !r.Until.Equal(r.Now.Add(in)) || !f.shown("alice").LeaseUntil.Equal(r.Until) {
				f.Errorf("renewed for %v at %v, the lease ends at %v, and is shown to end at %v", in, r.Now, r.Until, f.shown("alice").LeaseUntil)
			}
		}
		ends(10 * ttl)
		f.db.Advance(9 * ttl)
		if n := taken(f.bob); n != 0 {
			f.Errorf("%d are taken while the lease runs", n)
		}
		f.db.Advance(-time.Hour)
		ends(ttl)
		f.db.Advance(ttl)
		if n := taken(f.bob); n != 2 {
			f.Errorf("%d are taken when the lease is over", n)
		}
	}},
	{"nobody takes a shard without a lease that runs", func(f *fixture) {
		f.db.Advance(2 * ttl)
		if got := f.acquire(f.alice, 0)[0]; got.Taken || got.Owner != (lease.Holder{}) {
			f.Errorf("got %+v", got)
		}
	}},
	{"a later incarnation takes the shards of its node at once, and an earlier one none", func(f *fixture) {
		old := f.take(f.alice, 0)
		again := f.node("alice")
		if again.Incarnation <= f.alice.Incarnation {
			f.Fatalf("incarnations %d and %d", f.alice.Incarnation, again.Incarnation)
		}
		if got := f.renew(again, ttl).Shards; len(got) != 1 || got[0].Owner != f.alice {
			f.Errorf("its heartbeat tells %+v", got)
		}
		if term := f.take(again, 0); term.Token <= old.Token {
			f.Errorf("token %d after %d", term.Token, old.Token)
		}
		if f.acquire(f.alice, 0)[0].Taken {
			f.Error("the earlier one takes it back")
		}
		_, err := f.Renew(f.Context(), f.alice, ttl)
		f.aborted(err, lease.ErrSuperseded)
	}},
	{"a shard of an incarnation that is no more is taken by others too, though the next one has a lease", func(f *fixture) {
		f.take(f.alice, 0)
		f.node("alice")
		f.take(f.bob, 0)
	}},
	{"who is not registered is told that the store went back", func(f *fixture) {
		_, err := f.Renew(f.Context(), lease.Holder{Node: "nobody", Incarnation: 1}, ttl)
		f.aborted(err, lease.ErrWentBack)
		_, err = f.Renew(f.Context(), lease.Holder{Node: "alice", Incarnation: f.alice.Incarnation + 1}, ttl)
		f.aborted(err, lease.ErrWentBack)
	}},
	{"a shard that was given back is free, and its token is raised", func(f *fixture) {
		term := f.take(f.alice, 0)
		given, err := f.Release(f.Context(), f.alice, []lease.ShardTerm{term, {Shard: 1, Token: 1}})
		if f.ok(err); given != 1 {
			f.Errorf("%d were given back", given)
		}
		if next := f.take(f.bob, 0); next.Token != term.Token+2 {
			f.Errorf("token %d after %d", next.Token, term.Token)
		}
	}},
	{"a shard under an older token is not given back", func(f *fixture) {
		old := f.take(f.alice, 0)
		term := f.take(f.alice, 0)
		for _, t := range []lease.ShardTerm{old, {Shard: 0, Token: term.Token + 1}} {
			if given, err := f.Release(f.Context(), f.alice, []lease.ShardTerm{t}); given != 0 || err != nil {
				f.Errorf("%+v: %d, %v", t, given, err)
			}
		}
		if given, err := f.Release(f.Context(), f.bob, []lease.ShardTerm{term}); given != 0 || err != nil {
			f.Errorf("by another: %d, %v", given, err)
		}
	}},
	{"a shard that is pinned keeps its owner and token, and is shown as pinned until it is unpinned", func(f *fixture) {
		term := f.take(f.alice, 0)
		for _, node := range []string{"bob", "carol", ""} { // carol was never here
			f.ok(f.Pin(f.Context(), 0, node))
			all, err := f.Owners(f.Context())
			f.ok(err)
			if got := all.Shards[0]; got.Pinned != node || got.Owner != f.alice || got.Token != term.Token || all.Shards[1].Pinned != "" {
				f.Errorf("pinned to %q: %+v", node, all.Shards[:2])
			}
			if got := f.renew(f.alice, ttl).Shards; len(got) != 1 || got[0].Pinned != node {
				f.Errorf("pinned to %q, the heartbeat tells %+v", node, got)
			}
		}
		f.ok(f.Pin(f.Context(), 0, "bob"))
		term = f.take(f.alice, 0) // to be pinned elsewhere takes nothing away
		if given, err := f.Release(f.Context(), f.alice, []lease.ShardTerm{term}); given != 1 || err != nil {
			f.Errorf("given back: %d, %v", given, err)
		}
		if got := f.acquire(f.bob, 0)[0]; !got.Taken || got.Pinned != "bob" {
			f.Errorf("after all that: %+v", got)
		}
	}},
	{"all shards are shown with their owners", func(f *fixture) {
		f.take(f.alice, 0)
		f.take(f.bob, 1)
		all, err := f.Owners(f.Context())
		f.ok(err)
		got := all.Shards
		if len(got) != f.Shards() || got[0].Owner != f.alice || got[1].Owner != f.bob ||
			!slices.IsSortedFunc(got, func(a, b lease.Shard) int { return a.Shard - b.Shard }) {
			f.Errorf("got %+v", got)
		}
	}},
}
