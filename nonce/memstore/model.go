// Package memstore is the in-memory model of a nonce.Store: its sentences written
// down as plainly as possible, as the yardstick that storetest holds real stores against
// and for tests of the service.
//
// It promises to be obviously right, and neither durability nor speed. It starts no
// goroutine.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.Store = (*Store)(nil)

// Store is one database, which several nodes share. Its methods are safe for concurrent
// use.
type Store struct {
	now    func() time.Time
	shards int

	generation atomic.Uint64

	mu    sync.Mutex // guards all below
	hooks Hooks
	db    *database
}

// database is what a backup copies.
type database struct {
	owners  []lease.Shard
	longest []int64 // the longest hold of each, milliseconds
	goal    nonce.EngineGoal
	nodes   map[string]*node
	signers map[string]*signer
	names   map[nonce.Principal]string
	sent    []sent
}

type node struct {
	url, mode            string
	incarnation, counter int64
	until                time.Time // of its lease; zero: it never had one
	left                 bool
	startedAt, seenAt    time.Time
}

type signer struct {
	row      nonce.Signer
	live     []byte // as a store has it
	token    int64
	written  time.Time
	history  map[int64]nonce.Past
	requests map[string]request
	due      int64       // 0: not listed
	watch    nonce.Watch // zero: not listed
	id       int64       // in the order in which signers began
}

type request struct {
	nonce.Remembered
	at time.Time
}

// New makes an empty database. now is its clock, read once a call and cut to milliseconds,
// as stores do.
func New(shards int, now func() time.Time) *Store {
	s := &Store{now: now, shards: shards, db: &database{
		nodes: make(map[string]*node), signers: make(map[string]*signer), names: make(map[nonce.Principal]string),
	}}
	for i := range shards {
		s.db.owners = append(s.db.owners, lease.Shard{Shard: i})
		s.db.longest = append(s.db.longest, 0)
	}
	return s
}

// call runs fn with the lock held, between the two hooks.
func (s *Store) call(ctx context.Context, c Call, fn func(db *database, now time.Time) error) error {
	s.mu.Lock()
	hooks := s.hooks
	s.mu.Unlock()
	c.Done = ctx.Done()
	if hooks.Before != nil {
		if err := hooks.Before(c); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return &nonce.StoreError{Outcome: nonce.NotSent, Err: err}
	}
	if err := s.locked(fn); err != nil {
		return err
	}
	if hooks.After != nil {
		return hooks.After(c)
	}
	return nil
}

func (s *Store) locked(fn func(db *database, now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn(s.db, s.now().Truncate(time.Millisecond))
}

// Shards implements nonce.Store.
func (s *Store) Shards() int { return s.shards }

// Name is "memory".
func (s *Store) Name() string { return "memory" }

// Close does nothing: other nodes of the test may go on.
func (s *Store) Close() error { return nil }

// Ping asks the hooks only.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, Call{Op: OpPing}, func(*database, time.Time) error { return nil })
}

// leased reports whether an owner's lease runs.
func (db *database) leased(h lease.Holder, now time.Time) bool {
	n := db.nodes[h.Node]
	return n != nil && n.incarnation == h.Incarnation && n.until.After(now)
}

// Acquire implements nonce.Store.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, shards []int) ([]lease.Shard, error) {
	out := make([]lease.Shard, len(shards))
	err := s.call(ctx, Call{Op: OpAcquire, Holder: h, Shards: shards}, func(db *database, now time.Time) error {
		for i, n := range shards {
			o := &db.owners[n]
			mine := o.Owner.Node == h.Node && o.Owner.Incarnation <= h.Incarnation
			free := o.Owner == lease.Holder{} || mine || o.Owner.Node != h.Node && !db.leased(o.Owner, now)
			taken := free && db.leased(h, now)
			if taken {
				o.Owner, o.Token = h, o.Token+1
			}
			out[i] = *o
			out[i].Taken = taken
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Release implements nonce.Store.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []lease.ShardTerm) (given int, err error) {
	err = s.call(ctx, Call{Op: OpRelease, Holder: h, Terms: terms}, func(db *database, _ time.Time) error {
		for _, t := range terms {
			if db.owns(h, t) {
				o := &db.owners[t.Shard]
				o.Owner, o.Token = lease.Holder{}, t.Token+1
				given++
			}
		}
		return nil
	})
	return given, err
}

func (db *database) owns(h lease.Holder, t lease.ShardTerm) bool {
	o := &db.owners[t.Shard]
	return o.Owner == h && o.Token == t.Token
}

// Load implements nonce.Store.
func (s *Store) Load(ctx context.Context, needs []nonce.SignerNeed) (out nonce.Loaded, err error) {
	err = s.call(ctx, Call{Op: OpLoad, Needs: needs}, func(db *database, now time.Time) error {
		out = db.load(needs, now)
		return nil
	})
	return out, err
}

// signer is a signer's row, or one of a signer that has none.
func (db *database) signer(name string) *signer {
	if at := db.signers[name]; at != nil {
		return at
	}
	return &signer{history: make(map[int64]nonce.Past), requests: make(map[string]request)}
}

// read is the row with what lives of the signer.
func (at *signer) read() (row nonce.Signer, err error) {
	row = at.row
	row.Live, err = nonce.ParseLive(at.live, at.row.Next)
	return row, err
}

func (db *database) load(needs []nonce.SignerNeed, now time.Time) nonce.Loaded {
	out := nonce.Loaded{Now: now}
	for _, need := range needs {
		at := db.signer(need.Signer)
		l := nonce.LoadedSigner{
			Token: at.token, Shard: db.owners[nonce.ShardOf(need.Signer, len(db.owners))],
			History: make(map[int64]*nonce.Past), Requests: make(map[string]*nonce.Remembered),
		}
		l.Signer, l.Err = at.read()
		for _, n := range need.History {
			l.History[n] = nil
			if p, ok := at.history[n]; ok {
				l.History[n] = &p
			}
		}
		for _, id := range need.Requests {
			l.Requests[id] = nil
			if q, ok := at.requests[id]; ok {
				l.Requests[id] = &q.Remembered
			}
		}
		out.Signers = append(out.Signers, l)
	}
	return out
}

var errGeneration = errors.New("the database may have become another one")

// Commit implements nonce.Store.
func (s *Store) Commit(ctx context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	out, err := s.ship(ctx, Call{Op: OpCommit, Holder: h, Writes: writes}, nonce.Shipment{Writes: writes})
	return out.Committed, err
}

func (s *Store) ship(ctx context.Context, c Call, what nonce.Shipment) (out nonce.Shipped, err error) {
	h, writes := c.Holder, what.Writes
	err = s.call(ctx, c, func(db *database, now time.Time) error {
		is := s.generation.Load()
		if slices.ContainsFunc(writes, func(w nonce.Write) bool { return w.Generation != is }) || len(what.Shards) > 0 && what.Generation != is {
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errGeneration}
		}
		out.Now = now
		for i := range writes {
			w := &writes[i]
			result, err := nonce.NotOwner, error(nil)
			switch {
			case !db.believes(h, w.Term) || w.Term.Shard != nonce.ShardOf(w.Name, s.shards):
			case s.hooks.RowLocked != nil && s.hooks.RowLocked(w.Name):
				result = nonce.Moved
			default:
				result, err = db.judge(w, now)
			}
			if err != nil {
				return aborted(err)
			}
			out.Results = append(out.Results, result)
		}
		for i := range writes {
			if out.Results[i] == nonce.Applied {
				db.apply(&writes[i], writes[i].Term.Token, now)
			}
		}
		db.shipped(h, &what, &out)
		return nil
	})
	if err != nil {
		return nonce.Shipped{}, err
	}
	return out, nil
}

// judge says what becomes of a write to a signer whose shard is as the writer believes.
func (db *database) judge(w *nonce.Write, now time.Time) (nonce.WriteResult, error) {
	at := db.signer(w.Name)
	known := slices.ContainsFunc(w.Requests, func(q nonce.Remembered) bool { _, ok := at.requests[q.ID]; return ok })
	falls := w.Signer.Next < at.row.Next || w.Signer.Floor < at.row.Floor
	older := slices.ContainsFunc(w.History, func(p nonce.Past) bool {
		was, there := at.history[p.Nonce]
		return there && (!p.Again || was.Attempt > p.Attempt)
	})
	switch {
	case at.row.Version != w.Believed():
		return nonce.Moved, nil
	case known:
		return nonce.IDKnown, nil
	case w.NotBefore > now.UnixMilli():
		return nonce.TooEarly, nil
	case !w.Check && (falls || older):
		return 0, nonce.ErrInvariant
	}
	return nonce.Applied, nil
}

// apply writes what was judged.
func (db *database) apply(w *nonce.Write, token int64, now time.Time) {
	at := db.signer(w.Name)
	at.list(w.DueAt, now)
	at.watched(w.Watch)
	if w.Check {
		return
	}
	if at.id == 0 {
		at.id = int64(len(db.signers)) + 1
	}
	for _, p := range w.History {
		p.At, p.Again = now, false
		at.history[p.Nonce] = p
	}
	for _, q := range w.Requests {
		at.requests[q.ID] = request{q, now}
	}
	ceiling, epoch := max(at.row.Ceiling, w.Signer.Ceiling), max(at.row.Epoch, w.Signer.Epoch)
	at.row, at.token, at.written, at.live = w.Signer, token, now, nonce.AppendLive(nil, w.Signer.Live)
	at.row.Live, at.row.Ceiling, at.row.Epoch = nil, ceiling, epoch
	db.signers[w.Name] = at
}

// list lists the signer for a time, or no more.
func (at *signer) list(due int64, now time.Time) {
	come := at.due <= now.UnixMilli() // or it is not listed
	switch {
	case due == nonce.Unlisted && come:
		at.due = 0
	case due > 0 && (come || due < at.due):
		at.due = due
	}
}

// watched lists the signer as one that is watched, or no more.
func (at *signer) watched(as nonce.Watch) {
	switch {
	case as.Kind == nonce.WatchOff:
		at.watch = nonce.Watch{}
	case as.Kind > nonce.WatchOn || as.Kind == nonce.WatchOn && at.watch.Kind == 0:
		at.watch = as
	}
}

func (at *signer) clone() *signer {
	c := *at
	c.history, c.requests = maps.Clone(at.history), maps.Clone(at.requests)
	return &c
}

func (db *database) clone() *database {
	c := &database{
		owners: slices.Clone(db.owners), longest: slices.Clone(db.longest), goal: db.goal, nodes: make(map[string]*node), signers: make(map[string]*signer), names: maps.Clone(db.names),
		sent: slices.Clone(db.sent),
	}
	for name, at := range db.signers {
		c.signers[name] = at.clone()
	}
	for id, n := range db.nodes {
		copied := *n
		c.nodes[id] = &copied
	}
	return c
}

var errOtherSigner = errors.New("the plan is of another signer than was locked")

// Locked implements nonce.Store.
func (s *Store) Locked(ctx context.Context, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (out nonce.Committed, err error) {
	err = s.call(ctx, Call{Op: OpLocked, Needs: []nonce.SignerNeed{need}}, func(db *database, now time.Time) error {
		w, err := plan(db.load([]nonce.SignerNeed{need}, now))
		if err == nil && w.Name != need.Signer {
			err = aborted(errOtherSigner)
		}
		if err != nil {
			return err
		}
		result, err := db.judge(&w, now)
		if db.owners[nonce.ShardOf(w.Name, s.shards)].Performance {
			result, err = nonce.NotOwner, nil
		}
		if err != nil {
			return aborted(err)
		}
		if result == nonce.Applied {
			db.apply(&w, 0, now)
		}
		out = nonce.Committed{Now: now, Results: []nonce.WriteResult{result}}
		return nil
	})
	if err != nil {
		return nonce.Committed{}, err
	}
	return out, nil
}

// Due implements nonce.Store.
func (s *Store) Due(ctx context.Context, shards []int, limit int) (due []nonce.DueEntry, err error) {
	err = s.call(ctx, Call{Op: OpDue, Shards: shards}, func(db *database, now time.Time) error {
		for name, at := range db.signers {
			e := nonce.DueEntry{Shard: nonce.ShardOf(name, s.shards), Signer: name, At: at.due}
			if at.due != 0 && at.due <= now.UnixMilli() && slices.Contains(shards, e.Shard) {
				due = append(due, e)
			}
		}
		slices.SortFunc(due, func(a, b nonce.DueEntry) int {
			return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Signer, b.Signer))
		})
		due = due[:min(len(due), limit)]
		return nil
	})
	return due, err
}

// Watched implements nonce.Store.
func (s *Store) Watched(ctx context.Context, shards []int, after int64, limit int) (list []nonce.WatchEntry, err error) {
	err = s.call(ctx, Call{Op: OpWatched, Shards: shards}, func(db *database, _ time.Time) error {
		for name, at := range db.signers {
			if at.watch.Kind != 0 && at.id > after && slices.Contains(shards, nonce.ShardOf(name, s.shards)) {
				list = append(list, nonce.WatchEntry{ID: at.id, Signer: name, Watch: at.watch})
			}
		}
		slices.SortFunc(list, func(a, b nonce.WatchEntry) int { return cmp.Compare(a.ID, b.ID) })
		list = list[:min(len(list), limit)]
		return nil
	})
	return list, err
}

// Pin implements nonce.Store.
func (s *Store) Pin(ctx context.Context, shard int, node string) error {
	return s.call(ctx, Call{Op: OpPin, Shards: []int{shard}}, func(db *database, _ time.Time) error {
		db.owners[shard].Pinned = node
		return nil
	})
}

// Prune implements nonce.Store.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (pruned int, err error) {
	err = s.call(ctx, Call{Op: OpPrune}, func(db *database, _ time.Time) error {
		for _, at := range db.signers {
			for n, p := range at.history {
				if pruned < limit && p.At.Before(before) {
					delete(at.history, n)
					pruned++
				}
			}
		}
		return nil
	})
	return pruned, err
}

// PruneRequests implements nonce.Database.
func (s *Store) PruneRequests(ctx context.Context, age time.Duration, limit int) (pruned int, err error) {
	err = s.call(ctx, Call{Op: OpPrune}, func(db *database, now time.Time) error {
		for _, at := range db.signers {
			for id, q := range at.requests {
				if pruned < limit && q.at.Before(now.Add(-age)) {
					delete(at.requests, id)
					pruned++
				}
			}
		}
		return nil
	})
	return pruned, err
}
