package nonce

import (
	"context"
	"sync"
	"time"
)

const (
	// sweepSigners bounds the signers of a page of a sweep.
	sweepSigners = 64
	// pruneBatch bounds one delete of old request ids, and pruneEvery is the time
	// between two while a delete finds fewer.
	pruneBatch = 2000
	pruneEvery = time.Minute
)

// sweep is the goroutine that finds overdue holds in the store, whoever made
// them: this node's own, and those of signers nobody owns, which it acquires
// first. Those of another live owner are left to it.
func (s *Service) sweep() {
	tick := time.NewTicker(s.cfg.SweepInterval)
	defer tick.Stop()
	pruneAt := time.Time{}
	for {
		var now time.Time
		select {
		case <-s.stop:
			return
		case now = <-tick.C:
		}
		if s.haltedBy() != nil {
			continue
		}
		s.forgetIdle()
		if !now.Before(pruneAt) && !s.prune() {
			pruneAt = now.Add(pruneEvery)
		}
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

// sweepDue sweeps page after page, each when the one before has ended, so that
// many holds that end together do not crowd out requests.
func (s *Service) sweepDue() {
	for s.sweepPage() {
		select {
		case <-s.stop:
			return
		default:
		}
	}
}

// sweepPage ends overdue holds of some signers and reports whether there may be
// more to do now.
func (s *Service) sweepPage() bool {
	due, now, err := s.due()
	if err != nil {
		s.log.Debug("looking for overdue holds", "error", err)
		return false
	}
	if s.clock.paused() {
		return false
	}
	var page sync.WaitGroup
	defer page.Wait()
	submitted := 0
	for _, d := range due {
		if d.Lease.Held(now) && d.Lease.Holder != s.holder {
			continue
		}
		if !s.submitSweep(d.Signer, &page) {
			return false // the queue has better things to do; the next sweep goes on
		}
		submitted++
	}
	return len(due) == sweepSigners && submitted > 0
}

func (s *Service) due() ([]DueSigner, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	due, now, err := s.store.Due(ctx, sweepSigners)
	if err == nil {
		s.clock.observe(started, time.Now(), now)
	}
	return due, now, err
}

// sweeping is the Completion of a sweep: a place in its page.
type sweeping struct{ page *sync.WaitGroup }

// Done implements Completion.
func (w sweeping) Done(*Op) Waker { w.page.Done(); return nil }

// Gone implements Completion.
func (sweeping) Gone() bool { return false }

// submitSweep queues a sweep of one signer in a place nobody reserved.
func (s *Service) submitSweep(signer string, page *sync.WaitGroup) bool {
	if !s.enter() {
		return false
	}
	defer s.inside.Done()
	op := &Op{Kind: kindSweep, Signer: signer, Completion: sweeping{page}, queuedAt: time.Now()}
	if s.basic != nil {
		page.Add(1)
		s.basic.run(op)
		return s.haltedBy() == nil
	}
	sh := s.shards[s.Lane(signer)]
	if !sh.reserve() {
		return false
	}
	op.inShard = true
	page.Add(1)
	sh.push(op)
	return true
}

// prune deletes a piece of the request ids older than the retention, and reports
// whether there may be more.
func (s *Service) prune() bool {
	if s.cfg.RequestRetention == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	n, err := s.store.PruneRequests(ctx, s.cfg.RequestRetention, pruneBatch)
	if err != nil {
		s.log.Debug("pruning request ids", "error", err)
	}
	return n == pruneBatch
}
