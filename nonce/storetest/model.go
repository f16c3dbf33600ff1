package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

var modelRules = []rule{
	{"a random script leaves the store as it leaves the model", func(f *fixture) {
		for seed := range uint64(4) {
			newScript(f, seed).run(60)
		}
	}},
}

// script does the same to the store and to the model and compares all they say.
// What it does follows from the model's state and the seed alone.
type script struct {
	*fixture
	rng   *rand.Rand
	model *fixture
	names []string
	log   []string
	steps int // done
}

// figuresEvery is after how many steps the figures are compared, which costs a store more
// than all else.
const figuresEvery = 6

func newScript(f *fixture, seed uint64) *script {
	clock := f.now()
	model := memstore.New(func() time.Time { return clock })
	return &script{
		fixture: f,
		rng:     rand.New(rand.NewPCG(seed, 1)),
		model:   &fixture{T: f.T, Store: model, db: Database{Advance: func(d time.Duration) { clock = clock.Add(d) }}},
		names:   []string{fmt.Sprint("a", seed), fmt.Sprint("b", seed)},
	}
}

func (s *script) run(steps int) {
	for s.steps = range steps {
		name := s.names[s.rng.IntN(len(s.names))]
		h := []lease.Holder{alice, alice2, bob}[s.rng.IntN(3)]
		switch s.rng.IntN(11) {
		case 0, 1:
			s.acquire(h, name)
		case 2:
			s.locked(name)
		case 3:
			s.release(h)
		case 4:
			s.prune()
		default:
			s.commit(name)
		}
		for _, name := range s.names {
			s.compare(name)
		}
		if s.Failed() {
			s.Fatalf("the last steps were:\n%s", strings.Join(s.log[max(0, len(s.log)-4):], "\n"))
		}
	}
}

// both does the same to the two and compares what it says.
func (s *script) both(what string, do func(*fixture) string) {
	s.Helper()
	s.log = append(s.log, what)
	if got, want := do(s.fixture), do(s.model); got != want {
		s.Errorf("%s:\n  got %s\nmodel %s", what, got, want)
	}
}

func (s *script) acquire(h lease.Holder, name string) {
	ttl := []time.Duration{long, short}[s.rng.IntN(2)]
	s.both(fmt.Sprint("acquire ", name, h, ttl), func(f *fixture) string {
		snap := f.try(h, ttl, nonce.Need{Signer: name, Released: 3, Due: 100})
		if ttl == short && snap.Acquired {
			f.passes(snap.Lease.ExpiresAt)
			snap.Now = snap.Lease.ExpiresAt // it may have ended before it was read, or not
		}
		return fmt.Sprint(snap.Acquired, timeless(snap))
	})
}

// commit changes both signers, mostly as their owner.
func (s *script) commit(name string) {
	owner := s.model.all(name).Lease.Holder
	var edits []*edit
	for _, n := range s.names {
		e := s.anything(s.model.all(n))
		if s.rng.IntN(8) == 0 {
			e.Version--
		}
		if s.rng.IntN(8) == 0 {
			e.Token--
		}
		edits = append(edits, e)
	}
	s.both(fmt.Sprintf("commit by %v: %+v", owner, changesOf(edits)), func(f *fixture) string {
		res, err := f.tryCommit(owner, f.own(edits)...)
		if err != nil {
			return "outcome " + nonce.OutcomeOf(err).String()
		}
		f.passes(res.Now.Add(short))
		return fmt.Sprint(res.Applied)
	})
}

func (s *script) locked(name string) {
	e := s.anything(s.model.all(name))
	s.both(fmt.Sprintf("locked %+v", e.Change), func(f *fixture) string {
		var seen string
		need := nonce.Need{Signer: name, Released: 2, Due: 100}
		at, err := f.Store.Locked(f.Context(), need, func(snap nonce.Snapshot) (nonce.Change, error) {
			seen = timeless(snap)
			mine := *e
			mine.ID, mine.Version = snap.ID, snap.Version
			return mine.Change, nil
		})
		if err != nil {
			return seen + " outcome " + nonce.OutcomeOf(err).String()
		}
		f.passes(at.Add(short))
		return seen
	})
}

func (s *script) release(h lease.Holder) {
	s.both(fmt.Sprint("release ", h), func(f *fixture) string {
		var terms []nonce.ReleaseTerm
		for _, name := range s.names {
			snap := f.load(nonce.Need{Signer: name})
			terms = append(terms, nonce.ReleaseTerm{ID: snap.ID, Token: snap.Lease.Token})
		}
		return fmt.Sprint(f.Store.Release(f.Context(), h, terms))
	})
}

// prune prunes a few rows of both signers, mostly as their owner.
func (s *script) prune() {
	h := s.model.all(s.names[0]).Lease.Holder
	age := []time.Duration{short, short, long}[s.rng.IntN(3)]
	rows, version := 1+s.rng.IntN(4), s.rng.Int64N(8)/7
	s.both(fmt.Sprintf("prune %d rows older than %v by %v, version less %d", rows, age, h, version), func(f *fixture) string {
		var pieces []nonce.PrunePiece
		for _, name := range s.names {
			p := pieceOf(f.load(nonce.Need{Signer: name}), rows)
			p.Version -= version
			pieces = append(pieces, p)
		}
		return fmt.Sprintf("%+v", f.pruning(h, age, pieces...))
	})
}

// own is the edits with this store's keys of the signers.
func (f *fixture) own(edits []*edit) []*edit {
	out := make([]*edit, len(edits))
	for i, e := range edits {
		mine := *e
		mine.ID = f.load(nonce.Need{Signer: e.Signer}).ID
		out[i] = &mine
	}
	return out
}

// anything is a random change that obeys the rules, or, now and then, does not.
func (s *script) anything(snap nonce.Snapshot) *edit {
	e := on(snap)
	for _, row := range inOrder(snap.Rows) {
		switch s.rng.IntN(4) {
		case 0:
			s.move(e, row)
		case 1:
			if row.Status == nonce.Released && row.Nonce >= snap.Floor {
				e.again(row.Nonce, row.Attempt, s.hold()).of(s.holder())
			}
		}
	}
	for range s.rng.IntN(3) {
		e.hold(1, s.hold()).of(s.holder())
	}
	if s.rng.IntN(3) == 0 {
		e.asked(fmt.Sprint("r", s.rng.IntN(12)))
	}
	if s.rng.IntN(8) == 0 {
		e.raise(max(e.Floor, e.Next-s.rng.Int64N(4)+1))
	}
	if s.rng.IntN(8) == 0 && e.Floor > 0 {
		if n := s.rng.Int64N(e.Floor); n >= snap.Pruned && !slices.ContainsFunc(e.Rows, func(rc nonce.RowChange) bool { return rc.Nonce == n }) {
			e.repairSkipped(n) // which may have a row
		}
	}
	if s.rng.IntN(20) == 0 {
		e.row(nonce.RowChange{Nonce: e.Next + 5, FromStatus: nonce.Held, FromAttempt: 1, Status: nonce.Consumed, Attempt: 1})
	}
	return e
}

// move changes a hold, ends it, consumes what was released, adds a hash to what is
// consumed, or repairs. Now and then that is none that the store may do.
func (s *script) move(e *edit, row nonce.Row) {
	hashes := s.rng.Int64N(nonce.MaxHashes + 1)
	reason := []string{"", nonce.ReasonUnknown, nonce.ReasonForwarded}[s.rng.IntN(3)]
	switch {
	case s.rng.IntN(4) == 0:
		if e.repair(row.Nonce, row.Status, row.Attempt).signed(hashes).of(s.holder()); s.rng.IntN(10) == 0 {
			e.because(reason)
		}
	case row.Status == nonce.Consumed:
		e.row(nonce.RowChange{Nonce: row.Nonce, FromStatus: row.Status, FromAttempt: row.Attempt, Status: row.Status, Attempt: row.Attempt}).signed(hashes).because(reason)
	case row.Status == nonce.Held && s.rng.IntN(2) == 0:
		e.goOn(row.Nonce, row.Attempt, s.hold(), hashes, reason).of(row.Holder)
	case row.Status == nonce.Held:
		e.end(row.Nonce, row.Attempt, []nonce.Status{nonce.Released, nonce.Consumed}[s.rng.IntN(2)]).of(row.Holder)
	case row.Status == nonce.Released && s.rng.IntN(3) == 0:
		e.row(nonce.RowChange{
			Nonce: row.Nonce, FromStatus: row.Status, FromAttempt: row.Attempt,
			Status: nonce.Consumed, Attempt: row.Attempt, TxHash: nonce.TxHash{0: 1}, Holder: row.Holder,
		})
	}
}

func (s *script) holder() nonce.Principal { return []nonce.Principal{0, 0, ann, ben}[s.rng.IntN(4)] }

func (s *script) hold() time.Duration { return []time.Duration{long, short}[s.rng.IntN(2)] }

// compare compares all that the two say of a signer, and the count of holds with
// the rows.
func (s *script) compare(name string) {
	s.Helper()
	ids := nonce.Need{Signer: name, Released: 2, Due: 100}
	for i := range 12 {
		ids.RequestIDs = append(ids.RequestIDs, fmt.Sprint("r", i))
	}
	for what, ask := range map[string]func(*fixture) string{
		"all":      func(f *fixture) string { return timeless(f.all(name)) },
		"requests": func(f *fixture) string { return timeless(f.load(ids)) },
		"list": func(f *fixture) string {
			return fmt.Sprintf("%+v", withoutTimes(f.list(nonce.ListQuery{Signer: name, Limit: 1000}).Rows))
		},
		"unknown holds": func(f *fixture) string {
			return fmt.Sprintf("%+v", withoutTimes(f.list(nonce.ListQuery{Signer: name, Status: nonce.Held, Unknown: true, Limit: 1000}).Rows))
		},
		"figures": func(f *fixture) (all string) {
			if s.steps%figuresEvery > 0 {
				return ""
			}
			for filter := nonce.AllSigners; filter <= nonce.RepeatSigners; filter++ {
				for _, page := range [][]nonce.SignerFigures{
					f.signers(nonce.SignersQuery{Filter: filter, Limit: 1000}), f.signers(nonce.SignersQuery{Filter: filter, Names: s.names, Limit: 9}),
				} {
					page = slices.DeleteFunc(page, func(g nonce.SignerFigures) bool { return g.Signer != name })
					for i := range page {
						if !page[i].OldestHold.IsZero() {
							page[i].OldestHold = time.Unix(1, 0).UTC() // there is one
						}
					}
					all += fmt.Sprintf("%+v\n", page)
				}
			}
			return all
		},
		"summary": func(f *fixture) string {
			sum, err := f.Store.Summary(f.Context(), name)
			live := sum.Lease.Held(sum.Now)
			sum.Now, sum.Lease.ExpiresAt = time.Time{}, time.Time{}
			return fmt.Sprintf("%+v live %t %v", sum, live, err)
		},
	} {
		if got, want := ask(s.fixture), ask(s.model); got != want {
			s.Errorf("%s of %s:\n  got %s\nmodel %s", what, name, got, want)
		}
	}
	snap := s.all(name)
	held := slices.DeleteFunc(slices.Clone(snap.Rows), func(r nonce.Row) bool { return r.Status != nonce.Held })
	if int64(len(held)) != snap.Held {
		s.Errorf("%s: %d rows are held, the signer's row says %d", name, len(held), snap.Held)
	}
}

// timeless is a snapshot without keys and times, which differ between stores.
func timeless(snap nonce.Snapshot) string {
	live := snap.Lease.Held(snap.Now)
	snap.ID, snap.Lease.ExpiresAt = 0, time.Time{}
	snap.Rows, snap.Due = withoutTimes(snap.Rows), withoutTimes(snap.Due)
	slices.SortFunc(snap.Due, func(a, b nonce.Row) int { return cmp.Compare(a.Nonce, b.Nonce) })
	return fmt.Sprintf("live %t %s", live, printed(snap))
}

func withoutTimes(rows []nonce.Row) []nonce.Row {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].UpdatedAt = time.Time{}
		if !rows[i].HeldUntil.IsZero() {
			rows[i].HeldUntil = time.Unix(1, 0).UTC() // there is one
		}
	}
	return rows
}

func changesOf(edits []*edit) []nonce.Change {
	out := make([]nonce.Change, len(edits))
	for i, e := range edits {
		out[i] = e.Change
	}
	return out
}
