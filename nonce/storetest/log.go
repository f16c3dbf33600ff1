package storetest

import (
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// RunLogs holds a nonce.LogStore to the sentences of its interface, on an empty database as Run.
func RunLogs(t *testing.T, open func(t *testing.T) Database) {
	for _, rule := range logRules {
		t.Run(rule.name, func(t *testing.T) {
			db := open(t)
			f := &fixture{T: t, Store: db.Open(t), db: db}
			f.alice, f.bob = f.node("alice"), f.node("bob")
			log, ok := f.Store.(nonce.LogStore)
			if !ok {
				t.Fatal("it is no LogStore")
			}
			rule.test(&logFixture{fixture: f, log: log})
		})
	}
}

type logFixture struct {
	*fixture
	log nonce.LogStore
}

type logRule struct {
	name string
	test func(*logFixture)
}

// grant is that of the tests.
var grant = nonce.Grant{For: time.Minute, LongestHold: 10 * time.Minute}

// on takes a shard and turns its log on.
func (f *logFixture) on(h lease.Holder, shard int) lease.ShardTerm {
	f.Helper()
	term := f.take(h, shard)
	f.turned(f.log.TurnOn(f.Context(), h, term, "one", grant))
	term.Performance = true
	return term
}

func (f *logFixture) turned(done bool, err error) {
	f.Helper()
	if f.ok(err); !done {
		f.Fatal("it is told not to be so")
	}
}

func (f *logFixture) not(done bool, err error) {
	f.Helper()
	if f.ok(err); done {
		f.Fatal("it is done")
	}
}

func (f *logFixture) shard(n int) lease.Shard {
	f.Helper()
	o, err := f.Owners(f.Context())
	f.ok(err)
	return o.Shards[n]
}

func (f *logFixture) ship(h lease.Holder, s nonce.Shipment) nonce.Shipped {
	f.Helper()
	got, err := f.log.Ship(f.Context(), h, s)
	f.ok(err)
	if len(got.Results) != len(s.Writes) || len(got.Whole) != len(s.Shards) || len(got.Granted) != len(s.Shards) {
		f.Fatalf("got %+v of %+v", got, s)
	}
	return got
}

func (f *logFixture) reserve(h lease.Holder, up ...nonce.Ceiling) []bool {
	f.Helper()
	got, err := f.log.Reserve(f.Context(), h, up)
	f.ok(err)
	return got
}

var logRules = []logRule{
	{"every commit compares the engine", func(f *logFixture) {
		name := f.named(0, 0)
		term := f.on(f.alice, 0)
		reliable := term
		reliable.Performance = false
		f.results(f.alice, []nonce.Write{f.first(reliable, name)}, nonce.NotOwner)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		f.ship(f.alice, nonce.Shipment{Shards: []nonce.ShippedShard{{Term: term, Off: true}}})
		f.results(f.alice, []nonce.Write{f.after(term, name)}, nonce.NotOwner)
		f.results(f.alice, []nonce.Write{f.after(reliable, name)}, nonce.Applied)
	}},
	{"a node that owns nothing writes no signer of a shard with a log", func(f *logFixture) {
		name := f.named(0, 0)
		f.on(f.alice, 0)
		write := f.first(lease.ShardTerm{}, name)
		got, err := f.Locked(f.Context(), nonce.SignerNeed{Signer: name}, func(l nonce.Loaded) (nonce.Write, error) {
			if !l.Signers[0].Shard.Performance {
				f.Error("it is not told")
			}
			return write, nil
		})
		f.ok(err)
		if got.Results[0] != nonce.NotOwner || f.read(name).Signer.Version != 0 {
			f.Errorf("got %v", got.Results)
		}
	}},
	{"a log is turned on by the owner of a reliable shard only", func(f *logFixture) {
		term := f.take(f.alice, 0)
		old := term
		old.Token--
		f.not(f.log.TurnOn(f.Context(), f.alice, old, "one", grant))
		f.not(f.log.TurnOn(f.Context(), f.bob, term, "one", grant))
		f.turned(f.log.TurnOn(f.Context(), f.alice, term, "one", grant))
		f.not(f.log.TurnOn(f.Context(), f.alice, term, "two", grant))
		if got := f.shard(0); !got.Performance || got.Identity != "one" || got.GrantUntil != f.now().Add(grant.For).UnixMilli() && got.GrantUntil > f.now().Add(grant.For).UnixMilli() {
			f.Errorf("got %+v", got)
		}
	}},
	{"a shipment raises versions by several, and notes what the rows have", func(f *logFixture) {
		name, other := f.named(0, 0), f.named(0, 1)
		term := f.on(f.alice, 0)
		w := f.first(term, name)
		w.Signer.Version, w.Rise = 3, 2
		x := f.first(term, other)
		x.Signer.Version, x.Rise = 2, 0 // there is no version 1
		got := f.ship(f.alice, nonce.Shipment{Writes: []nonce.Write{w, x}, Shards: []nonce.ShippedShard{{Term: term, Head: 7, Off: true}}})
		if !slices.Equal(got.Results, []nonce.WriteResult{nonce.Applied, nonce.Moved}) || got.Whole[0] || !got.Granted[0] {
			f.Errorf("got %+v", got)
		}
		if sh := f.shard(0); sh.Shipped != 0 || !sh.Performance {
			f.Errorf("what was shipped in part counts: %+v", sh)
		}
		w = f.after(term, name)
		w.Signer.Version, w.Rise = 8, 4
		got = f.ship(f.alice, nonce.Shipment{Writes: []nonce.Write{w}, Shards: []nonce.ShippedShard{{Term: term, Head: 9}}})
		if got.Results[0] != nonce.Applied || !got.Whole[0] || f.read(name).Signer.Version != 8 {
			f.Errorf("got %+v", got)
		}
		if sh := f.shard(0); sh.Shipped != 9 || !sh.Performance {
			f.Errorf("got %+v", sh)
		}
		f.ship(f.alice, nonce.Shipment{Shards: []nonce.ShippedShard{{Term: term, Head: 8}}})
		if sh := f.shard(0); sh.Shipped != 9 {
			f.Errorf("it fell: %+v", sh)
		}
	}},
	{"a shipment of who is not the owner grants nothing and turns nothing off", func(f *logFixture) {
		term := f.on(f.alice, 0)
		other := f.on(f.alice, 1)
		f.db.Advance(2 * ttl)
		f.renew(f.bob, ttl)
		f.take(f.bob, 0)
		was := f.shard(0)
		got := f.ship(f.alice, nonce.Shipment{Grant: grant, Shards: []nonce.ShippedShard{{Term: term, Head: 4, Off: true}, {Term: other, Head: 5}}})
		if !slices.Equal(got.Granted, []bool{false, true}) || !slices.Equal(got.Whole, []bool{false, true}) {
			f.Errorf("got %+v", got)
		}
		if now := f.shard(0); now != was || !now.Performance {
			f.Errorf("got %+v, was %+v", now, was)
		}
	}},
	{"a grant does not fall", func(f *logFixture) {
		term := f.on(f.alice, 0)
		was := f.shard(0).GrantUntil
		f.ship(f.alice, nonce.Shipment{Grant: nonce.Grant{For: time.Second}, Shards: []nonce.ShippedShard{{Term: term}}})
		if got := f.shard(0).GrantUntil; got != was {
			f.Errorf("%d, and it was %d", got, was)
		}
	}},
	{"a ceiling does not fall and leaves the version", func(f *logFixture) {
		name, fresh := f.named(0, 0), f.named(0, 1)
		term := f.on(f.alice, 0)
		f.results(f.alice, []nonce.Write{f.first(term, name)}, nonce.Applied)
		was := f.read(name)
		for _, next := range []int64{9, 5} {
			if got := f.reserve(f.alice, nonce.Ceiling{Name: name, Term: term, Next: next}, nonce.Ceiling{Name: fresh, Term: term, Next: next}); !slices.Equal(got, []bool{true, true}) {
				f.Fatalf("got %v", got)
			}
			f.unchanged(name, was)
			for _, n := range []string{name, fresh} {
				if got := f.read(n).Signer.Ceiling; got != 9 {
					f.Errorf("%s has %d", n, got)
				}
			}
		}
		f.results(f.alice, []nonce.Write{f.after(term, name), f.first(term, fresh)}, nonce.Applied, nonce.Applied)
		if a, b := f.read(name).Signer, f.read(fresh).Signer; a.Ceiling != 9 || b.Ceiling != 9 || a.Version != 2 || b.Version != 1 {
			f.Errorf("got %+v and %+v", a, b)
		}
	}},
	{"who is not the owner reserves nothing", func(f *logFixture) {
		name, other := f.named(0, 0), f.named(1, 0)
		term := f.on(f.alice, 0)
		reliable := f.take(f.alice, 1)
		old := term
		old.Token--
		got := f.reserve(f.alice, nonce.Ceiling{Name: name, Term: old, Next: 5}, nonce.Ceiling{Name: other, Term: reliable, Next: 5})
		got = append(got, f.reserve(f.bob, nonce.Ceiling{Name: name, Term: term, Next: 5})...)
		if slices.Contains(got, true) || f.read(name).Signer.Ceiling != 0 || f.read(other).Signer.Ceiling != 0 {
			f.Errorf("got %v", got)
		}
	}},
	{"a loss is declared by the owner of a shard with a log, and ends in doubt", func(f *logFixture) {
		term := f.on(f.alice, 0)
		f.not(f.log.Declare(f.Context(), f.bob, term, time.Second))
		f.turned(f.log.Declare(f.Context(), f.alice, term, time.Second))
		got := f.shard(0)
		if want := got.GrantUntil + (grant.LongestHold + time.Second).Milliseconds(); got.Performance || got.Epoch != 1 || got.DoubtUntil != want {
			f.Errorf("got %+v, want doubt until %d", got, want)
		}
		f.not(f.log.Declare(f.Context(), f.alice, term, time.Second))
	}},
	{"a signer of an earlier epoch is mended before it gets a ceiling", func(f *logFixture) {
		name := f.named(0, 0)
		term := f.on(f.alice, 0)
		f.reserve(f.alice, nonce.Ceiling{Name: name, Term: term, Next: 5})
		f.turned(f.log.Declare(f.Context(), f.alice, term, time.Second))
		term = f.on(f.alice, 0)
		up := nonce.Ceiling{Name: name, Term: term, Next: 20}
		if got := f.reserve(f.alice, up); got[0] || f.read(name).Signer.Ceiling != 5 {
			f.Errorf("got %v", got)
		}
		w := f.first(term, name)
		w.Signer.Epoch, w.Signer.Ceiling = 1, 5
		f.results(f.alice, []nonce.Write{w}, nonce.Applied)
		if got := f.reserve(f.alice, up); !got[0] || f.read(name).Signer.Ceiling != 20 || f.read(name).Signer.Epoch != 1 {
			f.Errorf("got %v", got)
		}
	}},
	{"a goal is changed by who knew the one before", func(f *logFixture) {
		was, err := f.log.Engine(f.Context())
		f.ok(err)
		got, err := f.log.SetEngine(f.Context(), was.Change, nonce.EngineGoal{Performance: true, Rehearse: time.Second, Reason: "why"})
		f.ok(err)
		if got.Change != was.Change+1 || !got.Performance || got.Rehearse != time.Second || got.Reason != "why" || got.At.IsZero() {
			f.Errorf("got %+v", got)
		}
		again, err := f.log.SetEngine(f.Context(), was.Change, nonce.EngineGoal{Degraded: true})
		if f.ok(err); again != got {
			f.Errorf("got %+v, want %+v", again, got)
		}
	}},
	{"a node says whether it reaches the log, until it registers anew", func(f *logFixture) {
		reaching := func() (names []string) {
			o, err := f.Owners(f.Context())
			f.ok(err)
			for _, n := range o.Nodes {
				if n.ReachesLog {
					names = append(names, n.Node)
				}
			}
			return names
		}
		f.ok(f.log.NoteReach(f.Context(), f.alice, true))
		f.ok(f.log.NoteReach(f.Context(), lease.Holder{Node: f.bob.Node, Incarnation: f.bob.Incarnation + 1}, true))
		if got := reaching(); !slices.Equal(got, []string{f.alice.Node}) {
			f.Errorf("got %v", got)
		}
		f.node("alice")
		if got := reaching(); len(got) > 0 {
			f.Errorf("after a new start: %v", got)
		}
	}},
	{"a rehearsal is noted of shards of the owner that are reliable", func(f *logFixture) {
		mine, other := f.take(f.alice, 0), f.take(f.bob, 1)
		f.ok(f.log.Rehearsed(f.Context(), f.alice, []lease.ShardTerm{mine, other}, 3))
		if f.shard(0).Rehearsed != 3 || f.shard(1).Rehearsed != 0 {
			f.Errorf("got %+v and %+v", f.shard(0), f.shard(1))
		}
	}},
}
