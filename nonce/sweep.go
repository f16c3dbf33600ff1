package nonce

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sweepSigners bounds the signers of a page of a sweep. More are looked for,
	// because those of other live owners are left to them.
	sweepSigners = 64
	sweepLook    = 16 * sweepSigners
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
		s.cfg.open.sweep()
		if !now.Before(pruneAt) {
			pruneAt = s.pruneSome(now)
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
// more to do now: it was a whole page, and something of it came to an end.
func (s *Service) sweepPage() bool {
	due, now, err := s.due()
	if err != nil {
		s.log.Debug("looking for overdue holds", "error", err)
		return false
	}
	if s.clock.paused() {
		return false
	}
	var page page
	submitted := 0
	for _, d := range due {
		if s.leaves(&d, now) {
			continue
		}
		if submitted == sweepSigners || !s.submitSweep(d.Signer, &page) {
			break // a full queue has better things to do; the next sweep goes on
		}
		submitted++
	}
	page.Wait()
	return submitted == sweepSigners && page.ended.Load() > 0
}

// strangersSweep is how many sweep intervals a hold of a signer that nobody owns may
// be overdue before a node ends it at which the signer should not settle.
const strangersSweep = 3

// leaves reports whether a signer with an overdue hold is left to another node: to
// its owner, or, where nobody owns it, for a while to the node at which it should
// settle, so that not all nodes want it at once.
func (s *Service) leaves(d *DueSigner, now time.Time) bool {
	switch {
	case d.Lease.Holder == s.holder:
		return false
	case d.Lease.Held(now):
		return true
	}
	return d.Overdue < strangersSweep*s.cfg.SweepInterval && !s.settlesHere(d.Signer)
}

// settlesHere reports whether no other node is a better place for the signer.
func (s *Service) settlesHere(signer string) bool {
	return s.cfg.Router == nil || s.cfg.Router.Prefer(signer) == ""
}

func (s *Service) due() ([]DueSigner, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StoreTimeout)
	defer cancel()
	started := time.Now()
	due, now, err := s.store.Due(ctx, sweepLook)
	if err == nil {
		s.clock.observe(started, time.Now(), now)
	}
	return due, now, err
}

// page counts the sweeps of a page under way, and the holds they ended.
type page struct {
	sync.WaitGroup
	ended atomic.Int64
}

// sweeping is the Completion of a sweep: a place in its page.
type sweeping struct{ page *page }

// Done implements Completion.
func (w sweeping) Done(op *Op) Waker {
	w.page.ended.Add(int64(len(op.Nonces)))
	w.page.Done()
	return nil
}

// Gone implements Completion.
func (sweeping) Gone() bool { return false }

// submitSweep queues a sweep of one signer in a place nobody reserved.
func (s *Service) submitSweep(signer string, page *page) bool {
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
	if !sh.shares.reserve(0) {
		return false
	}
	op.inShard = true
	page.Add(1)
	sh.push(op)
	return true
}

// prunePieces bounds the deletes of one tick.
const prunePieces = 20

// pruneSome prunes and returns when to do so again.
func (s *Service) pruneSome(now time.Time) time.Time {
	for range prunePieces {
		if !s.prune() {
			return now.Add(pruneEvery)
		}
	}
	return now
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
