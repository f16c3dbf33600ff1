package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/flush"
	"noncegate/nonce"
)

// signers calls f for every signer that Redis has, or should have.
func (m *Manager) signers(ctx context.Context, f func(signer string) error) error {
	known := make(map[string]struct{})
	err := m.redis.Signers(ctx, func(signer string) error {
		known[signer] = struct{}{}
		return nil
	})
	if err != nil {
		return err
	}
	for signer := range known {
		if err := f(signer); err != nil {
			return err
		}
	}
	for after := int64(0); ; {
		page, _, err := m.entered(ctx, after)
		if err != nil {
			return fmt.Errorf("read the signers of the performance engine: %w", err)
		}
		for i := range page {
			after = page[i].ID
			if _, done := known[page[i].Signer]; done {
				continue
			}
			if err := f(page[i].Signer); err != nil {
				return err
			}
		}
		if len(page) < settlePage {
			return nil
		}
	}
}

// serverOf is who the server is that has a signer's shard.
func (m *Manager) serverOf(ctx context.Context, signer string) (nonce.Identity, error) {
	lags, err := m.redis.Lag(ctx, []int{m.redis.Shard(signer)})
	if err != nil {
		return nonce.Identity{}, err
	}
	return lags[0].Server, nil
}

// Conflict is told of a signer whose events the store cannot take. What Redis has of
// it is removed, so that its owner, whoever that is, finds it lost.
func (m *Manager) Conflict(ctx context.Context, signer string) error {
	if err := m.distrust(ctx, signer); err != nil {
		return fmt.Errorf("make the owner of %s look at it: %w", signer, err)
	}
	return nil
}

// distrust removes what Redis has of a signer. Where Redis serves it that is a loss,
// which its owner finds by itself; else its copy is made anew.
func (m *Manager) distrust(ctx context.Context, signer string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	snaps, err := m.store.Load(ctx, []nonce.Need{{Signer: signer}})
	if err != nil || !snaps[0].Exists {
		return err
	}
	s := &snaps[0]
	if err := m.redis.Forget(ctx, []nonce.FastBelief{{ID: s.ID, Signer: signer, Token: s.Lease.Token, Version: s.Version}}); err != nil {
		return err
	}
	if hooks := m.hooks.Load(); hooks != nil {
		hooks.Settle(signer)
	}
	return nil
}

// Replay applies what was not flushed, dead letters too.
func (m *Manager) Replay(ctx context.Context) (flush.DrainReport, error) {
	return m.hooks.Load().Replay(ctx)
}

// RebuildReport says what a Rebuild did.
type RebuildReport struct {
	Rebuilt int `json:"rebuilt"` // copies begun anew by this node
	Others  int `json:"others"`  // signers that another node owns
	Skipped int `json:"skipped"` // signers that Redis serves already
}

// Rebuild makes this node copy signers from the store to Redis anew: those that it
// owns, and those that nobody owns. It is for DUAL_WRITE; of signers that Redis
// serves Redis knows more than the store, and nothing is done about them.
func (m *Manager) Rebuild(ctx context.Context) (RebuildReport, error) {
	var r RebuildReport
	s := m.state.Load()
	if s.State != nonce.StateDualWrite && s.State != nonce.StatePerformance {
		return r, refused(s, "copies are kept in DUAL_WRITE and PERFORMANCE only")
	}
	if !m.switching.TryLock() {
		return r, refused(s, "another switch, reconciliation or rebuild is under way on this node")
	}
	defer m.switching.Unlock()
	for after := int64(0); ; {
		page, now, err := m.store.WalkSigners(ctx, after, settlePage)
		if err != nil {
			return r, fmt.Errorf("walk over the signers: %w", err)
		}
		for i := range page {
			after = page[i].ID
			if err := m.rebuild(ctx, &page[i], now, &r); err != nil {
				return r, err
			}
		}
		if len(page) < settlePage {
			return r, nil
		}
	}
}

func (m *Manager) rebuild(ctx context.Context, e *nonce.EnteredSigner, now time.Time, r *RebuildReport) error {
	switch {
	case e.Engine == nonce.Performance:
		r.Skipped++
		return nil
	case e.Lease.Held(now) && e.Lease.Holder.Node != m.cfg.Node:
		r.Others++
		return nil
	}
	if err := m.redis.Forget(ctx, []nonce.FastBelief{{ID: e.ID, Signer: e.Signer, Token: e.Lease.Token, Version: e.Version}}); err != nil {
		return fmt.Errorf("remove the copy of %s: %w", e.Signer, err)
	}
	for !m.hooks.Load().Settle(e.Signer) {
		if !sleep(ctx, compareRest) {
			return errors.Join(errors.New("the workers' queues stayed full"), ctx.Err())
		}
	}
	r.Rebuilt++
	return nil
}
