package service

import "time"

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

// prune is the goroutine that deletes old request ids and old rows of the history, in small
// pieces. No signer's state changes by it. Every node does it: what one has deleted the
// others do not find.
func (s *Service) prune() {
	next := time.NewTimer(s.pruneEvery()) // not at once: a node that starts is busy
	defer next.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-next.C:
		}
		next.Reset(s.pruneOnce())
	}
}

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

// pruneOnce deletes a piece of each and returns how long to pause then.
func (s *Service) pruneOnce() time.Duration {
	if s.haltedBy() != nil || s.clock.paused() {
		return s.pruneEvery()
	}
	started := time.Now()
	more := s.pruneRequests()
	more = s.pruneHistory() || more
	if more {
		return min(max(pruneShare*time.Since(started), pruneLeast), pruneMost)
	}
	return s.pruneEvery()
}

func (s *Service) pruneRequests() (more bool) {
	if s.cfg.RequestRetention == 0 {
		return false
	}
	ctx, cancel := s.timeout()
	defer cancel()
	n, err := s.store.PruneRequests(ctx, s.cfg.RequestRetention, pruneRows)
	if err != nil {
		s.log.Debug("pruning request ids", "error", err)
	}
	return n == pruneRows
}

func (s *Service) pruneHistory() (more bool) {
	if s.cfg.HistoryRetention == 0 {
		return false
	}
	ctx, cancel := s.timeout()
	defer cancel()
	n, err := s.store.Prune(ctx, s.storeTime().Add(-s.cfg.HistoryRetention), pruneRows)
	if err != nil {
		s.log.Debug("pruning the history", "error", err)
	}
	s.tally.pruned.Add(int64(n))
	return n == pruneRows
}
