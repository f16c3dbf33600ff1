package sqlite

import (
	"context"
	"fmt"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// Acquire implements nonce.Ledger.
func (s *Store) Acquire(ctx context.Context, h lease.Holder, ttl time.Duration, needs []nonce.Need) ([]nonce.Snapshot, error) {
	var snaps []nonce.Snapshot
	err := s.write(ctx, func(ctx context.Context, c *session) (err error) {
		now := s.now()
		acquired, from := make([]bool, len(needs)), make([]string, len(needs))
		for i := range needs {
			if acquired[i], from[i], err = c.take(ctx, h, ttl, needs[i].Signer, now); err != nil {
				return fmt.Errorf("acquire signer %q: %w", needs[i].Signer, err)
			}
		}
		snaps, err = c.load(ctx, needs, now)
		for i := range snaps {
			snaps[i].Acquired, snaps[i].TookOverFrom = acquired[i], from[i]
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return snaps, nil
}

// Commit implements nonce.Ledger. Since there is one writer, no row is ever
// locked by somebody else.
func (s *Store) Commit(ctx context.Context, h lease.Holder, ttl time.Duration, changes []nonce.Change) (nonce.CommitResult, error) {
	var res nonce.CommitResult
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		res = nonce.CommitResult{Applied: make([]bool, len(changes)), Now: s.now()}
		for i := range changes {
			ch := &changes[i]
			known, err := c.knows(ctx, ch.ID, ch.Requests)
			if err == nil && !known {
				res.Applied[i], err = c.fence(ctx, h, ttl, ch, res.Now)
			}
			if err == nil && res.Applied[i] && !ch.Check {
				err = c.writeRows(ctx, ch, ch.Token, res.Now)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nonce.CommitResult{}, err
	}
	return res, nil
}

// Release implements nonce.Ledger.
func (s *Store) Release(ctx context.Context, h lease.Holder, terms []nonce.ReleaseTerm) (int, error) {
	released := 0
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		now := s.now().UnixMicro()
		for _, t := range terms {
			n, err := c.exec(ctx, sqlRelease, now, t.ID, h.Node, h.Incarnation, t.Token)
			if err != nil {
				return fmt.Errorf("release signer %d: %w", t.ID, err)
			}
			released += int(n)
		}
		return nil
	})
	return released, err
}

// Locked implements nonce.Locker. It holds the one writing connection while plan
// runs, so plan must not write to the store.
func (s *Store) Locked(ctx context.Context, need nonce.Need, plan func(nonce.Snapshot) (nonce.Change, error)) (time.Time, error) {
	var now time.Time
	err := s.write(ctx, func(ctx context.Context, c *session) error {
		now = s.now()
		if _, err := c.exec(ctx, sqlCreate, need.Signer, now.UnixMicro()); err != nil {
			return fmt.Errorf("create signer %q: %w", need.Signer, err)
		}
		snaps, err := c.load(ctx, []nonce.Need{need}, now)
		if err != nil {
			return err
		}
		ch, err := plan(snaps[0])
		if err != nil {
			return errPlan{err}
		}
		if ch.Check {
			return errNothing
		}
		n, err := c.exec(ctx, sqlFenceLocked, ch.Next, ch.Floor, ch.Held, now.UnixMicro(), ch.ID, ch.Version)
		if err == nil && n != 1 {
			err = fmt.Errorf("%w: the plan is not about version %d", nonce.ErrInvariant, ch.Version)
		}
		if err != nil {
			return fmt.Errorf("write signer %q: %w", need.Signer, err)
		}
		return c.writeRows(ctx, &ch, 0, now)
	})
	if err != nil {
		return time.Time{}, err
	}
	return now, nil
}
