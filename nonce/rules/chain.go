package rules

import (
	"fmt"
	"slices"
	"time"

	"noncegate/nonce"
)

// alignFloor is how far the final count must be above the floor before the floor follows it.
// Each step costs a write and an event.
const alignFloor = 16

// unknownLook is when a hold that stays unknown is looked at again, which costs a write.
// Where time may release it (UnknownFor), that is a twentieth of this time, from 1 s to 30 s;
// where only the chain's answer ends it, 10 minutes.
func unknownLook(v *nonce.ChainView) time.Duration {
	if v.UnknownFor == 0 {
		return 10 * time.Minute
	}
	return min(max(v.UnknownFor/20, time.Second), 30*time.Second)
}

// judge says what becomes of a hold whose time is over, and for how long it goes on if it
// stays one.
//
// A recorded hash, or the chain's count, says that the nonce is used. A holder that promised
// to record a hash before sending, and did not, has not sent. Of other holders that is unknown: on
// a chain that is asked such a hold is unknown until the nodes have been asked for long
// enough; without one it is handed out again.
func (d *draft) judge(e *nonce.Entry) (to nonce.Status, note nonce.Note) {
	row := e.Row()
	because := func(s nonce.Status, reason string) (nonce.Status, nonce.Note) {
		return s, nonce.Note{Reason: reason, TxHash: row.TxHash, Replaced: row.Replaced, Earlier: row.Earlier}
	}
	switch {
	case row.TxHash != nonce.TxHash{}:
		return because(nonce.Consumed, "")
	case e.Nonce < d.plan.Signer.Floor:
		return because(nonce.Consumed, nonce.ReasonBelowFloor)
	case d.mined(e.Nonce):
		row.TxHash = d.in.Chain.UsedBy(e.Nonce)
		return because(nonce.Consumed, nonce.ReasonMined)
	case row.Reason == nonce.ReasonRefused:
		return because(nonce.Released, nonce.ReasonRefused)
	case row.Reason == nonce.ReasonRecordFirst:
		return because(nonce.Released, nonce.ReasonNotRecorded)
	case d.in.Chain == nil && row.Reason != nonce.ReasonUnknown: // else it is of a chain that was configured before
		return because(nonce.Released, nonce.ReasonExpired)
	case d.in.Chain == nil:
	case row.Reason == nonce.ReasonUnknown && d.view.UnknownFor > 0 && d.in.Chain.Unseen(e.Nonce, e.Attempt):
		return because(nonce.Released, nonce.ReasonUnseen)
	}
	return because(nonce.Held, nonce.ReasonUnknown)
}

// mined reports whether the chain has used a nonce, as far as is settled.
func (d *draft) mined(n int64) bool {
	return d.in.Chain != nil && d.view.Known && !d.view.Guessed && n < d.view.Mined
}

// expire ends the holds that are over, and looks again at those that are unknown. It must run
// first: it relies on plan.Signer.Live being the caller's, which put and consume replace by a
// copy while the loop goes on over the old entries.
func (d *draft) expire() {
	if d.in.NoExpiry {
		return
	}
	for _, e := range d.plan.Signer.Live {
		if e.Status != nonce.Held || e.Until+graceMs > d.in.Now.Earliest {
			continue
		}
		d.plan.NotBefore = max(d.plan.NotBefore, e.Until+graceMs)
		if doubtful(&e) {
			e.Attempt = d.afterLoss(e.Attempt)
		}
		to, note := d.judge(&e)
		again := e.Note != nil && e.Note.Reason == nonce.ReasonUnknown
		event := nonce.Event{Nonce: e.Nonce, Attempt: e.Attempt, TxHash: note.TxHash, Reason: note.Reason}
		switch {
		case to == nonce.Held:
			hold := unknownLook(&d.view)
			if !again && d.view.UnknownFor > 0 {
				hold = d.view.UnknownFor
			}
			d.put(nonce.Entry{Nonce: e.Nonce, Attempt: e.Attempt, Status: nonce.Held, Until: d.until(hold), Holder: e.Holder, Note: &note})
			if again {
				continue
			}
			event.Type, event.Reason = nonce.EventUnknown, ""
			d.plan.Expired++
		case to == nonce.Released:
			row := e.Row()
			if note.Reason == nonce.ReasonUnseen {
				row.Earlier = &nonce.Earlier{Attempt: e.Attempt, Reason: nonce.ReasonUnseen}
			}
			d.put(release(row, note.Reason))
			event.Type = nonce.EventExpired
			if note.Reason == nonce.ReasonExpired {
				event.Reason = ""
			}
			if note.Reason != nonce.ReasonUnseen {
				d.plan.Expired++
			}
		default:
			d.consume(nonce.Past{Nonce: e.Nonce, Attempt: e.Attempt, Holder: e.Holder, Note: note})
			event.Type = nonce.EventUsed
			if note.Reason == nonce.ReasonBelowFloor {
				event.Type = nonce.EventExpired
				d.plan.Expired++
			}
		}
		d.plan.Own = append(d.plan.Own, event)
	}
}

// align follows the chain: the cursor is not below the count, the floor not far below the
// final one, and what was RELEASED and turns out to be used is CONSUMED. A new signer
// begins where the chain says when something is handed out of it, and not when a client
// marks a nonce that it never got.
func (d *draft) align(requests []*nonce.Request) {
	v, s := &d.view, &d.plan.Signer
	if d.in.Chain == nil || !v.Known || d.refusesNew() || d.silent() ||
		s.Version == 0 && !slices.ContainsFunc(requests, (*nonce.Request).Begins) {
		return
	}
	if v.Guessed && s.Version > 0 {
		return // a signer that is there waits for what is settled
	}
	from := v.Mined
	if s.Version == 0 { // it is not there yet
		from = max(from, v.Start)
	}
	if from > s.Next {
		s.Next, d.plan.Writes = from, true
	}
	for _, e := range slices.Clone(s.Live) {
		if e.Nonce < v.Mined && e.Status == nonce.Released {
			note := nonce.Note{Reason: nonce.ReasonMined, TxHash: d.in.Chain.UsedBy(e.Nonce)}
			d.consume(nonce.Past{Nonce: e.Nonce, Attempt: e.Attempt, Holder: e.Holder, Note: note})
			d.plan.Own = append(d.plan.Own, nonce.Event{
				Type: nonce.EventUsed, Nonce: e.Nonce, Attempt: e.Attempt, Reason: note.Reason, TxHash: note.TxHash,
			})
		}
	}
	if v.Final >= s.Floor+alignFloor {
		d.raise(v.Final)
		d.plan.Own = append(d.plan.Own, nonce.Event{Type: nonce.EventFloor, Nonce: v.Final})
	}
}

// nonceOf is the nonce that a request is about. A repair that names none is of the one that
// blocks others.
func (d *draft) nonceOf(req *nonce.Request) int64 {
	if req.Nonce < 0 {
		return d.view.Mined
	}
	return req.Nonce
}

// handOutsPerWrite is above how often one write can hand out the same nonce.
const handOutsPerWrite = 4096

// repair hands out one nonce whatever its state: the lowest that the chain has not used,
// which blocks all above it. What was sent with it is kept: it may still be mined, and
// the holder of the repair must replace it, or send something that may happen beside it.
func (d *draft) repair() bool {
	if d.repeat() {
		return true
	}
	n := d.nonceOf(d.req)
	row, there, read := d.row(n)
	if !read {
		return false
	}
	if err := d.unrepairable(n, row, there); err != nil {
		return d.refuse(err)
	}
	d.handOutAgain(n, row)
	return true
}

const nothingBlocks = "no nonce blocks others: the chain has used all that were handed out"

// unrepairable says why a nonce is not handed out by a repair.
func (d *draft) unrepairable(n int64, row nonce.Row, there bool) error {
	conflict := func(row nonce.Row, sentence string) error { d.conflict(row, sentence); return d.ans.Err }
	chain := d.in.Chain != nil
	switch {
	case !chain && d.req.Nonce < 0:
		return nonce.ErrNoChain
	case chain && (!d.view.Known || d.view.Guessed), d.silent():
		return d.errSilent()
	case chain && d.in.Chain.RepairOld():
		return &nonce.UnavailableError{Outcome: nonce.NotSent, Err: nonce.ErrChainSilent}
	case chain && n == d.view.Mined && n < d.view.Ahead:
		return &nonce.UnavailableError{Outcome: nonce.NotSent, Err: nonce.ErrChainAhead}
	case chain && n != d.view.Mined:
		return conflict(nonce.Row{Nonce: -1}, fmt.Sprintf("only the nonce that blocks others can be repaired, which is %d", d.view.Mined))
	case n >= d.plan.Signer.Next && d.req.Nonce < 0:
		return conflict(nonce.Row{Nonce: -1}, nothingBlocks)
	case n >= d.plan.Signer.Next:
		return nonce.ErrNotFound
	case !chain && (!there || n < d.plan.Signer.Floor):
		return conflict(nonce.Row{Nonce: n, Status: nonce.Consumed}, longAgo)
	case !chain && row.Status == nonce.Consumed && d.room() <= 0:
		return &nonce.HoldLimitError{Limit: d.rules.MaxLive} // with a chain it is one nonce, and all others wait for it
	case there && row.Status == nonce.Held && row.Reason == nonce.ReasonInDoubt,
		(!there || row.Status == nonce.Consumed) && d.grantRuns() != 0:
		return conflict(nonce.Row{Nonce: n, Status: nonce.Held}, doubtSentence) // or it was, when it was marked
	case there && row.Status == nonce.Held && row.Reason == nonce.ReasonRepair && row.Holder != d.req.Principal:
		return conflict(nonce.Row{Nonce: n, Status: nonce.Held}, "somebody else is repairing the nonce")
	}
	return nil
}

// attemptOfRepair is above all attempts that the nonce can have been handed out with.
func (d *draft) attemptOfRepair(row nonce.Row) int64 {
	epoch := d.plan.Signer.Epoch
	// Every write of a signer raises its version, and hands a nonce out less often than a batch
	// has ops, and each loss of a log adds at most its epoch.
	ofVersion := repairBase + (d.plan.Signer.Version+1)*handOutsPerWrite + epoch*epoch<<attemptShift
	switch {
	case row.Attempt == 0: // nothing is known of it any more
		return ofVersion
	case row.Status != nonce.Consumed || epoch == 0:
		return row.Attempt + 1
	case row.Attempt >= repairBase:
		return max(row.Attempt+1, ofVersion)
	}
	// It may have been marked with an early attempt while it was in doubt, after the lost log
	// had given later ones.
	return max(row.Attempt, epoch<<attemptShift) + 1
}

func (d *draft) handOutAgain(n int64, row nonce.Row) {
	hashes := row.Replaced
	if n := hashes.Len(); n >= nonce.MaxHashes-1 { // room for the one to come; the oldest is likelier in a pool than what nodes refused since
		one := len(nonce.TxHash{})
		hashes = hashes[:one] + hashes[(n-nonce.MaxHashes+3)*one:]
	}
	attempt := d.attemptOfRepair(row)
	d.ans.Before = &nonce.Before{Status: row.Status, Attempt: row.Attempt, Reason: row.Reason}
	d.tellEarlier(0, 1, row.Earlier)
	if row.Status != nonce.Released && row.Attempt > 0 { // it was not given back: it may have been sent
		row.Earlier = &nonce.Earlier{Attempt: row.Attempt, Reason: nonce.ReasonRepair, TxHash: row.TxHash}
	}
	row.Nonce, row.Attempt, row.Holder = n, attempt, d.req.Principal
	d.hold(row, d.holdOf(d.req), nonce.Note{Reason: nonce.ReasonRepair, TxHash: row.TxHash, Replaced: hashes})
	d.ans.Nonces, d.ans.Attempts = []int64{n}, []int64{attempt}
	d.remember()
}

// watch is how the signer stands in the list of those whose chain is watched: it is there for as
// long as a nonce of it is open, or is used and not final yet.
func (d *draft) watch() nonce.Watch {
	v, s := &d.view, &d.plan.Signer
	switch {
	case d.in.Chain == nil || s.Version == 0:
		return nonce.Watch{}
	case len(s.Live) == 0 && v.Known && s.Next <= v.Final:
		return nonce.Watch{Kind: nonce.WatchOff}
	case v.Trouble.Kind != nonce.WatchAsIs:
		return v.Trouble
	}
	return nonce.Watch{Kind: nonce.WatchOn}
}
