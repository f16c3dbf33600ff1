package history

import "slices"

// Loss is a signer that was mended after its shard was declared lost with Redis: what Redis had and the rows did not may be
// forgotten. Times are of the store's clock, in Unix milliseconds.
type Loss struct {
	Signer  string `json:"signer"`
	Epoch   int64  `json:"epoch"`   // of the shard, from then on; the first loss begins 1
	Ceiling int64  `json:"ceiling"` // new nonces begin here; all others that lived are in doubt
	// Token is of who declared it. Of the old epoch all are lower, of the new one higher.
	Token      int64 `json:"token"`
	At         int64 `json:"at"`
	GrantUntil int64 `json:"grantUntil"` // until then the old epoch may be handed out from
	DoubtUntil int64 `json:"doubtUntil"` // until then nothing in doubt is handed out
}

// inDoubt is the reason of a row that a loss made.
const inDoubt = "in_doubt"

// attemptShift: those of a nonce that was in doubt are above epoch<<attemptShift. Those of a new nonce begin at 1, as ever.
const attemptShift = 20

func firstAttempt(epoch int64) int64 { return max(1, epoch<<attemptShift) }

// What of the rules a loss changes:
//
//   - A hand-out of an epoch before it may be missing in the store, if it began before
//     the old grant's end. It keeps its hold all the same.
//   - A request id of such a hand-out may get another answer.
//   - Until the old grant's end hand-outs of the old epoch go on beside the new one's,
//     with their token; and the status may show either.
//   - The status may have shown a floor that nobody acknowledged, and that is forgotten; and
//     versions go on from what the store had.
//   - A hand-out of the old epoch may be stored that nobody was told of.
//   - Where a hand-out was forgotten, a mark of the attempt before it is accepted again,
//     as if it had not been; its own mark is then a conflict.
//   - Such a signer is not given to porcupine.
//
// Marks and floors are acknowledged when the store has them, so a loss changes nothing about them. No two live holds, and no
// attempt given twice, hold across losses; and checkLosses adds what holds of them.

// life is how many losses were before a call, by the token that it was told.
func (s *signer) life(c *Call) (n int64) {
	for i := range s.losses {
		if c.Token >= s.losses[i].Token {
			n++
		}
	}
	return n
}

// startedAt and endedAt are by the store's clock, where that is the history's.
func (s *signer) startedAt(c *Call) int64 { return s.BeganAt + c.Start.Milliseconds() }
func (s *signer) endedAt(c *Call) int64   { return s.BeganAt + c.End.Milliseconds() }

// forgiven reports whether a loss may have made the store forget a hand-out.
func (s *signer) forgiven(n int64, g *handOut) bool {
	return slices.ContainsFunc(s.losses, func(l Loss) bool { return s.forgives(&l, n, g) })
}

func (s *signer) forgives(l *Loss, n int64, g *handOut) bool {
	return l.before(n, g.attempt) && s.startedAt(g.call) <= l.GrantUntil
}

// before reports whether an attempt of a nonce is of an epoch before the loss.
func (l *Loss) before(n, attempt int64) bool { return n < l.Ceiling && attempt < firstAttempt(l.Epoch) }

// forgivenAnswer reports whether a loss, or a setback, may have made the store forget what a request id got.
func (s *signer) forgivenAnswer(c *Call) bool {
	return s.setBack(c) || slices.ContainsFunc(c.Nonces, func(g Given) bool { return s.forgiven(g.Nonce, &handOut{c, g.Attempt}) })
}

// forgotten reports whether a loss, or a setback, made the store forget a hand-out before a mark was answered.
func (s *signer) forgotten(n int64, g *handOut, mark *Call) bool {
	return s.setBack(g.call) || slices.ContainsFunc(s.losses, func(l Loss) bool {
		return s.forgives(&l, n, g) && s.endedAt(mark) >= l.At && !s.has(n, g.attempt, l.Epoch)
	})
}

// has reports whether the store knows of an attempt. Where the nonce was handed out again in a newer epoch nobody can tell.
func (s *signer) has(n, attempt, before int64) bool {
	return s.stored != nil && slices.ContainsFunc(s.stored.Rows, func(r Row) bool {
		return r.Nonce == n && r.Attempt >= attempt && r.Attempt < firstAttempt(before)
	})
}

// ofLost reports whether a hand-out is of an epoch that was lost. Who notices a loss by
// the answer to a hand-out tells nobody of it, and tries again with the store.
func (s *signer) ofLost(g Given) bool {
	return slices.ContainsFunc(s.losses, func(l Loss) bool { return l.before(g.Nonce, g.Attempt) })
}

// ofOldGrant reports whether a call may have been answered by somebody who did not know of a loss.
func (s *signer) ofOldGrant(c *Call) bool {
	return slices.ContainsFunc(s.losses, func(l Loss) bool {
		return s.endedAt(c) >= l.At && s.startedAt(c) <= l.GrantUntil && (c.Kind != Allocate || c.Token < l.Token)
	})
}

// checkLosses judges what a loss promises: everything that the old epoch handed out is below the ceiling, and handed out before the
// old grant's end; and until the doubt ends the new epoch hands out nothing that is in doubt.
func (s *signer) checkLosses() {
	slack := s.limits.ClockSlack.Milliseconds()
	for _, l := range s.losses {
		for n, of := range s.nonces {
			for _, g := range of.given {
				old := l.before(n, g.attempt)
				switch {
				case n >= l.Ceiling && g.call.Token > 0 && g.call.Token < l.Token:
					s.wrong(liveHold, "nonce %d attempt %d of an epoch before %d is not below the ceiling %d of its loss", n, g.attempt, l.Epoch, l.Ceiling)
				case old && s.startedAt(g.call) > l.GrantUntil+slack && g.call.committedAt() > l.GrantUntil+slack:
					s.wrong(liveHold, "nonce %d attempt %d of an epoch before %d was given out %d ms after its grant had ended", n, g.attempt, l.Epoch, g.call.committedAt()-l.GrantUntil)
				case !old && n < l.Ceiling && g.attempt>>attemptShift == l.Epoch && s.endedAt(g.call)+slack < l.DoubtUntil:
					s.wrong(liveHold, "nonce %d attempt %d was given out %d ms before its doubt ended", n, g.attempt, l.DoubtUntil-s.endedAt(g.call))
				}
			}
		}
	}
}
