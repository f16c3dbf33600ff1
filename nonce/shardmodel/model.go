// Package shardmodel is the in-memory model of a nonce.ShardStore: its sentences written
// down as plainly as possible, as the yardstick that shardtest holds real stores against
// and for tests of the service.
//
// It promises to be obviously right, and neither durability nor speed. It starts no
// goroutine.
package shardmodel

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var _ nonce.ShardStore = (*Store)(nil)

// Store is one database, which several nodes share. Its methods are safe for concurrent
// use.
type Store struct {
	now    func() time.Time
	shards int

	mu      sync.Mutex // guards all below
	owners  []nonce.Shard
	nodes   map[string]*node
	signers map[string]*signer
}

type node struct {
	incarnation int64
	until       time.Time // of its lease; zero: it never had one
}

type signer struct {
	row      nonce.Signer
	live     []byte // as a store has it
	token    int64
	history  map[int64]nonce.Past
	requests map[string]nonce.Request
	due      int64 // 0: not listed
}

// New makes an empty database. now is its clock.
func New(shards int, now func() time.Time) *Store {
	s := &Store{now: now, shards: shards, nodes: make(map[string]*node), signers: make(map[string]*signer)}
	for i := range shards {
		s.owners = append(s.owners, nonce.Shard{Shard: i})
	}
	return s
}

// Register makes a node known, or starts its next incarnation.
func (s *Store) Register(id string) lease.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		n = new(node)
		s.nodes[id] = n
	}
	n.incarnation++
	n.until = time.Time{}
	return lease.Holder{Node: id, Incarnation: n.incarnation}
}

// Shards implements nonce.ShardStore.
func (s *Store) Shards() int { return s.shards }

func aborted(err error) error { return &nonce.StoreError{Outcome: nonce.Aborted, Err: err} }

// Renew implements nonce.ShardStore.
func (s *Store) Renew(_ context.Context, h lease.Holder, ttl time.Duration) (nonce.Renewal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := s.nodes[h.Node], s.now()
	switch {
	case n == nil || n.incarnation < h.Incarnation:
		return nonce.Renewal{}, aborted(lease.ErrWentBack)
	case n.incarnation > h.Incarnation:
		return nonce.Renewal{}, aborted(lease.ErrSuperseded)
	}
	if until := now.Add(ttl); until.After(n.until) {
		n.until = until
	}
	r := nonce.Renewal{Now: now, Until: n.until}
	for _, o := range s.owners {
		if o.Owner.Node == h.Node {
			r.Shards = append(r.Shards, o)
		}
	}
	return r, nil
}

// leased reports whether an owner's lease runs.
func (s *Store) leased(h lease.Holder) bool {
	n := s.nodes[h.Node]
	return n != nil && n.incarnation == h.Incarnation && n.until.After(s.now())
}

// Acquire implements nonce.ShardStore.
func (s *Store) Acquire(_ context.Context, h lease.Holder, shards []int) ([]nonce.Shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]nonce.Shard, len(shards))
	for i, n := range shards {
		o := &s.owners[n]
		mine := o.Owner.Node == h.Node && o.Owner.Incarnation <= h.Incarnation
		free := o.Owner == lease.Holder{} || mine || o.Owner.Node != h.Node && !s.leased(o.Owner)
		taken := free && s.leased(h)
		if taken {
			o.Owner, o.Token = h, o.Token+1
		}
		out[i] = *o
		out[i].Taken = taken
	}
	return out, nil
}

// Release implements nonce.ShardStore.
func (s *Store) Release(_ context.Context, h lease.Holder, terms []nonce.ShardTerm) (given int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range terms {
		if s.owns(h, t) {
			s.owners[t.Shard] = nonce.Shard{Shard: t.Shard, Token: t.Token + 1}
			given++
		}
	}
	return given, nil
}

func (s *Store) owns(h lease.Holder, t nonce.ShardTerm) bool {
	o := &s.owners[t.Shard]
	return o.Owner == h && o.Token == t.Token
}

// Owners implements nonce.ShardStore.
func (s *Store) Owners(context.Context) ([]nonce.Shard, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.owners), s.now(), nil
}

// Load implements nonce.ShardStore.
func (s *Store) Load(_ context.Context, needs []nonce.SignerNeed) (nonce.Loaded, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(needs), nil
}

func (s *Store) load(needs []nonce.SignerNeed) nonce.Loaded {
	out := nonce.Loaded{Now: s.now()}
	for _, need := range needs {
		l := nonce.LoadedSigner{
			Shard:   s.owners[nonce.ShardOf(need.Signer, s.shards)],
			History: make(map[int64]*nonce.Past), Requests: make(map[string]*nonce.Request),
		}
		at := s.signers[need.Signer]
		if at == nil {
			at = new(signer)
		}
		l.Signer, l.Token = at.row, at.token
		l.Signer.Live, l.Err = nonce.ParseLive(at.live, at.row.Next)
		for _, n := range need.History {
			l.History[n] = nil
			if p, ok := at.history[n]; ok {
				l.History[n] = &p
			}
		}
		for _, id := range need.Requests {
			l.Requests[id] = nil
			if q, ok := at.requests[id]; ok {
				l.Requests[id] = &q
			}
		}
		out.Signers = append(out.Signers, l)
	}
	return out
}

// Commit implements nonce.ShardStore.
func (s *Store) Commit(_ context.Context, h lease.Holder, writes []nonce.Write) (nonce.Committed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := nonce.Committed{Now: s.now()}
	before := s.clone()
	for i := range writes {
		w := &writes[i]
		result := nonce.NotOwner
		if s.owns(h, w.Term) && w.Term.Shard == nonce.ShardOf(w.Name, s.shards) {
			var err error
			if result, err = s.write(w, w.Term.Token); err != nil {
				s.signers = before
				return nonce.Committed{}, aborted(err)
			}
		}
		out.Results = append(out.Results, result)
	}
	return out, nil
}

// write applies one write to a signer whose shard is as the writer believes.
func (s *Store) write(w *nonce.Write, token int64) (nonce.WriteResult, error) {
	at := s.signers[w.Name]
	if at == nil {
		at = &signer{history: make(map[int64]nonce.Past), requests: make(map[string]nonce.Request)}
	}
	believed := w.Signer.Version
	if !w.Check {
		believed--
	}
	known := slices.ContainsFunc(w.Requests, func(q nonce.Request) bool { _, ok := at.requests[q.ID]; return ok })
	switch {
	case at.row.Version != believed:
		return nonce.Moved, nil
	case known:
		return nonce.IDKnown, nil
	case w.NotBefore > s.now().UnixMilli():
		return nonce.TooEarly, nil
	case w.Check:
		return nonce.Applied, nil
	case w.Signer.Next < at.row.Next || w.Signer.Floor < at.row.Floor:
		return 0, nonce.ErrInvariant
	}
	for _, p := range w.History {
		if old, ok := at.history[p.Nonce]; ok && old.Attempt > p.Attempt {
			return 0, nonce.ErrInvariant
		}
		p.At = s.now()
		at.history[p.Nonce] = p
	}
	for _, q := range w.Requests {
		at.requests[q.ID] = q
	}
	at.row, at.token, at.live = w.Signer, token, nonce.AppendLive(nil, w.Signer.Live)
	at.row.Live = nil
	if w.DueAt != 0 && (at.due == 0 || w.DueAt < at.due || at.due <= s.now().UnixMilli()) {
		at.due = w.DueAt
	}
	s.signers[w.Name] = at
	return nonce.Applied, nil
}

// clone is a copy of all signers.
func (s *Store) clone() map[string]*signer {
	out := make(map[string]*signer, len(s.signers))
	for name, at := range s.signers {
		c := *at
		c.history, c.requests = make(map[int64]nonce.Past), make(map[string]nonce.Request)
		for n, p := range at.history {
			c.history[n] = p
		}
		for id, q := range at.requests {
			c.requests[id] = q
		}
		out[name] = &c
	}
	return out
}

var errOtherSigner = errors.New("the plan is of another signer than was locked")

// Locked implements nonce.ShardStore.
func (s *Store) Locked(_ context.Context, need nonce.SignerNeed, plan func(nonce.Loaded) (nonce.Write, error)) (nonce.Committed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := plan(s.load([]nonce.SignerNeed{need}))
	if err == nil && w.Name != need.Signer {
		err = aborted(errOtherSigner)
	}
	if err != nil {
		return nonce.Committed{}, err
	}
	before := s.clone()
	result, err := s.write(&w, 0)
	if err != nil {
		s.signers = before
		return nonce.Committed{}, aborted(err)
	}
	return nonce.Committed{Now: s.now(), Results: []nonce.WriteResult{result}}, nil
}

// Due implements nonce.ShardStore.
func (s *Store) Due(_ context.Context, shards []int, limit int) (due []nonce.DueEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, at := range s.signers {
		e := nonce.DueEntry{Shard: nonce.ShardOf(name, s.shards), Signer: name, At: at.due}
		if at.due != 0 && at.due <= s.now().UnixMilli() && slices.Contains(shards, e.Shard) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b nonce.DueEntry) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Signer, b.Signer))
	})
	return due[:min(len(due), limit)], nil
}

// Prune implements nonce.ShardStore.
func (s *Store) Prune(_ context.Context, before time.Time, limit int) (pruned int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.signers {
		for n, p := range at.history {
			if pruned < limit && p.At.Before(before) {
				delete(at.history, n)
				pruned++
			}
		}
	}
	return pruned, nil
}
