package rules

import (
	"fmt"
	"time"

	"noncegate/nonce"
)

const (
	attemptOver = "the attempt is not the nonce's current one"
	longAgo     = "the nonce is consumed, so long ago that nothing else is known of it"
)

// mark does what a mark asks for, where it may: it finds the nonce and checks attempt and
// holder. Else the mark is answered, or, not read, waits. A late mark, whose nonce has
// another holder now, is refused without details of the other hold.
func (d *draft) mark(do func(nonce.Row)) (read bool) {
	req := d.req
	row, there, read := d.row(req.Nonce)
	switch {
	case !read:
	case !there && req.Nonce < d.plan.Signer.Next:
		d.conflict(nonce.Row{Nonce: req.Nonce, Status: nonce.Consumed}, longAgo)
	case !there:
		d.ans.Err = nonce.ErrNotFound
	case row.Status == nonce.Held && row.Reason == nonce.ReasonInDoubt:
		d.markDoubtful(row, do)
	case row.Attempt != req.Attempt && !req.MayMark(row):
		d.conflict(nonce.Row{Nonce: -1}, attemptOver)
	case row.Attempt != req.Attempt:
		d.conflict(row, attemptOver)
	case !req.MayMark(row):
		d.ans.Err = nonce.ErrNotHolder
	default:
		do(row)
		d.waitIfUsed(row)
	}
	return read
}

// markUsed records that a nonce was used, and by which transaction if that is known.
// Another one of the same attempt has replaced it: only the holder can have sent it.
func (d *draft) markUsed(row nonce.Row) {
	hash := d.req.TxHash
	if row.Status == nonce.Consumed && (hash == row.TxHash || hash == nonce.TxHash{} || row.Replaced.Contains(hash)) {
		d.ans.Status, d.ans.Hashes = nonce.Consumed, allHashes(row.TxHash, row.Replaced)
		return
	}
	note, ok := d.record(row)
	if !ok {
		return
	}
	switch {
	case row.Status != nonce.Consumed:
		if d.req.Reason == nonce.ReasonMined && row.TxHash == (nonce.TxHash{}) { // the chain says so, not its holder
			note.Reason = nonce.ReasonMined
		}
	case row.Reason != nonce.ReasonMined || row.TxHash != nonce.TxHash{}:
		note.Reason = row.Reason
	}
	d.end(row, note)
}

// end has the op consume a nonce.
func (d *draft) end(row nonce.Row, note nonce.Note) {
	d.ends(row)
	d.ans.Status, d.ans.Hashes = nonce.Consumed, allHashes(note.TxHash, note.Replaced)
	d.consume(nonce.Past{Nonce: row.Nonce, Attempt: row.Attempt, Holder: row.Holder, Note: note})
}

// ends notes the hold whose end, or new deadline, the op brings.
func (d *draft) ends(row nonce.Row) {
	d.ans.Wrote = true
	if row.Status == nonce.Held {
		i, _ := d.plan.Signer.Find(row.Nonce)
		e := &d.plan.Signer.Live[i]
		d.ans.Ends = Ended{Holder: e.Holder, Until: e.Until}
	}
}

// record adds the op's hash to those of the row, the newest first; or it refuses the op
// because there are too many.
func (d *draft) record(row nonce.Row) (note nonce.Note, ok bool) {
	note = nonce.Note{TxHash: row.TxHash, Replaced: row.Replaced}
	switch hash := d.req.TxHash; {
	case hash == nonce.TxHash{} || hash == row.TxHash || row.Replaced.Contains(hash):
	case row.TxHash == nonce.TxHash{}:
		note.TxHash = hash
	case row.Replaced.Len()+1 >= nonce.MaxHashes:
		d.conflict(row, fmt.Sprintf("%d transactions are recorded for this nonce, which is the most; "+
			"nonce_repair hands it out again", nonce.MaxHashes))
		return note, false
	default:
		note.TxHash, note.Replaced = hash, row.Replaced.Append(row.TxHash)
		d.ans.Replaced = row.TxHash
	}
	return note, true
}

// allHashes are the newest hash and those that it replaced, newest first; a row has them
// the other way round.
func allHashes(newest nonce.TxHash, replaced nonce.TxHashes) nonce.TxHashes {
	if newest == (nonce.TxHash{}) {
		return ""
	}
	all := nonce.TxHashes("").Append(newest)
	for i := replaced.Len() - 1; i >= 0; i-- {
		all = all.Append(replaced.At(i))
	}
	return all
}

// markRecyclable gives a nonce back, unless a transaction of it may have been sent.
func (d *draft) markRecyclable(row nonce.Row) {
	req := d.req
	sent := row.TxHash != nonce.TxHash{}
	repaired := row.Reason == nonce.ReasonRepair // others may have sent with the nonce before
	was := nonce.Note{TxHash: row.TxHash, Replaced: row.Replaced}
	switch {
	case req.Keep:
		d.keepHold(row)
	case row.Status == nonce.Released:
		d.ans.Status = nonce.Released
	case row.Status == nonce.Consumed && row.Reason == nonce.ReasonBelowFloor && !sent:
		d.ans.Status = nonce.Consumed
	case row.Status == nonce.Consumed:
		d.conflict(row, "the nonce is consumed, which is final")
	case sent && repaired && !req.Forwarded && !req.Unsent:
		d.end(row, was) // what was sent before the repair may still be mined
	case sent && forwarded(row) && !req.Forwarded:
		d.conflict(row, "the gateway has given its transaction to nodes; a node may still have it")
	case sent && !req.Unsent && !req.Forwarded:
		d.conflict(row, "a transaction is recorded for it; say unsent: true if no node has it")
	case !sent && repaired && d.in.Chain != nil && !req.Unsent:
		// What was sent before the repair is unknown. When the hold ends, the nodes are asked.
		d.conflict(row, "whoever had the nonce before its repair may have sent with it: send something in its place, "+
			"say unsent: true if no node has a transaction of it, or let the hold end")
	case sent && req.Forwarded && (row.TxHash != req.TxHash || row.Replaced != "" || repaired):
		d.end(row, was) // only the newest was refused; those that it was to replace may be in a pool
	case sent && row.Reason == nonce.ReasonResent:
		d.end(row, was) // a try before, of a gateway that has ended perhaps, may have left it in a pool
	case d.mined(req.Nonce):
		d.end(row, nonce.Note{Reason: nonce.ReasonMined, TxHash: d.in.Chain.UsedBy(req.Nonce)})
	case req.Nonce < d.plan.Signer.Floor:
		d.end(row, nonce.Note{Reason: nonce.ReasonBelowFloor})
	default:
		d.ends(row)
		d.ans.Status = nonce.Released
		d.put(release(row, req.Reason))
	}
}

// keepHold takes a transaction out of the record that nodes refused, and leaves the hold with its
// holder. Of a nonce that is CONSUMED it stays recorded, unless another one is. Nothing happens to
// one that is not the newest.
func (d *draft) keepHold(row nonce.Row) {
	note := nonce.Note{Reason: row.Reason, Replaced: row.Replaced}
	if k := row.Replaced.Len(); k > 0 {
		note.TxHash, note.Replaced = row.Replaced.At(k-1), row.Replaced[:(k-1)*len(nonce.TxHash{})]
	}
	switch refused := row.TxHash == d.req.TxHash && row.TxHash != (nonce.TxHash{}) && row.Reason != nonce.ReasonResent; {
	case !refused || row.Status == nonce.Released:
		d.ans.Status, d.ans.Hashes = row.Status, allHashes(row.TxHash, row.Replaced)
	case row.Status == nonce.Consumed && note.TxHash == (nonce.TxHash{}):
		d.conflict(row, "the nonce is consumed, which is final")
	case row.Status == nonce.Consumed:
		d.end(row, note)
	default:
		if note.TxHash == (nonce.TxHash{}) && row.Reason != nonce.ReasonRepair {
			note.Reason = d.req.Reason
		}
		d.hold(row, max(d.holdOf(d.req), d.left(row.HeldUntil.UnixMilli())), note)
	}
}

// forwarded reports whether the gateway has given the transaction of a hold to nodes, or was about to.
func forwarded(row nonce.Row) bool {
	return row.Reason == nonce.ReasonForwarded || row.Reason == nonce.ReasonResent
}

// release is the entry of a hold that has ended without use.
func release(row nonce.Row, reason string) nonce.Entry {
	e := nonce.Entry{Nonce: row.Nonce, Attempt: row.Attempt, Status: nonce.Released, Holder: row.Holder}
	if reason != "" || row.Earlier != nil {
		e.Note = &nonce.Note{Reason: reason, Earlier: row.Earlier}
	}
	return e
}

// extend gives a running hold a new deadline.
func (d *draft) extend(row nonce.Row) {
	if row.Status != nonce.Held || row.Unknown() {
		d.conflict(row, "the hold has ended")
		return
	}
	hold := d.holdOf(d.req)
	d.hold(row, hold, nonce.Note{Reason: row.Reason, TxHash: row.TxHash, Replaced: row.Replaced})
	d.ans.Hashes = "" // nothing was recorded
}

// hold writes a hold of the op with a new deadline.
func (d *draft) hold(row nonce.Row, hold time.Duration, note nonce.Note) {
	d.ends(row)
	e := nonce.Entry{Nonce: row.Nonce, Attempt: row.Attempt, Status: nonce.Held, Until: d.until(hold), Holder: row.Holder}
	if note.Earlier = row.Earlier; note != (nonce.Note{}) {
		e.Note = &note
	}
	d.put(e)
	d.ans.Status, d.ans.Token, d.ans.Until, d.ans.Left = nonce.Held, d.in.Token, e.Until, hold
	d.ans.Hashes = allHashes(note.TxHash, note.Replaced)
}

// markSigned records a hash before its transaction is sent, by the holder or in passing.
func (d *draft) markSigned() bool {
	if d.req.Forwarded && d.req.Attempt == 0 {
		return d.takeInPassing()
	}
	return d.mark(d.recordSigned)
}

// takeInPassing records a transaction that a wallet sends through the gateway. The wallet
// knows no attempt: it is that of the hold it has, and where the nonce that would be
// handed out next is not held, it is handed out now.
func (d *draft) takeInPassing() bool {
	req, s := d.req, &d.plan.Signer
	row, there, read := d.row(req.Nonce)
	switch {
	case !read:
		return false
	case there && row.Status == nonce.Held && row.Reason == nonce.ReasonInDoubt:
		d.conflict(nonce.Row{Nonce: req.Nonce, Status: nonce.Held}, doubtSentence)
	case there && row.Status != nonce.Released && !req.MayMark(row):
		d.ans.Err = nonce.ErrNotHolder
	case there && row.Status != nonce.Released:
		d.recordSigned(row)
		d.ans.Attempt = row.Attempt
		if row.Reason != nonce.ReasonRepair { // the repair has told it
			d.tellEarlier(0, 1, row.Earlier)
		}
		d.waitIfUsed(row)
	case d.refusesNew():
		d.ans.Err = nonce.ErrNewSigner
	case d.silent():
		d.ans.Err = d.errSilent()
	case req.Nonce < s.Next && !there, d.mined(req.Nonce):
		d.conflict(nonce.Row{Nonce: req.Nonce, Status: nonce.Consumed}, "the nonce is used")
	case !req.Take:
		d.conflict(nonce.Row{Nonce: -1}, "nobody holds the nonce; allocate it first")
	default:
		d.takeNext()
	}
	return true
}

// recordSigned records a hash of a hold, or of a nonce whose transaction was sent and is
// to be replaced, before the transaction is sent. A client that is told ok may send: from then
// on the nonce is never handed out for lack of a mark.
func (d *draft) recordSigned(row nonce.Row) {
	req := d.req
	held, known := row.Status == nonce.Held, req.TxHash == row.TxHash || row.Replaced.Contains(req.TxHash)
	switch {
	case row.Status == nonce.Released:
		d.conflict(row, "the hold has ended, and the nonce may be handed out to somebody else: do not send")
		return
	case !held && row.TxHash == nonce.TxHash{}:
		d.conflict(row, "the nonce is consumed, which is final")
		return
	case d.mined(req.Nonce) && !known:
		d.conflict(row, "the chain has used the nonce: do not send")
		return
	case known && (!req.Forwarded || !held || row.Reason == nonce.ReasonResent):
		d.ans.Status, d.ans.Hashes = row.Status, allHashes(row.TxHash, row.Replaced)
		if held {
			d.ans.Until, d.ans.Left = row.HeldUntil.UnixMilli(), d.left(row.HeldUntil.UnixMilli())
		}
		return
	}
	if req.Forwarded && !known && row.TxHash != (nonce.TxHash{}) && row.TxHash != req.Over {
		d.conflict(row, "another transaction is recorded for the nonce")
		d.ans.Err.(*nonce.ConflictError).Cause = nonce.CauseReplacement
		return
	}
	note, ok := d.record(row)
	if !ok {
		return
	}
	note.Reason = row.Reason
	if !held {
		d.end(row, note)
		return
	}
	switch {
	case known && forwarded(row): // what became of the try before is not known
		note.Reason = nonce.ReasonResent
	case req.Forwarded && row.Reason != nonce.ReasonRepair:
		note.Reason = nonce.ReasonForwarded
	case row.Unknown():
		note.Reason = ""
	}
	hold := d.holdOf(req)
	if !row.Unknown() { // its holder is at work: a hold is never shortened
		hold = max(hold, d.left(row.HeldUntil.UnixMilli()))
	}
	d.hold(row, hold, note)
}
