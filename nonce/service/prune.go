package service

import (
	"context"
	"time"
)

const (
	// pruneRows bounds one delete, and pruneShare is how many times as long as it took the
	// pruner pauses after it: it is at work for less than a hundredth of the time, so fewer
	// than one request in a hundred can meet it.
	pruneRows  = 2000
	pruneShare = 99
	// pruneMost is the time between two deletes while they find less than they may take. Of
	// a short retention it is a part, so that what it keeps is not kept for much longer.
	pruneMost  = time.Minute
	prunePart  = 30
	pruneLeast = 20 * time.Millisecond
)

// pruneEvery is the time between two deletes that find little.
func (s *Service) pruneEvery() time.Duration {
	every := pruneMost
	for _, kept := range []time.Duration{s.cfg.RequestRetention, s.cfg.HistoryRetention} {
		if kept > 0 {
			every = min(every, max(kept/prunePart, pruneLeast))
		}
	}
	return every
}

// pruneOnce deletes a piece of the old request ids and of the old rows of the history, and
// returns how long to pause then. No signer's state changes by it. Every node does it: what one
// has deleted the others do not find.
func (s *Service) pruneOnce() time.Duration {
	if s.haltedBy() != nil || s.clock.paused() {
		return s.pruneEvery()
	}
	started := time.Now()
	requests := s.piece("pruning request ids", s.cfg.RequestRetention, func(ctx context.Context) (int, error) {
		return s.store.PruneRequests(ctx, s.cfg.RequestRetention, pruneRows)
	})
	history := s.piece("pruning the history", s.cfg.HistoryRetention, func(ctx context.Context) (int, error) {
		return s.store.Prune(ctx, s.storeTime().Add(-s.cfg.HistoryRetention), pruneRows)
	})
	s.tally.pruned.Add(int64(history))
	if requests == pruneRows || history == pruneRows {
		return min(max(pruneShare*time.Since(started), pruneLeast), pruneMost)
	}
	return s.pruneEvery()
}

// piece deletes some of what is kept for a time, 0: for ever, and returns how many.
func (s *Service) piece(what string, kept time.Duration, prune func(context.Context) (int, error)) int {
	if kept == 0 {
		return 0
	}
	ctx, cancel := s.timeout()
	defer cancel()
	n, err := prune(ctx)
	if err != nil {
		s.log.Debug(what, "error", err)
	}
	return n
}
