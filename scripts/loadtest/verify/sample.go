package verify

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/wire"
)

// Sample is an allocation that was sent with a request id, so that it can be
// asked again. A load makes one before it sends, and tells what came of it.
type Sample struct {
	ID      string // request id
	Account int64

	// Set by Answered, before which nobody repeats it.
	nonce, attempt int64
	until          time.Time // the hold cannot have ended before, by its deadline

	ending, ended atomic.Bool
}

// Ending says that a mark of the sample's nonce is about to be sent: from now on
// its hold may have ended.
func (s *Sample) Ending() { s.ending.Store(true) }

// Ended says that a mark was acknowledged: its hold has ended. It must be called
// before anything is sent that comes after the mark.
func (s *Sample) Ended() { s.ended.Store(true) }

// HasEnded is what Repeat needs to know of the moment it is sent.
func (s *Sample) HasEnded() bool { return s.ended.Load() }

// NewSample gives an allocation of an account a request id of its own.
func (r *Recorder) NewSample(account int64) *Sample {
	return &Sample{ID: fmt.Sprintf("lt-%s-%d", r.salt, r.ids.Add(1)), Account: account}
}

// Answered says what a sample's allocation got. until is the earliest moment at
// which its hold may end by itself: its holdMs after it was sent. The recorder
// keeps some of the samples, to be repeated.
func (r *Recorder) Answered(s *Sample, nonce, attempt int64, until time.Time) {
	s.nonce, s.attempt, s.until = nonce, attempt, until
	r.samples.add(s)
}

// Pick returns one of the samples kept, or nil while there is none.
func (r *Recorder) Pick(rng *rand.Rand) *Sample { return r.samples.pick(rng) }

// RepeatedResult judges a result to a repeat of s. ended is what HasEnded said
// when the repeat was sent.
func (r *Recorder) RepeatedResult(s *Sample, ended bool, nonce, attempt int64) {
	r.repeats.Add(1)
	switch {
	case nonce != s.nonce || attempt != s.attempt:
		r.violations.add(fmt.Sprintf("%s: request id %s was answered with nonce %d attempt %d, and when repeated with nonce %d attempt %d",
			Signer(s.Account), s.ID, s.nonce, s.attempt, nonce, attempt))
	case ended:
		r.violations.add(fmt.Sprintf("%s: request id %s was answered as if nonce %d were held, though its hold had ended by a mark",
			Signer(s.Account), s.ID, nonce))
	}
}

// RepeatedRefusal judges an error reply to a repeat of s that came at a moment.
// Only a conflict settles anything.
func (r *Recorder) RepeatedRefusal(s *Sample, e *wire.Error, at time.Time) {
	if e.Code != wire.CodeConflict {
		return
	}
	r.repeats.Add(1)
	switch held := s.heldInConflict(e.Data); {
	case !held:
		r.violations.add(fmt.Sprintf("%s: request id %s got nonce %d attempt %d, and its repeat a conflict about other nonces: %s",
			Signer(s.Account), s.ID, s.nonce, s.attempt, e.Message))
	case !s.ending.Load() && at.Before(s.until):
		r.violations.add(fmt.Sprintf("%s: request id %s was refused when repeated, though nonce %d was neither marked nor due: %s",
			Signer(s.Account), s.ID, s.nonce, e.Message))
	}
}

// heldInConflict reports whether a conflict is about what the sample got.
func (s *Sample) heldInConflict(data *wire.ErrorData) bool {
	if data == nil {
		return false
	}
	for _, h := range data.Nonces {
		if h.Nonce == s.nonce && h.Attempt >= s.attempt {
			return true
		}
	}
	return false
}

// maxSamples is how many are kept: enough for each part of a run to be among them.
const maxSamples = 4096

// samples is a random choice of all samples that were answered.
type samples struct {
	mu   sync.Mutex // guards what follows
	kept []*Sample
	seen int
}

// add keeps a sample with the same chance as every other.
func (s *samples) add(sample *Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if len(s.kept) < maxSamples {
		s.kept = append(s.kept, sample)
	} else if i := rand.IntN(s.seen); i < maxSamples {
		s.kept[i] = sample
	}
}

func (s *samples) pick(rng *rand.Rand) *Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) == 0 {
		return nil
	}
	return s.kept[rng.IntN(len(s.kept))]
}

func (s *samples) all() []*Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}
