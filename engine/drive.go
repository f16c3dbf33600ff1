package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/nonce"
)

const (
	// passes is how often a reconciliation may find differences on the way up.
	passes = 3
	// settlePage bounds the signers that are looked up at once.
	settlePage = 1000
	// upAgain is how long after a try to go up by itself that failed the next one is.
	upAgain = 10 * time.Second
)

// drive takes one step. Every node hurries the signers that would stay where they
// are; one node moves the cluster.
func (m *Manager) drive(ctx context.Context) {
	s := m.state.Load()
	if s.Goal() == nonce.GoalDrain || s.Goal() == nonce.GoalReliable {
		m.settleEntered(ctx)
	}
	counts, err := m.counts(ctx)
	if err != nil || !m.hooks.Load().Leads() {
		return
	}
	switch s.State {
	case nonce.StateDualWrite:
		m.driveUp(ctx, s)
	case nonce.StateDrain:
		if counts.Entered == 0 {
			m.step(ctx, s, nonce.SwitchTerm{To: nonce.StateReliable, Reason: "every signer has returned"})
		}
	case nonce.StateDegraded:
		m.driveDegraded(ctx, s, counts)
	}
}

// Goal is where signers are to go.
func (s *seen) Goal() nonce.Goal { return s.State.Goal() }

func (m *Manager) counts(ctx context.Context) (nonce.EngineCounts, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	c, err := m.store.EngineCounts(ctx)
	if err == nil {
		m.figures.Counts(c)
	}
	return c, err
}

// step changes the state from the one that was seen.
func (m *Manager) step(ctx context.Context, s *seen, t nonce.SwitchTerm) {
	t.FromGeneration = s.Generation
	if _, err := m.change(ctx, t); err != nil && !errors.Is(err, nonce.ErrGeneration) && ctx.Err() == nil {
		m.log.Warn("the engine's state could not be changed", "from", string(s.State), "to", string(t.To), "error", err)
	}
}

// settleEntered makes workers look at signers that the performance engine serves and
// that would stay there: those of this node, and those that nobody owns and that
// should settle here. One that nobody owns for long is taken by any node: the one
// that should have it may have no Redis.
func (m *Manager) settleEntered(ctx context.Context) {
	hooks := m.hooks.Load()
	for after := int64(0); ; {
		page, now, err := m.entered(ctx, after)
		if err != nil {
			return
		}
		for i := range page {
			e := &page[i]
			after = e.ID
			held := e.Lease.Held(now)
			mine := held && e.Lease.Holder.Node == m.cfg.Node
			orphan := !held && (hooks.Prefers(e.Signer) || now.Sub(e.Lease.ExpiresAt) > orphanFor)
			if (mine || orphan) && !hooks.Settle(e.Signer) {
				return // no room: the next round goes on
			}
		}
		if len(page) < settlePage {
			return
		}
	}
}

// orphanFor is how long a signer is left to the node that should have it.
const orphanFor = 5 * time.Second

func (m *Manager) entered(ctx context.Context, after int64) ([]nonce.EnteredSigner, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return m.store.Entered(ctx, after, settlePage)
}

// driveUp goes from DUAL_WRITE to PERFORMANCE, where that is the goal, once every
// node has had the time to copy and a reconciliation has found no difference.
func (m *Manager) driveUp(ctx context.Context, s *seen) {
	if s.EngineCluster.Goal != nonce.StatePerformance || s.now().Sub(s.ChangedAt) < m.cfg.Dwell {
		return
	}
	var last ReconcileReport
	for range passes {
		r, err := m.Reconcile(ctx)
		if err != nil {
			m.log.Warn("the reconciliation on the way up is tried again", "error", err)
			return
		}
		if r.Different == 0 {
			m.step(ctx, s, nonce.SwitchTerm{To: nonce.StatePerformance, Reason: fmt.Sprintf("%d copies compared, no difference", r.Equal)})
			return
		}
		last = r
		m.renew(ctx, r)
		if !sleep(ctx, m.cfg.Dwell) || m.state.Load().Generation != s.Generation {
			return
		}
	}
	m.figures.Trouble(nonce.TroubleDifferent)
	m.degrade(ctx, s.Generation, nonce.TroubleDifferent, fmt.Errorf("%d of %d copies in Redis differ from the store", last.Different, last.Different+last.Equal))
}

// renew makes copies that differ be made anew: what is not there is no copy.
func (m *Manager) renew(ctx context.Context, r ReconcileReport) {
	for _, d := range r.Differences {
		if err := m.distrust(ctx, d.Signer); err != nil {
			m.log.Warn("a copy that differs could not be removed", "signer", d.Signer, "error", err)
		}
	}
}

func (m *Manager) driveDegraded(ctx context.Context, s *seen, counts nonce.EngineCounts) {
	switch {
	case counts.Entered > 0 || s.now().Before(s.ObserveUntil):
	case !m.cfg.AutoUp:
		m.step(ctx, s, nonce.SwitchTerm{To: nonce.StateReliable, Reason: "observed after " + s.Reason})
	default:
		r, err := m.Switch(ctx, SwitchRequest{To: nonce.StatePerformance, By: m.cfg.Node + " by itself"})
		if err != nil && ctx.Err() == nil {
			m.log.Warn("going up by itself is tried again", "in", upAgain.String(), "checks", r.Failed(), "error", err)
			sleep(ctx, upAgain)
		}
	}
}

// sleep waits, and reports whether ctx lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
