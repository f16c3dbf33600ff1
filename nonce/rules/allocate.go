package rules

import (
	"fmt"
	"math"
	"slices"

	"noncegate/nonce"
)

// allocate hands out the lowest RELEASED nonces, and then new ones.
func (d *draft) allocate() bool {
	if d.repeat() {
		return true
	}
	req := d.req
	if req.OnlyKnown {
		return d.refuse(nonce.ErrNotFound)
	}
	if d.refusesNew() {
		return d.refuse(nonce.ErrNewSigner)
	}
	free := d.released(req.Count)
	fresh := req.Count - len(free)
	err := d.withheld(req.Count, fresh)
	if err != nil {
		return d.refuse(err)
	}
	d.handOut(free, fresh)
	return true
}

// released are the indexes of the lowest RELEASED entries, as many as are wanted.
func (d *draft) released(want int) []int {
	var at []int
	for i := range d.plan.Signer.Live {
		if e := &d.plan.Signer.Live[i]; e.Status == nonce.Released && e.Nonce >= d.plan.Signer.Floor {
			at = append(at, i)
			if len(at) == want {
				break
			}
		}
	}
	return at
}

func (d *draft) handOut(free []int, fresh int) {
	req, s := d.req, &d.plan.Signer
	hold := d.holdOf(req)
	until := d.until(hold)
	var note *nonce.Note
	if req.RecordFirst {
		note = recordFirst
	}
	d.live(fresh)
	given := make([]int64, 2*req.Count)
	d.ans.Nonces, d.ans.Attempts = given[:0:req.Count], given[req.Count:req.Count:2*req.Count]
	for _, i := range free {
		e := &s.Live[i]
		after := noteAfter(e.Earlier(), note)
		*e = nonce.Entry{Nonce: e.Nonce, Attempt: e.Attempt + 1, Status: nonce.Held, Until: until, Holder: req.Principal, Note: after}
		d.give(e)
	}
	for range fresh {
		e := nonce.Entry{Nonce: s.Next, Attempt: 1, Status: nonce.Held, Until: until, Holder: req.Principal, Note: note}
		s.Live, s.Next = append(s.Live, e), s.Next+1
		d.give(&e)
	}
	d.ans.Token, d.ans.Until, d.ans.Left, d.ans.Wrote = d.in.Token, until, hold, true
	d.remember()
}

// recordFirst is the note of holds whose holder records a hash before it sends.
var recordFirst = &nonce.Note{Reason: nonce.ReasonRecordFirst}

// noteAfter is the note of a hold that follows an earlier one, if there is one.
func noteAfter(was *nonce.Earlier, note *nonce.Note) *nonce.Note {
	switch {
	case was == nil:
		return note
	case note == nil:
		return &nonce.Note{Earlier: was}
	}
	return &nonce.Note{Reason: note.Reason, Earlier: was}
}

// give adds a nonce to what the op is told.
func (d *draft) give(e *nonce.Entry) {
	d.tellEarlier(len(d.ans.Nonces), d.req.Count, e.Earlier())
	d.ans.Nonces, d.ans.Attempts = append(d.ans.Nonces, e.Nonce), append(d.ans.Attempts, e.Attempt)
}

// tellEarlier has the op told of the hold before that of its i-th nonce of so many, if there is one.
func (d *draft) tellEarlier(i, of int, was *nonce.Earlier) {
	switch {
	case was == nil:
		return
	case d.ans.Earlier == nil:
		d.ans.Earlier = make([]*nonce.Earlier, of)
	}
	d.ans.Earlier[i] = was
}

// refuse ends an op with an error, unless it may be a repeat of one that succeeded: if it
// has a request id that was not read, refuse returns false, and the id is read first. An op
// that is not refused need not wait for that: the store leaves it out if the id is known.
func (d *draft) refuse(err error) bool {
	if _, read := d.in.Requests[d.req.RequestID]; d.req.RequestID != "" && !read {
		return false
	}
	d.ans = Answer{Err: err}
	return true
}

// refusesNew reports whether the signer is not there, and does not begin by itself.
func (d *draft) refusesNew() bool {
	return d.plan.Signer.Version == 0 && !d.plan.Writes && d.rules.NewSigners == nonce.RefuseNew
}

// remember keeps what the op's request id was given.
func (d *draft) remember() {
	if d.req.RequestID == "" {
		return
	}
	d.plan.Requests = append(d.plan.Requests, nonce.Remembered{
		ID: d.req.RequestID, Hash: d.req.RequestHash(), Nonces: d.ans.Nonces, Attempts: d.ans.Attempts,
	})
}

// repeat answers an op whose request id is known, and reports whether it did. An id that was
// not read counts as new here; if it is not, the store leaves the write out (nonce.IDKnown),
// and the op is planned again with what was read.
func (d *draft) repeat() (answered bool) {
	id := d.req.RequestID
	if id == "" {
		return false
	}
	known := d.in.Requests[id]
	if i := slices.IndexFunc(d.plan.Requests, func(r nonce.Remembered) bool { return r.ID == id }); i >= 0 {
		known = &d.plan.Requests[i]
	}
	if known == nil {
		return false
	}
	conflict := func(sentence string, holds []nonce.HoldState) bool {
		d.ans.Err = &nonce.ConflictError{Sentence: sentence, Nonce: -1, Holds: holds}
		return true
	}
	switch d.req.CompareRequest(known.Hash) {
	case nonce.ForeignRequest:
		return conflict("this requestId was used by somebody else, or with other parameters", nil)
	case nonce.OtherRequest:
		return conflict("this requestId was used with other parameters", d.holdStates(known))
	}
	s := &d.plan.Signer
	for i, n := range known.Nonces {
		at, ok := s.Find(n)
		if !ok || !d.runs(&s.Live[at], known.Attempts[i]) {
			return conflict("the hold of this requestId has ended", d.holdStates(known))
		}
		e := &s.Live[at]
		if d.ans.Until == 0 || e.Until < d.ans.Until {
			d.ans.Until, d.ans.Left = e.Until, d.left(e.Until)
		}
		row := e.Row()
		d.tellEarlier(i, len(known.Nonces), row.Earlier)
		d.ans.Status, d.ans.Hashes = nonce.Held, allHashes(row.TxHash, row.Replaced)
	}
	d.ans.Nonces, d.ans.Attempts, d.ans.Token = slices.Clone(known.Nonces), slices.Clone(known.Attempts), d.in.Token
	return true
}

// runs reports whether an entry is the hold of an attempt, and not over.
func (d *draft) runs(e *nonce.Entry, attempt int64) bool {
	return e.Status == nonce.Held && e.Attempt == attempt && e.Until > d.in.Now.Latest &&
		(e.Note == nil || e.Note.Reason != nonce.ReasonUnknown) && !doubtful(e)
}

// holdStates tells what became of the nonces of a request. What is not live is consumed.
func (d *draft) holdStates(known *nonce.Remembered) []nonce.HoldState {
	s, out := &d.plan.Signer, make([]nonce.HoldState, len(known.Nonces))
	for i, n := range known.Nonces {
		out[i] = nonce.HoldState{Nonce: n, Attempt: known.Attempts[i], Status: nonce.Consumed}
		at, ok := s.Find(n)
		if !ok {
			continue
		}
		e := &s.Live[at]
		out[i].Attempt, out[i].Status, out[i].Unknown = e.Attempt, e.Status, e.Unknown()
		if e.Status == nonce.Held && e.Until <= d.in.Now.Latest && !out[i].Unknown {
			out[i].Status, _ = d.judge(e)
			out[i].Unknown = out[i].Status == nonce.Held
		}
	}
	return out
}

// withheld says why nonces, so many of them new, may not be handed out now; nil: they may, and
// room for them is taken among the open holds of the op's principal. A signer whose chain has
// not answered yet does not begin at 0; one that has begun goes on without.
func (d *draft) withheld(count, fresh int) error {
	req, v, next := d.req, &d.view, d.plan.Signer.Next
	switch {
	case fresh > 0 && d.room() < fresh: // what is RELEASED takes no room
		return &nonce.HoldLimitError{Limit: d.rules.MaxLive}
	case fresh > 0 && d.silent():
		return d.errSilent()
	case fresh > 0 && v.Known && v.Window > 0 && next+int64(fresh) > max(v.Mined, min(v.Claimed, next))+v.Window:
		return &nonce.HoldLimitError{Limit: int(v.Window), Window: true, Lowest: v.Mined}
	case next > math.MaxInt64-int64(fresh):
		return &nonce.ConflictError{Sentence: "the nonces of this signer are used up", Nonce: -1}
	case d.in.Claim == nil || req.Principal == 0 || req.MaxOpen == 0: // they are not counted
		return nil
	case !d.in.Claim(req, count):
		return &nonce.HoldLimitError{Limit: req.MaxOpen, OfPrincipal: true}
	}
	d.ans.Claimed = count
	return nil
}

// errSilent names what the nodes said, where they said something.
func (d *draft) errSilent() error {
	err := nonce.ErrChainUnknown
	if d.view.Said != "" {
		err = fmt.Errorf("%w (%s)", err, d.view.Said)
	}
	return &nonce.UnavailableError{Outcome: nonce.NotSent, Err: err}
}

// silent reports whether the chain has not said, or not lately, where the signer is, which
// is not there yet, and which no request before made known.
func (d *draft) silent() bool {
	return d.in.Chain != nil && d.in.Signer.Version == 0 && !d.plan.Writes && (!d.view.Known || d.view.StartOld)
}

// takeNext hands out the nonce of a transaction if it is the one to be handed out next.
func (d *draft) takeNext() {
	req, s := d.req, &d.plan.Signer
	row := nonce.Row{Nonce: s.Next, Attempt: 1, Holder: req.Principal}
	free := d.released(1)
	if len(free) > 0 {
		e := &s.Live[free[0]]
		row.Nonce, row.Attempt, row.Earlier = e.Nonce, e.Attempt+1, e.Earlier()
	}
	if req.Nonce != row.Nonce {
		d.conflict(nonce.Row{Nonce: -1}, fmt.Sprintf("nobody holds the nonce, and the next one is %d", row.Nonce))
		return
	}
	d.ans.Err = d.withheld(1, 1-len(free))
	if d.ans.Err != nil {
		return
	}
	d.hold(row, d.holdOf(req), nonce.Note{Reason: nonce.ReasonForwarded, TxHash: req.TxHash})
	s.Next = max(s.Next, row.Nonce+1)
	d.ans.Attempt, d.ans.Took = row.Attempt, true
	d.tellEarlier(0, 1, row.Earlier)
}
