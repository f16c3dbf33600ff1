package memstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"noncegate/nonce"
)

// Accept puts the cluster into PERFORMANCE, with these as the Redis servers that
// signers may enter.
func (s *Store) Accept(servers ...nonce.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.db.cluster
	c.State, c.Goal, c.Accepted = nonce.StatePerformance, nonce.StatePerformance, slices.Clone(servers)
	c.Generation++
}

// Accepted reports whether the server is one that was accepted last.
func (s *Store) Accepted(server nonce.Identity) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.db.cluster.Accepted, server)
}

func (db *database) enters(server nonce.Identity) bool {
	return db.cluster.State == nonce.StatePerformance && slices.Contains(db.cluster.Accepted, server)
}

func (db *database) state(now time.Time) nonce.EngineCluster {
	c := db.cluster
	c.Accepted, c.Now = slices.Clone(c.Accepted), now
	return c
}

// EngineState implements nonce.EngineCatalog.
func (s *Store) EngineState(ctx context.Context) (nonce.EngineCluster, error) {
	var out nonce.EngineCluster
	err := s.call(ctx, Call{Op: OpState}, func(now time.Time) error {
		out = s.db.state(now)
		return nil
	})
	return out, err
}

// SwitchEngine implements nonce.EngineCatalog. Nodes of this store all know of both
// engines.
func (s *Store) SwitchEngine(ctx context.Context, t nonce.SwitchTerm) (nonce.EngineCluster, error) {
	if t.Goal == "" {
		t.Goal = t.To
	}
	var out nonce.EngineCluster
	var refused error
	err := s.call(ctx, Call{Op: OpSwitch}, func(now time.Time) error {
		c := &s.db.cluster
		switch {
		case c.Generation != t.FromGeneration:
			refused = nonce.ErrGeneration
		case t.To == nonce.StateReliable && s.db.entered() > 0:
			refused = nonce.ErrEntered
		default:
			c.State, c.Goal, c.Reason, c.By, c.ChangedAt = t.To, t.Goal, t.Reason, t.By, now
			if c.Generation++; t.Observe > 0 {
				c.ObserveUntil = now.Add(t.Observe)
			}
		}
		out = s.db.state(now)
		return nil
	})
	if err != nil {
		return nonce.EngineCluster{}, err
	}
	return out, refused
}

func (db *database) entered() (n int) {
	for _, sg := range db.signers {
		if sg.standing.Engine == nonce.Performance {
			n++
		}
	}
	return n
}

// AcceptIdentities implements nonce.EngineCatalog.
func (s *Store) AcceptIdentities(ctx context.Context, generation int64, ids []nonce.Identity) error {
	var refused error
	err := s.call(ctx, Call{Op: OpAccept}, func(time.Time) error {
		c := &s.db.cluster
		if c.Generation != generation {
			refused = nonce.ErrGeneration
			return nil
		}
		c.Accepted = nil
		for _, id := range ids {
			if !slices.Contains(c.Accepted, id) {
				c.Accepted = append(c.Accepted, id)
			}
		}
		return nil
	})
	return errors.Join(err, refused)
}

// FlushShards implements nonce.EngineCatalog.
func (s *Store) FlushShards(ctx context.Context, wanted int) (int, error) {
	shards := 0
	err := s.call(ctx, Call{Op: OpShards}, func(time.Time) error {
		c := &s.db.cluster
		if c.FlushShards == 0 {
			c.FlushShards = wanted
		}
		shards = c.FlushShards
		return nil
	})
	return shards, err
}

// EngineCounts implements nonce.EngineCatalog.
func (s *Store) EngineCounts(ctx context.Context) (nonce.EngineCounts, error) {
	var out nonce.EngineCounts
	err := s.call(ctx, Call{Op: OpCounts}, func(now time.Time) error {
		out = nonce.EngineCounts{Entered: s.db.entered(), Now: now}
		for _, sg := range s.db.signers {
			d := &sg.standing
			if d.Engine == nonce.Performance {
				if !s.db.grant(sg).Held(now) {
					out.Unowned++
				}
				if out.GrantUntil.IsZero() || d.GrantUntil.Before(out.GrantUntil) {
					out.GrantUntil = d.GrantUntil
				}
			}
			if now.Before(d.DoubtUntil) {
				out.Doubtful++
				if d.DoubtUntil.After(out.DoubtUntil) {
					out.DoubtUntil = d.DoubtUntil
				}
			}
		}
		return nil
	})
	return out, err
}

// FlushLock is a session that can hold the locks of flush shards.
type FlushLock struct {
	store  *Store
	closed bool // guarded by store.mu
}

var errSessionOver = errors.New("the session is over")

// FlushLock implements nonce.EngineCatalog.
func (s *Store) FlushLock(context.Context) (nonce.FlushLock, error) { return &FlushLock{store: s}, nil }

// TryShard implements nonce.FlushLock.
func (l *FlushLock) TryShard(_ context.Context, shard int) (bool, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return false, errSessionOver
	}
	if l.store.locks[shard] == nil {
		l.store.locks[shard] = l
	}
	return l.store.locks[shard] == l, nil
}

// ReleaseShard implements nonce.FlushLock.
func (l *FlushLock) ReleaseShard(_ context.Context, shard int) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return errSessionOver
	}
	if l.store.locks[shard] == l {
		delete(l.store.locks, shard)
	}
	return nil
}

// Alive implements nonce.FlushLock.
func (l *FlushLock) Alive(context.Context) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return errSessionOver
	}
	return nil
}

// Close implements nonce.FlushLock.
func (l *FlushLock) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.closed = true
	for shard, holder := range l.store.locks {
		if holder == l {
			delete(l.store.locks, shard)
		}
	}
	return nil
}
