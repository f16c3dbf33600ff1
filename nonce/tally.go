package nonce

import "sync/atomic"

// tally is what the service counts for whoever looks now and then.
type tally struct {
	halted  atomic.Int64 // signers stopped because the store went back
	unknown atomic.Int64 // commits whose outcome was unknown
	moved   atomic.Int64 // changes refused because somebody else had written
	pruned  atomic.Int64 // allocations pruned
}

// halt marks a signer as stopped, which it may be already.
func (t *tally) halt(st *state) {
	if !st.halted {
		st.halted = true
		t.halted.Add(1)
	}
}

// resume marks a stopped signer as serving again.
func (t *tally) resume(st *state) {
	st.halted = false
	t.halted.Add(-1)
}

// StoppedSigners is the number of signers that are stopped because the store
// showed less of them than was seen, and were given no safe floor yet.
func (s *Service) StoppedSigners() int { return int(s.tally.halted.Load()) }

// UnknownCommits is how many commits ended without an answer. Most are settled
// by reading, and nobody is told.
func (s *Service) UnknownCommits() int64 { return s.tally.unknown.Load() }

// VersionConflicts is how many changes of one signer the store refused because its
// version had moved on under the same token: a node in mode basic had written
// meanwhile. Nothing of them happened, and they were read and planned anew. A node
// in mode basic has none itself: it decides under the lock of the row.
func (s *Service) VersionConflicts() int64 { return s.tally.moved.Load() }

// Remembered is the number of signers whose state is kept between requests, as of
// the end of the last batch of each shard, and their bound. In mode basic both
// are 0.
func (s *Service) Remembered() (signers, most int) {
	for _, sh := range s.shards {
		signers += int(sh.remembered.Load())
	}
	return signers, len(s.shards) * s.signersPerShard
}

// Stopped returns the names of those signers, at most limit, in no order. It waits for
// the batch under way of each shard.
func (s *Service) Stopped(limit int) (names []string) {
	for _, sh := range s.shards {
		sh.turn.Lock()
		for name, st := range sh.states {
			if st.halted && len(names) < limit {
				names = append(names, name)
			}
		}
		sh.turn.Unlock()
	}
	return names
}
