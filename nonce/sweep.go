package nonce

import (
	"context"
	"time"
)

const (
	// sweepSigners bounds the signers one sweep looks at; the next goes on.
	sweepSigners = 512
	// pruneBatch bounds one delete of old request ids.
	pruneBatch = 2000
)

// sweep is the goroutine that finds overdue holds in the store, whoever made
// them: this node's own, and those of signers nobody owns, which it acquires
// first. Those of another live owner are left to it.
func (s *Service) sweep() {
	tick := time.NewTicker(s.cfg.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		if s.haltedBy() != nil {
			continue
		}
		s.forgetIdle()
		s.prune()
		if s.clock.paused() {
			continue
		}
		s.fig.SweepsPaused(false)
		s.sweepDue()
	}
}

func (s *Service) forgetIdle() {
	before := time.Now().Add(-s.cfg.IdleAfter)
	for _, sh := range s.shards {
		sh.forgetIdle(before)
	}
}

func (s *Service) sweepDue() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	due, now, err := s.store.Due(ctx, sweepSigners)
	if err != nil {
		s.log.Debug("looking for overdue holds", "error", err)
		return
	}
	if s.clock.observe(started, time.Now(), now); s.clock.paused() {
		return
	}
	for _, d := range due {
		if d.Lease.Held(now) && d.Lease.Holder != s.holder {
			continue
		}
		if !s.submitSweep(d.Signer) {
			return // the queue has better things to do; the next sweep goes on
		}
	}
}

// submitSweep queues a sweep of one signer in a place nobody reserved.
func (s *Service) submitSweep(signer string) bool {
	if !s.enter() {
		return false
	}
	defer s.inside.Done()
	op := &Op{Kind: kindSweep, Signer: signer}
	if s.basic != nil {
		op.queuedAt = time.Now()
		s.basic.run(op)
		return s.haltedBy() == nil
	}
	sh := s.shards[s.Lane(signer)]
	if !sh.reserve() {
		return false
	}
	op.queuedAt, op.inShard = time.Now(), true
	sh.push(op)
	return true
}

// prune deletes request ids older than the retention, a piece at each tick.
func (s *Service) prune() {
	if s.cfg.RequestRetention == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	if _, err := s.store.PruneRequests(ctx, s.cfg.RequestRetention, pruneBatch); err != nil {
		s.log.Debug("pruning request ids", "error", err)
	}
}
