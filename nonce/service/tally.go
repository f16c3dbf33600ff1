package service

import (
	"sync/atomic"

	"noncegate/nonce"
)

// tally is what the service counts for metrics.
type tally struct {
	unknown atomic.Int64 // commits whose outcome was unknown
	moved   atomic.Int64 // writes refused because somebody else had written
	pruned  atomic.Int64 // rows of the history pruned
}

// StoppedSigners is the number of signers that are stopped because the store
// showed less of them than was seen, and were given no safe floor yet.
func (s *Service) StoppedSigners() (n int) {
	for _, sh := range s.shards {
		n += int(sh.Stopped.Load())
	}
	return n
}

// UnknownCommits is how many commits ended without an answer. Most are settled
// by reading, and nobody is told.
func (s *Service) UnknownCommits() int64 { return s.tally.unknown.Load() }

// VersionConflicts is how many writes of one signer the store refused because its
// version had moved on under the same token: a node in mode basic had written
// meanwhile. Nothing of them happened, and they were read and planned again. A node
// in mode basic has none itself: it decides under the lock of the row.
func (s *Service) VersionConflicts() int64 { return s.tally.moved.Load() }

// OpenHolds is how many holds of a principal, of those that this node has handed out, are neither marked nor due.
// They are counted for those who have a bound.
func (s *Service) OpenHolds(p nonce.Principal) int { return s.open.Open(p) }

// Pruned is how many rows of the history this service deleted.
func (s *Service) Pruned() int64 { return s.tally.pruned.Load() }

// Remembered is how many signers' rows are kept between requests, and about how many bytes they
// take, as of the end of the last batch of each worker, each with its bound. In mode basic all
// are 0.
func (s *Service) Remembered() (signers, maxSigners int, bytes, maxBytes int64) {
	if s.basic != nil {
		return 0, 0, 0, 0
	}
	for _, w := range s.workers {
		signers, maxSigners = signers+int(w.remembered.Load()), maxSigners+w.memory.maxCount
		bytes, maxBytes = bytes+w.rememberedBytes.Load(), maxBytes+w.memory.maxBytes
	}
	return signers, maxSigners, bytes, maxBytes
}

// Owned is the number of shards that this node owns, as far as it knows.
func (s *Service) Owned() (owned int) {
	for _, w := range s.workers {
		owned += len(w.owned())
	}
	return owned
}

// Stopped returns the names of stopped signers, at most limit, in no order. It waits for
// the batch under way of each worker.
func (s *Service) Stopped(limit int) (names []string) {
	for _, w := range s.workers {
		w.batchMu.Lock()
		for name, sig := range w.memory.signers {
			if sig.stopped && len(names) < limit {
				names = append(names, name)
			}
		}
		w.batchMu.Unlock()
	}
	return names
}
