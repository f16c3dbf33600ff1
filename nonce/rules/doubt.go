package rules

import (
	"fmt"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// attemptShift leaves room for the attempts of an epoch: after a loss of its log, those of a
// nonce that was in doubt are above epoch<<attemptShift. Those of a repair that could not know
// the attempts before it are above repairBase, which no epoch reaches.
const (
	attemptShift = 20
	repairBase   = 1 << 40
)

// OfUnknown reports whether an attempt comes from a repair that could not know the attempts
// before it.
func OfUnknown(attempt int64) bool { return attempt >= repairBase }

// Mend is a signer after the log of its shard was lost, and with it what was not shipped. All
// of its live nonces, and those up to the ceiling, which a client may have been given, are in
// doubt until the shard says so, a hold at least until its deadline. It reports whether there
// is anything to mend; what it returns is written before it is used.
func Mend(s nonce.Signer, sh *lease.Shard) (nonce.Signer, bool) {
	if s.Ceiling == 0 || s.Epoch >= sh.Epoch {
		return s, false
	}
	live := make([]nonce.Entry, 0, len(s.Live)+int(max(0, s.Ceiling-s.Next)))
	for _, e := range s.Live {
		note := nonce.Note{Reason: nonce.ReasonInDoubt}
		if e.Note != nil {
			note.TxHash, note.Replaced, note.Earlier = e.Note.TxHash, e.Note.Replaced, e.Note.Earlier
		}
		until := max(e.Until, sh.DoubtUntil, 1)
		live = append(live, nonce.Entry{Nonce: e.Nonce, Attempt: e.Attempt, Status: nonce.Held, Until: until, Note: &note})
	}
	for n := s.Next; n < s.Ceiling; n++ {
		live = append(live, nonce.Entry{Nonce: n, Attempt: 1, Status: nonce.Held, Until: max(sh.DoubtUntil, 1), Note: inDoubt})
	}
	s.Version, s.Next, s.Live, s.Epoch = s.Version+1, max(s.Next, s.Ceiling), live, sh.Epoch
	return s, true
}

var inDoubt = &nonce.Note{Reason: nonce.ReasonInDoubt}

// doubtful reports whether an entry is in doubt.
func doubtful(e *nonce.Entry) bool { return e.Note != nil && e.Note.Reason == nonce.ReasonInDoubt }

// doubtfulRows is how many times what a signer may hold may be in doubt beside it: a loss leaves
// that much at most, and it comes back by itself.
const doubtfulRows = 4

// room is how many more nonces a signer may have. What is in doubt takes no room.
func (d *draft) room() int {
	live := d.plan.Signer.Live
	room := d.rules.MaxLive - len(live)
	if room < 0 || d.plan.Signer.Epoch > 0 {
		for i := range live {
			if doubtful(&live[i]) {
				room++
			}
		}
	}
	return min(room, (doubtfulRows+1)*d.rules.MaxLive-len(live))
}

const (
	doubtSentence = "Redis was lost, and somebody else may have the nonce; it comes back by itself"
	doubtAttempt  = "the attempt was never given"
)

// afterLoss is above all attempts that a nonce in doubt can have been given, of which the row has
// attempt: a log hands a nonce out less than 1<<attemptShift times.
func (d *draft) afterLoss(attempt int64) int64 {
	first := d.plan.Signer.Epoch << attemptShift
	if attempt >= repairBase {
		return attempt + first
	}
	return max(attempt, first)
}

// grantRuns is until when a log that was lost may still give nonces of the signer; 0: it gives none.
func (d *draft) grantRuns() int64 {
	if d.plan.Signer.Epoch == 0 || d.in.LostUntil <= d.in.Now.Earliest {
		return 0
	}
	return d.in.LostUntil
}

// waitIfUsed has the op that met a consumed nonce answered as the mark was that consumed it, perhaps
// while the nonce was in doubt.
func (d *draft) waitIfUsed(row nonce.Row) {
	if row.Status == nonce.Consumed {
		d.ans.After = d.grantRuns()
	}
}

// markDoubtful does what a mark of use asks for with a nonce in doubt, for whatever attempt the
// log may have given; it is told when the log gives no more. All other marks are refused.
func (d *draft) markDoubtful(row nonce.Row, do func(nonce.Row)) {
	switch req := d.req; {
	case req.Kind != nonce.KindMarkUsed:
		d.conflict(nonce.Row{Nonce: row.Nonce, Status: nonce.Held}, doubtSentence)
	case req.Attempt < row.Attempt:
		d.conflict(nonce.Row{Nonce: -1}, attemptOver)
	case req.Attempt >= d.afterLoss(row.Attempt):
		d.conflict(nonce.Row{Nonce: -1}, doubtAttempt)
	default:
		row.Attempt, d.ans.After = req.Attempt, d.grantRuns()
		do(row)
	}
}

// Alone is a signer as it is in a store that had no log: with the attempts and the version that it
// may have come to under one. Its row was read when no log served it; sh is where it was. The error
// says why it cannot be moved yet. Attempts of consumed nonces are raised by AloneAttempt.
func Alone(s nonce.Signer, sh *lease.Shard, now int64) (nonce.Signer, error) {
	s, lost := Mend(s, sh)
	for i := range s.Live {
		if doubtful(&s.Live[i]) {
			return s, fmt.Errorf("nonce %d is in doubt since Redis was lost, and comes back by itself: try again later", s.Live[i].Nonce)
		}
	}
	if until := sh.LostUntil(now); until > now && (lost || s.Epoch > 0) {
		return s, fmt.Errorf("what was handed out before Redis was lost may be marked until %s: try again then", time.UnixMilli(until).UTC().Format(time.RFC3339))
	}
	s.Version += s.Epoch*s.Epoch<<attemptShift/handOutsPerWrite + min(s.Epoch, 1) // attemptOfRepair
	s.Ceiling, s.Epoch = 0, 0
	return s, nil
}

// AloneAttempt is at least the attempt of a consumed nonce of a signer that outlived so many losses.
func AloneAttempt(attempt, epoch int64) int64 {
	if attempt >= repairBase {
		return attempt
	}
	return max(attempt, epoch<<attemptShift)
}
