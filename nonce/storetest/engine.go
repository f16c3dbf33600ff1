package storetest

import (
	"slices"
	"testing"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// EngineStore is a store that the performance engine can work with.
type EngineStore interface {
	nonce.Store
	nonce.EngineLedger
	nonce.EngineCatalog
}

// RunEngine runs the suite of a store's part in the performance engine. open makes an
// empty database for one test, whose handles are EngineStores.
func RunEngine(t *testing.T, open func(t *testing.T) Database) {
	for _, r := range slices.Concat(enterRules, reserveRules, fencedRules, flushRules, flushedRowRules, flushedHolderRules, flushedChainRules, returnRules, lossRules, copyRules, catalogRules) {
		t.Run(r.name, func(t *testing.T) {
			db := open(t)
			f := &fixture{T: t, Store: db.Open(t), db: db}
			r.test(&engines{fixture: f, EngineStore: f.Store.(EngineStore)})
		})
	}
}

type engineRule struct {
	name string
	test func(*engines)
}

// engines is a fixture of both engines.
type engines struct {
	*fixture
	EngineStore
}

// The servers of the tests, and what is granted where it does not matter.
var (
	redis1 = nonce.Identity{RunID: "run1", ReplID: "history1"}
	redis2 = nonce.Identity{RunID: "run2", ReplID: "history1"}
)

const block = 10

// up makes the cluster ready for signers to enter redis1.
func (f *engines) up() {
	f.Helper()
	for _, to := range []nonce.EngineState{nonce.StateDualWrite, nonce.StatePerformance} {
		f.to(to)
	}
	f.accept(redis1)
}

func (f *engines) state() nonce.EngineCluster {
	f.Helper()
	c, err := f.EngineState(f.Context())
	f.ok(err)
	return c
}

func (f *engines) to(state nonce.EngineState) nonce.EngineCluster {
	f.Helper()
	c, err := f.SwitchEngine(f.Context(), nonce.SwitchTerm{FromGeneration: f.state().Generation, To: state, Reason: "a test", By: "alice"})
	f.ok(err)
	return c
}

func (f *engines) accept(ids ...nonce.Identity) {
	f.Helper()
	f.ok(f.AcceptIdentities(f.Context(), f.state().Generation, ids))
}

func moveOf(s nonce.Snapshot) nonce.MoveTerm {
	return nonce.MoveTerm{ID: s.ID, Token: s.Lease.Token, Version: s.Version, Identity: redis1, Ceiling: s.Next + block}
}

func reserveOf(s nonce.Snapshot, ceiling int64) nonce.ReserveTerm {
	return nonce.ReserveTerm{ID: s.ID, Token: s.Lease.Token, Ceiling: ceiling}
}

// enter gives one signer to the performance engine, if it may.
func (f *engines) enter(h lease.Holder, t nonce.MoveTerm, grant, hold time.Duration) (nonce.Reserved, time.Time) {
	f.Helper()
	res, now, err := f.Enter(f.Context(), h, long, grant, hold, []nonce.MoveTerm{t})
	f.ok(err)
	if len(res) != 1 || now.IsZero() {
		f.Fatalf("got %+v at %v", res, now)
	}
	return res[0], now
}

// entered has alice take a signer, hold n nonces, release some, and enter.
func (f *engines) entered(name string, n int, released ...int64) nonce.Snapshot {
	f.Helper()
	if f.state().State == nonce.StateReliable {
		f.up()
	}
	if res, _ := f.enter(alice, moveOf(f.filled(name, n, released...)), long, long); !res.Applied {
		f.Fatalf("%s did not enter", name)
	}
	return f.all(name)
}

// stays fails the test when do changes the signer.
func (f *engines) stays(name string, do func()) {
	f.Helper()
	before := f.all(name)
	do()
	f.unchanged(before)
}

var enterRules = []engineRule{
	{"a signer enters with its block and grant, under its version, and its lease is renewed", func(f *engines) {
		f.up()
		snap := f.filled(signer, 3, 1)
		res, now := f.enter(alice, moveOf(snap), 2*long, long)
		if !res.Applied || res.Ceiling != 3+block || !exact(res.GrantUntil).Equal(exact(now.Add(2*long))) {
			f.Fatalf("entered at %v: got %+v", now, res)
		}
		want := snap
		want.Standing = nonce.Standing{Engine: nonce.Performance, Identity: redis1, Ceiling: res.Ceiling, GrantUntil: res.GrantUntil, LongestHold: long}
		want.Lease.ExpiresAt = now.Add(long)
		f.unchanged(want)
		sum, err := f.EngineStore.Summary(f.Context(), signer)
		f.ok(err)
		f.same("standing of the summary", sum.Standing, f.all(signer).Standing)
	}},
	{"a signer enters on each condition only", func(f *engines) {
		f.up()
		snap := f.filled(signer, 3)
		for name, try := range map[string]func(t *nonce.MoveTerm) lease.Holder{
			"another owner":       func(*nonce.MoveTerm) lease.Holder { return bob },
			"another incarnation": func(*nonce.MoveTerm) lease.Holder { return alice2 },
			"another token":       func(t *nonce.MoveTerm) lease.Holder { t.Token--; return alice },
			"an older version":    func(t *nonce.MoveTerm) lease.Holder { t.Version--; return alice },
			"another server":      func(t *nonce.MoveTerm) lease.Holder { t.Identity = redis2; return alice },
			"another history":     func(t *nonce.MoveTerm) lease.Holder { t.Identity.ReplID = "history2"; return alice },
		} {
			f.stays(signer, func() {
				term := moveOf(snap)
				h := try(&term)
				if res, _ := f.enter(h, term, long, long); res.Applied {
					f.Errorf("%s: got %+v", name, res)
				}
			})
		}
		if res, _ := f.enter(alice, moveOf(snap), long, long); !res.Applied {
			f.Error("refused with all conditions met")
		}
		f.stays(signer, func() {
			if res, _ := f.enter(alice, moveOf(snap), 2*long, long); res.Applied {
				f.Error("a signer entered twice")
			}
		})
	}},
	{"nobody enters a server that is not accepted any more", func(f *engines) {
		f.up()
		f.accept(redis2)
		snap := f.filled(signer, 1)
		f.stays(signer, func() {
			if res, _ := f.enter(alice, moveOf(snap), long, long); res.Applied {
				f.Errorf("got %+v", res)
			}
		})
		f.accept(redis2, redis1)
		if res, _ := f.enter(alice, moveOf(snap), long, long); !res.Applied {
			f.Error("refused by a server that is accepted again")
		}
	}},
	{"nobody enters unless the cluster is in PERFORMANCE", func(f *engines) {
		f.up()
		snap := f.filled(signer, 1)
		for _, state := range []nonce.EngineState{nonce.StateDrain, nonce.StateDegraded, nonce.StateReliable, nonce.StateDualWrite} {
			f.to(state)
			f.stays(signer, func() {
				if res, _ := f.enter(alice, moveOf(snap), long, long); res.Applied {
					f.Errorf("%s: got %+v", state, res)
				}
			})
		}
	}},
	{"signers enter together, each or not", func(f *engines) {
		f.up()
		a, b := f.filled("a", 1), f.filled("b", 2)
		late := moveOf(a)
		late.Version--
		res, _, err := f.Enter(f.Context(), alice, long, long, long, []nonce.MoveTerm{moveOf(b), late})
		f.ok(err)
		if len(res) != 2 || !res[0].Applied || res[0].Ceiling != 2+block || res[1].Applied {
			f.Errorf("got %+v", res)
		}
	}},
	{"an acquire leaves engine, version, block and grant", func(f *engines) {
		f.entered(signer, 2)
		before := f.all(signer)
		got := f.try(alice2, long, nonce.Need{Signer: signer})
		if !got.Acquired || got.Version != before.Version || got.Lease.Token <= before.Lease.Token {
			f.Errorf("got %+v", got)
		}
		f.same("standing", got.Standing, before.Standing)
	}},
}

var reserveRules = []engineRule{
	{"a block is reserved under the version there is, and renews the lease", func(f *engines) {
		snap := f.entered(signer, 2)
		res, now, err := f.Reserve(f.Context(), alice, 2*long, 2*long, 2*long, []nonce.ReserveTerm{reserveOf(snap, 50)})
		f.ok(err)
		if !res[0].Applied || res[0].Ceiling != 50 || !exact(res[0].GrantUntil).Equal(exact(now.Add(2*long))) {
			f.Fatalf("at %v: got %+v", now, res[0])
		}
		want := snap
		want.Ceiling, want.GrantUntil, want.LongestHold = 50, now.Add(2*long), 2*long
		want.Lease.ExpiresAt = now.Add(2 * long)
		f.unchanged(want)
	}},
	{"ceiling, grant and the longest hold never fall", func(f *engines) {
		snap := f.entered(signer, 2)
		res, _, err := f.Reserve(f.Context(), alice, long, short, short, []nonce.ReserveTerm{reserveOf(snap, 1)})
		f.ok(err)
		if !res[0].Applied || res[0].Ceiling != snap.Ceiling || !exact(res[0].GrantUntil).Equal(exact(snap.GrantUntil)) {
			f.Errorf("got %+v, want %+v still", res[0], snap.Standing)
		}
		f.same("standing", f.all(signer).Standing, snap.Standing)
		f.give(alice, snap)
		f.enter(alice, nonce.MoveTerm{ID: snap.ID, Token: snap.Lease.Token, Version: snap.Version, Identity: redis1}, short, short)
		f.same("standing after another entry", f.all(signer).Standing, snap.Standing)
	}},
	{"nothing is reserved for who is not the owner, nor in the reliable engine", func(f *engines) {
		snap := f.entered(signer, 2)
		reliable := f.filled(other, 1)
		old := reserveOf(snap, 50)
		old.Token--
		for name, c := range map[string]struct {
			h lease.Holder
			t nonce.ReserveTerm
		}{
			"another owner":       {bob, reserveOf(snap, 50)},
			"another incarnation": {alice2, reserveOf(snap, 50)},
			"an older token":      {alice, old},
			"the reliable engine": {alice, reserveOf(reliable, 50)},
			"no such signer":      {alice, nonce.ReserveTerm{ID: 1 << 40, Token: 1, Ceiling: 50}},
		} {
			f.stays(signer, func() {
				f.stays(other, func() {
					res, now, err := f.Reserve(f.Context(), c.h, long, 2*long, 2*long, []nonce.ReserveTerm{c.t})
					if f.ok(err); res[0].Applied || now.IsZero() {
						f.Errorf("%s: got %+v at %v", name, res[0], now)
					}
				})
			})
		}
	}},
	{"blocks are reserved together, in any order, each or not", func(f *engines) {
		a, b := f.entered("a", 1), f.entered("b", 1)
		gone := reserveOf(a, 30)
		gone.Token--
		res, _, err := f.Reserve(f.Context(), alice, long, long, long, []nonce.ReserveTerm{reserveOf(b, 20), gone, reserveOf(a, 40)})
		f.ok(err)
		if res[0].Ceiling != 20 || res[1].Applied || res[2].Ceiling != 40 {
			f.Errorf("got %+v", res)
		}
	}},
}

// give returns a signer to the reliable engine.
func (f *engines) give(h lease.Holder, s nonce.Snapshot) {
	f.Helper()
	if !f.tryGive(h, moveOf(s)) {
		f.Fatalf("%s did not return", s.Signer)
	}
}

func (f *engines) tryGive(h lease.Holder, t nonce.MoveTerm) bool {
	f.Helper()
	done, err := f.Return(f.Context(), h, []nonce.MoveTerm{t})
	f.ok(err)
	return done[0]
}

// fencedRules: what the reliable engine does to a signer of the other.
var fencedRules = []engineRule{
	{"the reliable engine commits nothing to a signer that has entered, under the same token and version", func(f *engines) {
		f.up()
		snap := f.filled(signer, 3, 1)
		edits := map[string]*edit{
			"a new nonce":    on(snap).hold(1, long),
			"new nonces":     on(snap).hold(3, long),
			"a released one": on(snap).again(1, 1, long).asked("r"),
			"a mark":         on(snap).end(0, 1, nonce.Consumed),
			"a floor":        on(snap).raise(2),
		}
		f.enter(alice, moveOf(snap), long, long)
		for name, e := range edits {
			f.refused(alice, e)
			if f.Failed() {
				f.Fatal(name)
			}
		}
		if res := f.commit(alice, check(snap)); res.Applied[0] {
			f.Error("a check found it unchanged")
		}
		free := f.filled(other, 1)
		if res := f.commit(alice, on(snap).hold(1, long), on(free).hold(1, long)); res.Applied[0] || !res.Applied[1] {
			f.Errorf("beside another signer: got %v", res.Applied)
		}
	}},
	{"locked does not show a signer that has entered to its plan", func(f *engines) {
		f.entered(signer, 2)
		f.stays(signer, func() {
			_, err := f.EngineStore.Locked(f.Context(), nonce.Need{Signer: signer}, func(s nonce.Snapshot) (nonce.Change, error) {
				f.Error("the plan was asked")
				return on(s).hold(1, long).Change, nil
			})
			if !isOtherEngine(err) {
				f.Errorf("got %v", err)
			}
		})
		f.locked(nonce.Need{Signer: other}, check)
	}},
	{"pruning leaves signers alone that have entered", func(f *engines) {
		f.up()
		snap := f.filled(signer, 3)
		res := f.applied(alice, on(snap).end(0, 1, nonce.Consumed).end(1, 1, nonce.Consumed))
		f.passes(res.Now.Add(2 * short))
		query := nonce.PruneQuery{Age: short, Signers: 10, Found: 10, Rows: 10}
		page, err := f.Prunable(f.Context(), query)
		if f.ok(err); len(page.Found) != 1 {
			f.Fatalf("before: found %+v", page.Found)
		}
		f.enter(alice, moveOf(f.all(signer)), long, long)
		if page, err = f.Prunable(f.Context(), query); err != nil || len(page.Found) != 0 {
			f.Errorf("found %+v, %v", page.Found, err)
		}
		for _, h := range []lease.Holder{alice, {}} {
			f.stays(signer, func() {
				if got := f.pruning(h, short, pieceOf(f.all(signer), 10)); got[0].Applied {
					f.Errorf("%v pruned %+v", h, got)
				}
			})
		}
	}},
	{"due finds signers that have entered, whose owner sweeps them in Redis", func(f *engines) {
		f.up()
		res := f.applied(alice, on(f.take(alice, signer)).hold(1, short))
		f.enter(alice, moveOf(f.all(signer)), long, long)
		f.passes(res.Now.Add(short))
		if due, _, err := f.Due(f.Context(), 10); err != nil || len(due) != 1 {
			f.Errorf("got %+v, %v", due, err)
		}
	}},
}
