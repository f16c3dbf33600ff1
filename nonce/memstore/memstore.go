// Package memstore is the in-memory model of a nonce.Store: the rules of the
// interface written down as plainly as possible, for tests of the service and as
// the yardstick that storetest holds real stores against.
//
// It promises to be obviously right and to fail on demand (see Hooks, Backup). It
// promises neither durability nor speed: reads of a signer look at all its rows.
// It starts no goroutine.
package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

var (
	_ nonce.Store         = (*Store)(nil)
	_ nonce.EngineLedger  = (*Store)(nil)
	_ nonce.EngineCatalog = (*Store)(nil)
)

// Store is one database. Several nodes of a test share one Store. Its methods
// are safe for concurrent use.
type Store struct {
	now func() time.Time

	mu    sync.Mutex // guards all below
	hooks Hooks
	epoch uint64
	locks map[int]*FlushLock // of flush shards
	db    *database
}

// database is what a backup copies.
type database struct {
	signers map[string]*signer
	byID    map[int64]*signer
	nodes   map[string]*node
	names   map[nonce.Principal]string
	cluster nonce.EngineCluster // Now is left empty
}

type signer struct {
	id                         int64
	name                       string
	next, floor, version, held int64
	pruned                     int64
	owner                      lease.Holder
	token                      int64
	expiresAt                  time.Time
	standing                   nonce.Standing
	rows                       map[int64]nonce.Row
	requests                   map[string]request
}

type request struct {
	nonce.Request
	createdAt time.Time
}

type node struct {
	url, mode            string
	incarnation, counter int64
	signers              int64
	left                 bool
	patience             time.Duration
	startedAt, seenAt    time.Time
}

// New makes an empty store whose clock is now, read once a call and cut to
// microseconds as databases do.
func New(now func() time.Time) *Store {
	return &Store{now: now, locks: map[int]*FlushLock{}, db: &database{
		signers: map[string]*signer{}, byID: map[int64]*signer{}, nodes: map[string]*node{}, names: map[nonce.Principal]string{},
		cluster: nonce.EngineCluster{State: nonce.StateReliable, Goal: nonce.StateReliable},
	}}
}

// Name is "memory".
func (s *Store) Name() string { return "memory" }

// Epoch is what SetEpoch set.
func (s *Store) Epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// Close does nothing: other nodes of the test may go on.
func (s *Store) Close() error { return nil }

// Ping asks the hooks only.
func (s *Store) Ping(ctx context.Context) error {
	return s.call(ctx, Call{Op: OpPing}, func(time.Time) error { return nil })
}

// call runs fn with the lock held, between the two hooks.
func (s *Store) call(ctx context.Context, c Call, fn func(now time.Time) error) error {
	s.mu.Lock()
	hooks := s.hooks
	s.mu.Unlock()
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

func (s *Store) locked(fn func(now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn(s.now().Truncate(time.Microsecond))
}

// create returns the signer's row, made when it is missing.
func (db *database) create(name string) *signer {
	sg := db.signers[name]
	if sg == nil {
		sg = &signer{id: int64(len(db.signers)) + 1, name: name, rows: map[int64]nonce.Row{}, requests: map[string]request{}}
		db.signers[name], db.byID[sg.id] = sg, sg
	}
	return sg
}

func (db *database) grant(sg *signer) lease.Grant {
	g := lease.Grant{Holder: sg.owner, Token: sg.token, ExpiresAt: sg.expiresAt}
	if n := db.nodes[sg.owner.Node]; n != nil {
		g.URL = n.url
	}
	return g
}

func (db *database) clone() *database {
	c := &database{
		signers: map[string]*signer{}, byID: map[int64]*signer{}, nodes: map[string]*node{},
		names: maps.Clone(db.names), cluster: db.cluster,
	}
	c.cluster.Accepted = slices.Clone(db.cluster.Accepted)
	for name, sg := range db.signers {
		copied := *sg
		copied.rows, copied.requests = maps.Clone(sg.rows), maps.Clone(sg.requests)
		c.signers[name], c.byID[sg.id] = &copied, &copied
	}
	for name, n := range db.nodes {
		copied := *n
		c.nodes[name] = &copied
	}
	return c
}

func aborted(format string, args ...any) error {
	return &nonce.StoreError{Outcome: nonce.Aborted, Err: fmt.Errorf("%w: "+format, append([]any{nonce.ErrInvariant}, args...)...)}
}
