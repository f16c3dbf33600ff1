package nonce

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// errDefer is returned by the rules for an op that depends on what the draft
// itself changes (the same nonce, the same request id, a RELEASED row that is
// not loaded). The op and all later ones of its signer wait for the next round,
// so every nonce changes at most once per commit and no hand-out ever overwrites
// a HELD row.
var errDefer = errors.New("depends on this round; wait for the next")

// draft is the plan of one commit for one signer: what the ops of this round
// change relative to the state, which is not touched before the commit's result.
type draft struct {
	st       *state
	rules    *Rules
	change   Change
	released []freeNonce // what is left to hand out; aliases st.released until changed
	owned    bool        // released is the draft's own copy
	touched  map[int64]struct{}
	ids      map[string]struct{} // request ids this draft remembers
	idsRead  bool                // st.requests has all known ids of the ops
	wantIDs  bool                // an op was deferred because it has not
	wrote    bool

	now   time.Time   // about the store's clock; zero: not known
	chain ChainSigner // nil: no chain is configured for the signer
	view  ChainView
}

// Rules are the bounds the state machine is run with.
type Rules struct {
	DefaultHold time.Duration
	MaxHolds    int // open holds of one signer; 0: no limit
	// Chain is what blockchains say of signers; nil: none is asked.
	Chain Chain
	// NewSigners says what becomes of a hand-out for a signer that is not there yet;
	// "": AllowNew.
	NewSigners NewSigners

	open *openHolds // of each principal; nil: no limit
}

// NewSigners is a policy.
type NewSigners string

// The policies: a signer begins with its first hand-out, or only when its floor was
// set, so that a mistyped name is refused.
const (
	AllowNew  NewSigners = "allow"
	RefuseNew NewSigners = "refuse"
)

func newDraft(st *state, r *Rules) *draft {
	d := &draft{
		st: st, rules: r, released: st.released,
		change: Change{
			ID: st.id, Signer: st.signer, Token: st.term.Token, Version: st.version,
			Next: st.next, Floor: st.floor, Held: st.held,
		},
	}
	d.chain, d.view = st.chainOf(r)
	return d
}

// apply runs one op against the draft and leaves its tentative result in the op.
// It returns errDefer, or nil: a refusal is a result like another.
func (d *draft) apply(op *Op) error {
	d.rules.open.unclaim(op)
	op.reset()
	switch op.Kind {
	case KindAllocate:
		return d.allocate(op)
	case KindMarkUsed:
		return d.markUsed(op)
	case KindMarkRecyclable:
		return d.markRecyclable(op)
	case KindSetFloor:
		return d.setFloor(op)
	case KindExtend:
		return d.extend(op)
	case KindMarkSigned:
		return d.markSigned(op)
	case KindRepair:
		return d.repair(op)
	case kindSweep:
		d.expire(op)
		return nil
	case kindAlign:
		d.align(op)
		return nil
	case kindPrune:
		return errDefer // it is a commit of its own, see shard.prune
	}
	op.Err = ErrInternal
	return nil
}

// finish returns the change to commit: a comparison when nothing is written, for
// an answer that writes nothing must have compared the row in the store.
func (d *draft) finish(epoch uint64) Change {
	d.change.Check, d.change.Epoch = !d.wrote, epoch
	return d.change
}

// known answers an op whose request id is remembered, and reports that it did.
func (d *draft) known(op *Op) (bool, error) {
	if op.RequestID == "" {
		return false, nil
	}
	if d.remembers(op.RequestID) {
		return false, errDefer
	}
	req, ok := d.st.requests[op.RequestID]
	if !ok {
		return false, nil
	}
	if slices.ContainsFunc(req.Nonces, d.changed) {
		return false, errDefer
	}
	d.repeat(op, req)
	return true, nil
}

func (d *draft) allocate(op *Op) error {
	if known, err := d.known(op); known || err != nil {
		return err
	}
	if op.OnlyKnown {
		return d.refuse(op, ErrNotFound)
	}
	if d.refusesNew() {
		return d.refuse(op, ErrNewSigner)
	}
	count := int64(op.Count)
	if limit := int64(d.rules.MaxHolds); limit > 0 && d.change.Held+count > limit {
		return d.refuse(op, &HoldLimitError{Limit: d.rules.MaxHolds})
	}
	fromFree := min(count, int64(len(d.released)))
	if fromFree < count && d.st.releasedMore {
		return errDefer
	}
	if err := d.outsideWindow(count - fromFree); err != nil {
		return d.refuse(op, err)
	}
	if d.change.Next > math.MaxInt64-(count-fromFree) {
		return d.refuse(op, &ConflictError{Sentence: "the nonces of this signer are used up", Nonce: -1})
	}
	for _, f := range d.released[:fromFree] {
		if d.changed(f.nonce) {
			return errDefer
		}
	}
	if d.behind() {
		return d.refuse(op, errNotAligned())
	}
	if d.st.fast() && fromFree < count && d.change.Next+count-fromFree > d.st.standing.Ceiling {
		return errDefer // a floor of this round has moved the cursor: a block there is asked for first
	}
	if !d.rules.open.claim(op) {
		return d.refuse(op, &HoldLimitError{Limit: op.MaxOpen, OfPrincipal: true})
	}
	d.handOut(op, int(fromFree))
	return nil
}

// outsideWindow says why so many new nonces may not be handed out now. A signer whose
// chain has not answered yet does not begin at 0; one that has begun goes on without.
func (d *draft) outsideWindow(fresh int64) error {
	v := &d.view
	switch {
	case d.chain == nil || fresh == 0:
	case d.silent():
		return &UnavailableError{Outcome: NotSent, Err: ErrChainUnknown}
	case v.Known && v.Window > 0 && d.change.Next+fresh > v.Mined+v.Window:
		return &HoldLimitError{Limit: int(v.Window), Window: true, Lowest: v.Mined}
	}
	return nil
}

// refusesNew reports whether the signer is not there, and does not begin by itself.
func (d *draft) refusesNew() bool {
	return d.change.Version == 0 && !d.wrote && d.rules.NewSigners == RefuseNew
}

// refuse ends an allocate that there is no room for, unless it may be a repeat:
// whether its request id is known must have been read first.
func (d *draft) refuse(op *Op, err error) error {
	if op.RequestID != "" && !d.idsRead {
		d.wantIDs = true
		return errDefer
	}
	op.Err = err
	return nil
}

// handOut takes the lowest fromFree released nonces and the rest from the cursor.
func (d *draft) handOut(op *Op, fromFree int) {
	hold := op.Hold
	if hold == 0 {
		hold = d.rules.DefaultHold
	}
	reason := ""
	if op.RecordFirst {
		reason = ReasonRecordFirst
	}
	first := FirstAttempt(d.change.Version)
	op.makeNonces()
	for _, f := range d.released[:fromFree] {
		attempt := max(f.attempt+1, first)
		op.give(f.nonce, attempt)
		d.put(RowChange{
			Nonce: f.nonce, FromStatus: Released, FromAttempt: f.attempt,
			Status: Held, Attempt: attempt, Hold: hold, Holder: op.Principal, Reason: reason,
		})
		if f.unseen && op.Count == 1 {
			op.Before = &Before{Status: Released, Attempt: f.attempt, Reason: ReasonUnseen}
		}
	}
	d.released = d.released[fromFree:]
	for len(op.Nonces) < op.Count {
		n := d.change.Next
		d.change.Next++
		op.give(n, first)
		d.put(RowChange{Nonce: n, Fresh: true, Status: Held, Attempt: first, Hold: hold, Holder: op.Principal, Reason: reason})
	}
	d.change.Held += int64(op.Count)
	op.Token, op.HoldLeft = d.change.Token, hold
	op.wrote = true
	if op.RequestID != "" {
		d.remember(op)
	}
}

func (d *draft) remember(op *Op) {
	d.change.Requests = append(d.change.Requests, Request{
		ID: op.RequestID, Hash: op.RequestHash(), Nonces: op.Nonces, Attempts: op.Attempts,
	})
}

// fewIDs is how many request ids of a draft are compared one by one. Most drafts have
// one, which is not worth a map.
const fewIDs = 8

// remembers reports whether the draft remembers this request id.
func (d *draft) remembers(id string) bool {
	if len(d.change.Requests) <= fewIDs {
		return slices.ContainsFunc(d.change.Requests, func(r Request) bool { return r.ID == id })
	}
	if d.ids == nil {
		d.ids = make(map[string]struct{}, 4*fewIDs)
	}
	for _, r := range d.change.Requests[len(d.ids):] {
		d.ids[r.ID] = struct{}{}
	}
	_, ok := d.ids[id]
	return ok
}

// repeats reports whether a request id that the draft would remember has proved
// to be known.
func (d *draft) repeats() bool {
	return slices.ContainsFunc(d.change.Requests, func(r Request) bool {
		_, known := d.st.requests[r.ID]
		return known
	})
}

// repeat answers a request id that is already remembered.
func (d *draft) repeat(op *Op, req Request) {
	switch op.CompareRequest(req.Hash) {
	case ForeignRequest:
		op.Err = &ConflictError{Sentence: "this requestId was used by somebody else, or with other parameters", Nonce: -1}
		return
	case OtherRequest:
		op.Err = &ConflictError{
			Sentence: "this requestId was used with other parameters", Nonce: -1, Holds: d.holdStates(req),
		}
		return
	}
	if d.st.doubting && !op.made && slices.ContainsFunc(req.Nonces, func(n int64) bool { return n < d.st.standing.DoubtBelow }) {
		// Redis may have had it released and handed out again before it was lost, unless
		// this very op made it, so that nobody knows of it yet.
		op.Err = &ConflictError{
			Sentence: "the hold of this requestId is in doubt after a loss of Redis", Nonce: -1, Holds: d.holdStates(req),
		}
		return
	}
	op.makeNonces()
	for i, n := range req.Nonces {
		row, ok := d.st.details[n]
		if !ok || row.Status != Held || row.Attempt != req.Attempts[i] || row.Reason == ReasonUnknown || !row.HeldUntil.After(d.st.detailsAt) {
			op.reset()
			op.Err = &ConflictError{
				Sentence: "the hold of this requestId has ended", Nonce: -1, Holds: d.holdStates(req),
			}
			return
		}
		op.give(n, req.Attempts[i])
		op.Status, op.Hashes = Held, allHashes(row.TxHash, row.Replaced)
		op.Token, op.HeldUntil = row.Token, row.HeldUntil
		op.HoldLeft = row.HeldUntil.Sub(d.st.detailsAt)
	}
}

// holdStates tells what became of the nonces of a request. A row that is gone
// was pruned, so it is consumed; an overdue hold counts as what it is about to be.
func (d *draft) holdStates(req Request) []HoldState {
	out := make([]HoldState, len(req.Nonces))
	for i, n := range req.Nonces {
		out[i] = HoldState{Nonce: n, Attempt: req.Attempts[i], Status: Consumed}
		if row, ok := d.st.details[n]; ok {
			out[i].Attempt, out[i].Status, out[i].Unknown = row.Attempt, row.Status, row.Unknown()
			if row.Status == Held && !row.HeldUntil.After(d.st.detailsAt) && !out[i].Unknown {
				to := d.judge(row)
				out[i].Status, out[i].Unknown = to.Status, to.Status == Held
			}
		}
	}
	return out
}

// markUsed records that a nonce was used, and by which transaction if that is known.
// Another one of the same attempt has replaced it: nobody else can have sent it.
func (d *draft) markUsed(op *Op) error {
	row, err := d.markable(op)
	if err != nil || op.Err != nil {
		return err
	}
	if row.Attempt != op.Attempt {
		row.TxHash, row.Replaced = TxHash{}, "" // of another hand-out
	}
	op.Status = Consumed
	if row.Status == Consumed && (op.TxHash == row.TxHash || op.TxHash == TxHash{} || row.Replaced.Contains(op.TxHash)) {
		op.Hashes = allHashes(row.TxHash, row.Replaced)
		return nil
	}
	to := RowChange{Status: Consumed}
	if row.Status == Consumed {
		to.Reason = row.Reason
	}
	if !d.record(op, row, &to) {
		op.Status = 0
		return nil
	}
	d.mark(op, row, to)
	return nil
}

// record adds the op's hash to those of the row, the newest first; or it refuses the
// op because there are too many.
func (d *draft) record(op *Op, row Row, to *RowChange) bool {
	to.TxHash, to.Replaced = row.TxHash, row.Replaced
	switch {
	case op.TxHash == TxHash{} || op.TxHash == row.TxHash || row.Replaced.Contains(op.TxHash):
	case row.TxHash == TxHash{}:
		to.TxHash = op.TxHash
	case row.Replaced.Len()+1 >= MaxHashes:
		op.conflict(row, fmt.Sprintf("%d transactions are recorded for this nonce, which is the most; nonce_repair hands it out again", MaxHashes))
		return false
	default:
		to.TxHash, to.Replaced = op.TxHash, row.Replaced.Append(row.TxHash)
		op.Replaced = row.TxHash
	}
	op.Hashes = allHashes(to.TxHash, to.Replaced)
	return true
}

// allHashes are the newest hash and those that it replaced, newest first; a row has
// them the other way round.
func allHashes(newest TxHash, replaced TxHashes) TxHashes {
	if newest == (TxHash{}) {
		return ""
	}
	all := append(make([]byte, 0, len(newest)+len(replaced)), newest[:]...)
	for i := replaced.Len() - 1; i >= 0; i-- {
		h := replaced.At(i)
		all = append(all, h[:]...)
	}
	return TxHashes(all)
}

func (d *draft) markRecyclable(op *Op) error {
	row, err := d.markable(op)
	if err != nil || op.Err != nil {
		return err
	}
	op.Status = Released
	sent := row.TxHash != TxHash{}
	switch {
	case row.Status != Consumed && d.inDoubt(op.Nonce):
		op.conflict(row, inDoubt)
	case row.Status == Released:
	case row.Status == Consumed && row.Reason == ReasonBelowFloor && !sent:
		op.Status = Consumed
	case row.Status == Consumed:
		op.conflict(row, "the nonce is consumed, which is final")
	case sent && row.Reason == ReasonRepair && !op.Forwarded:
		// What was sent before the repair may still be mined: it is as it was.
		op.Status, op.Hashes = Consumed, allHashes(row.TxHash, row.Replaced)
		d.mark(op, row, RowChange{Status: Consumed, TxHash: row.TxHash, Replaced: row.Replaced})
	case sent && row.Reason == ReasonForwarded && !op.Forwarded:
		op.conflict(row, "the gateway has given its transaction to nodes; a node may still have it")
	case sent && !op.Unsent && !op.Forwarded:
		op.conflict(row, "a transaction is recorded for it; say unsent: true if no node has it")
	case !sent && row.Reason == ReasonRepair && d.chain != nil:
		// Nobody knows what was sent before the repair. When the hold ends, the nodes are asked.
		op.conflict(row, "whoever had the nonce before its repair may have sent with it: send something in its place, or let the hold end")
	case sent && op.Forwarded && (row.TxHash != op.TxHash || row.Replaced != "" || row.Reason == ReasonRepair):
		// Only the newest was refused. Those that it was to replace may be in a pool.
		op.Status, op.Hashes = Consumed, allHashes(row.TxHash, row.Replaced)
		d.mark(op, row, RowChange{Status: Consumed, TxHash: row.TxHash, Replaced: row.Replaced})
	case op.Nonce < d.change.Floor:
		op.Status = Consumed
		d.mark(op, row, RowChange{Status: Consumed, Reason: ReasonBelowFloor})
	default:
		d.mark(op, row, RowChange{Status: Released, Reason: op.Reason})
	}
	return nil
}

// extend gives a running hold a new deadline.
func (d *draft) extend(op *Op) error {
	row, err := d.markable(op)
	if err != nil || op.Err != nil {
		return err
	}
	switch {
	case row.Status != Held || row.Reason == ReasonUnknown:
		op.conflict(row, "the hold has ended")
		return nil
	case d.inDoubt(op.Nonce):
		op.conflict(row, inDoubt)
		return nil
	}
	hold := d.holdOf(op)
	op.Status, op.HoldLeft, op.Token = Held, hold, d.change.Token
	d.mark(op, row, RowChange{Status: Held, TxHash: row.TxHash, Replaced: row.Replaced, Reason: row.Reason, Hold: hold})
	return nil
}

// left is what is left of a hold, 0 if the time is not known.
func (d *draft) left(row Row) time.Duration {
	if d.now.IsZero() || row.Reason == ReasonUnknown {
		return 0
	}
	return max(0, row.HeldUntil.Sub(d.now))
}

func (d *draft) holdOf(op *Op) time.Duration {
	if op.Hold == 0 {
		return d.rules.DefaultHold
	}
	return op.Hold
}

// markSigned records a hash before its transaction is sent. Who is told ok may send:
// from then on the nonce is never handed out for lack of a mark.
func (d *draft) markSigned(op *Op) error {
	if op.Forwarded && op.Attempt == 0 {
		return d.takeInPassing(op)
	}
	row, err := d.markable(op)
	if err != nil || op.Err != nil {
		return err
	}
	return d.recordSigned(op, row)
}

// takeInPassing records a transaction that a wallet sends through the gateway. The
// wallet knows no attempt: it is that of the hold it has, and where nobody holds the
// nonce that would be handed out next, it is handed out now.
func (d *draft) takeInPassing(op *Op) error {
	if d.changed(op.Nonce) {
		return errDefer
	}
	row, ok := d.st.row(op.Nonce)
	switch {
	case ok && row.Status != Released:
		if !op.MayMark(row) {
			op.Err = ErrNotHolder
			return nil
		}
		op.Attempt, op.given = row.Attempt, true
		return d.recordSigned(op, row)
	case d.refusesNew():
		op.Err = ErrNewSigner
		return nil
	case d.silent():
		op.Err = &UnavailableError{Outcome: NotSent, Err: ErrChainUnknown}
		return nil
	case op.Nonce < d.change.Next && !ok, d.view.Known && op.Nonce < d.view.Mined:
		op.conflict(Row{Nonce: op.Nonce, Status: Consumed}, "the nonce is used")
		return nil
	case !op.Take:
		op.conflict(Row{Nonce: -1}, "nobody holds the nonce; allocate it first")
		return nil
	}
	return d.takeNext(op)
}

// takeNext hands out the nonce of a transaction if it is the one to be handed out next.
func (d *draft) takeNext(op *Op) error {
	next := d.change.Next
	if len(d.released) > 0 {
		next = d.released[0].nonce
	} else if d.st.releasedMore {
		return errDefer
	}
	limit := int64(d.rules.MaxHolds)
	switch {
	case op.Nonce != next:
		op.conflict(Row{Nonce: -1}, fmt.Sprintf("nobody holds the nonce, and the next one is %d", next))
		return nil
	case limit > 0 && d.change.Held+1 > limit:
		op.Err = &HoldLimitError{Limit: d.rules.MaxHolds}
		return nil
	case d.change.Next == math.MaxInt64:
		op.conflict(Row{Nonce: -1}, "the nonces of this signer are used up")
		return nil
	}
	to := RowChange{
		Nonce: next, Fresh: true, Status: Held, Attempt: FirstAttempt(d.change.Version), Hold: d.holdOf(op), Holder: op.Principal,
		TxHash: op.TxHash, Reason: ReasonForwarded,
	}
	if next == d.change.Next {
		if err := d.outsideWindow(1); err != nil {
			op.Err = err
			return nil
		}
		if d.st.fast() && next >= d.st.standing.Ceiling {
			return errDefer
		}
	} else {
		f := d.released[0]
		to.Fresh, to.FromStatus, to.FromAttempt, to.Attempt = false, Released, f.attempt, max(f.attempt+1, to.Attempt)
	}
	op.tookNonce = true
	if !d.rules.open.claim(op) {
		op.tookNonce, op.Err = false, &HoldLimitError{Limit: op.MaxOpen, OfPrincipal: true}
		return nil
	}
	if to.Fresh {
		d.change.Next++
	} else {
		d.released = d.released[1:]
	}
	d.put(to)
	d.change.Held++
	op.Attempt, op.Status, op.Token, op.HoldLeft = to.Attempt, Held, d.change.Token, to.Hold
	op.Hashes, op.wrote, op.given = allHashes(op.TxHash, ""), true, true
	return nil
}

// recordSigned records a hash of a hold, or of a nonce whose transaction was sent and
// is to be replaced.
func (d *draft) recordSigned(op *Op, row Row) error {
	op.Status = row.Status
	switch {
	case row.Status != Consumed && d.inDoubt(op.Nonce):
		op.conflict(row, inDoubt)
		return nil
	case row.Status == Released:
		op.conflict(row, "the hold has ended, and the nonce may be handed out to somebody else: do not send")
		return nil
	case row.Status == Consumed && row.TxHash == TxHash{}:
		op.conflict(row, "the nonce is consumed, which is final")
		return nil
	case d.view.Known && op.Nonce < d.view.Mined && op.TxHash != row.TxHash && !row.Replaced.Contains(op.TxHash):
		op.conflict(row, "the chain has used the nonce: do not send")
		return nil
	case op.TxHash == row.TxHash, row.Replaced.Contains(op.TxHash):
		op.Hashes = allHashes(row.TxHash, row.Replaced)
		if !op.Forwarded || row.Status == Consumed || row.Reason == ReasonForwarded {
			if row.Status == Held {
				op.HeldUntil, op.HoldLeft = row.HeldUntil, max(0, row.HeldUntil.Sub(d.st.detailsAt))
			}
			return nil
		}
	}
	to := RowChange{Status: row.Status, Reason: row.Reason}
	if !d.record(op, row, &to) {
		op.Status = 0
		return nil
	}
	if row.Status == Held {
		to.Hold = max(d.holdOf(op), d.left(row)) // who signs is at work: it is never shortened
		if op.HoldLeft = to.Hold; op.Forwarded && row.Reason != ReasonRepair {
			to.Reason = ReasonForwarded
		} else if row.Reason == ReasonUnknown {
			to.Reason = ""
		}
	}
	d.mark(op, row, to)
	return nil
}

// markable finds the row a mark is about and checks attempt and holder. A nil error
// with op.Err set is a refusal. Who is late, so that somebody else has the nonce now,
// is told so, and nothing of the other's hold.
func (d *draft) markable(op *Op) (Row, error) {
	if d.changed(op.Nonce) {
		return Row{}, errDefer
	}
	row, ok := d.st.row(op.Nonce)
	switch {
	case !ok && op.Nonce < d.st.pruned:
		op.conflict(Row{Nonce: op.Nonce, Status: Consumed}, "the nonce is consumed, so long ago that nothing else is known of it")
	case !ok:
		op.Err = ErrNotFound
	case d.lostHold(row, op):
	case row.Attempt != op.Attempt && !op.MayMark(row):
		op.conflict(Row{Nonce: -1}, attemptOver)
	case row.Attempt != op.Attempt:
		op.conflict(row, attemptOver)
	case !op.MayMark(row):
		op.Err = ErrNotHolder
	}
	return row, nil
}

const (
	attemptOver = "the attempt is not the nonce's current one"
	inDoubt     = "the nonce is in doubt after a loss of Redis; it comes back by itself"
)

// inDoubt reports whether Redis may have handed the nonce out to somebody of whom the
// store knows nothing. Then nobody is told that he has it.
func (d *draft) inDoubt(n int64) bool { return d.st.doubting && n < d.st.standing.DoubtBelow }

// MayMark reports whether the hold is the caller's to end, now or after it has ended:
// its own, nobody's in particular, or anybody's. The zero Principal is everybody.
func (op *Op) MayMark(row Row) bool {
	return op.MarkAny || op.Principal == 0 || row.Holder == 0 || row.Holder == op.Principal
}

// lostHold reports whether a mark of use is of a hold that Redis handed out and lost
// before the store knew of it: the row was last written under an epoch before, and
// the attempt may have been given under one too. Such a nonce counts as free, but is
// on the chain. Nobody knows who had it.
func (d *draft) lostHold(row Row, op *Op) bool {
	return op.Kind == KindMarkUsed && row.Status != Consumed &&
		op.Attempt > row.Attempt && op.Attempt < FirstAttempt(d.change.Version)
}

// mark records the end of a hold, or of a RELEASED row that proved to be used.
func (d *draft) mark(op *Op, row Row, to RowChange) {
	to.Nonce, to.Attempt = op.Nonce, op.Attempt
	to.FromStatus, to.FromAttempt = row.Status, row.Attempt
	if to.Holder = row.Holder; op.Attempt != row.Attempt {
		to.Holder = op.Principal // a hold that Redis lost
	}
	if row.Status == Held {
		op.endsOf, op.endsAt = row.Holder, row.HeldUntil
	}
	d.end(row, to)
	op.wrote = true
}

// end moves a row to another state and keeps the figures right.
func (d *draft) end(row Row, to RowChange) {
	switch row.Status {
	case Held:
		d.change.Held--
	case Released:
		d.removeFree(row.Nonce)
	}
	switch to.Status {
	case Held:
		d.change.Held++
	case Released:
		d.addFree(freeNonce{row.Nonce, row.Attempt, row.Holder, to.Reason == ReasonUnseen})
	}
	d.put(to)
}

func (d *draft) setFloor(op *Op) error {
	if len(d.touched) > 0 {
		return errDefer // what is released in this round may lie below the new floor
	}
	if op.askedFloor > d.change.Floor || d.refusesNew() {
		d.change.Floor = op.askedFloor
		d.change.Next = max(d.change.Next, op.askedFloor)
		d.change.BelowFloor = true
		d.dropFreeBelow(op.askedFloor)
		op.wrote, d.wrote = true, true
	}
	op.Floor, op.Next = d.change.Floor, d.change.Next
	return nil
}

// expire judges the overdue holds that were loaded for this round.
func (d *draft) expire(op *Op) {
	op.Nonces, op.Attempts, op.told = op.Nonces[:0], op.Attempts[:0], nil
	for _, row := range d.st.due {
		if d.changed(row.Nonce) {
			continue
		}
		to := d.judge(row)
		d.end(row, to)
		if e, worth := judged(row, &to); worth {
			op.told = append(op.told, e)
		}
		op.give(row.Nonce, row.Attempt)
		op.wrote = true
	}
}

func (d *draft) put(rc RowChange) {
	d.change.Rows = append(d.change.Rows, rc)
	if d.touched == nil && !rc.Fresh {
		d.touched = make(map[int64]struct{})
	}
	if !rc.Fresh {
		d.touched[rc.Nonce] = struct{}{}
	}
	d.wrote = true
}

// changed reports whether the draft may change this nonce. Fresh ones are those
// between the state's cursor and the draft's; a new floor changes what is below.
func (d *draft) changed(n int64) bool {
	if n >= d.st.next && n < d.change.Next || d.change.BelowFloor && n < d.change.Floor {
		return true
	}
	_, ok := d.touched[n]
	return ok
}

func compareFree(a, b freeNonce) int {
	switch {
	case a.nonce < b.nonce:
		return -1
	case a.nonce > b.nonce:
		return 1
	}
	return 0
}

func (d *draft) ownFree() {
	if !d.owned {
		d.released, d.owned = append(make([]freeNonce, 0, len(d.released)+8), d.released...), true
	}
}

func (d *draft) removeFree(n int64) {
	if i, ok := slices.BinarySearchFunc(d.released, freeNonce{nonce: n}, compareFree); ok {
		d.ownFree()
		d.released = slices.Delete(d.released, i, i+1)
	}
}

// addFree keeps the list sorted. When more are in the store than in the list,
// the list ends where its knowledge ends: a higher one is left to the store.
func (d *draft) addFree(f freeNonce) {
	i, _ := slices.BinarySearchFunc(d.released, f, compareFree)
	if i == len(d.released) && d.st.releasedMore {
		return
	}
	d.ownFree()
	d.released = slices.Insert(d.released, i, f)
}

func (d *draft) dropFreeBelow(floor int64) {
	i, _ := slices.BinarySearchFunc(d.released, freeNonce{nonce: floor}, compareFree)
	d.released = d.released[i:]
}

// reset clears the result part before a round plans the op (again).
func (op *Op) reset() {
	op.Err, op.wrote = nil, false
	op.Nonces, op.Attempts = nil, nil
	op.Token, op.HeldUntil, op.HoldLeft = 0, time.Time{}, 0
	op.Status, op.Next = 0, 0
	op.Hashes, op.Replaced, op.Before, op.told = "", TxHash{}, nil, nil
	op.endsOf = 0
	if op.tookNonce = false; op.given {
		op.Attempt, op.given = 0, false
	}
}

// refused leaves only the error of the result. An op that is known to have
// happened, or that another node may have done, and whose answer could not be had,
// is unknown to its caller and not refused, nor to be matched as the refusal. Only
// the conflict of an allocate tells the truth about it: a mark that is repeated
// meets what it did itself, and what came after. What is OnlyKnown does nothing
// anywhere.
func (op *Op) refused() {
	err := op.Err
	op.reset()
	op.Err = err
	if _, conflict := errors.AsType[*ConflictError](err); (op.recovered || op.doubt) && !op.OnlyKnown && !(conflict && op.Kind == KindAllocate) {
		why := fmt.Errorf("it may have happened, and the answer was not had: %v", err)
		if op.doubt {
			why = fmt.Errorf("%w, and then: %v", errDoubt, err)
		}
		op.Err = &UnavailableError{Outcome: Unknown, Err: why}
	}
}

// settleAt completes the result once the store's clock of the commit is known.
func (op *Op) settleAt(now time.Time) {
	switch op.Kind {
	case KindAllocate, KindExtend, KindRepair, KindMarkSigned:
		if op.wrote && op.HoldLeft > 0 {
			op.HeldUntil = now.Add(op.HoldLeft)
		}
	}
}

// makeNonces gives the result its room; one nonce needs no allocation.
func (op *Op) makeNonces() {
	if op.Count == 1 {
		op.Nonces, op.Attempts = op.one[0:0:1], op.one[1:1:2]
		return
	}
	op.Nonces, op.Attempts = make([]int64, 0, op.Count), make([]int64, 0, op.Count)
}

func (op *Op) give(n, attempt int64) {
	op.Nonces, op.Attempts = append(op.Nonces, n), append(op.Attempts, attempt)
}

// repair hands out one nonce whatever its state: the lowest that the chain has not
// used, which blocks all above it. What was sent with it is kept: it may still be
// mined, and whoever repairs must replace it, or send something that may happen
// beside it.
func (d *draft) repair(op *Op) error {
	op.Count = 1
	if known, err := d.known(op); known || err != nil {
		return err
	}
	n := op.target
	if d.changed(n) || op.Nonce < 0 && d.view.Known && n != d.view.Mined {
		return errDefer // its row is not what was read, or is not the one that blocks any more
	}
	row, there := d.st.row(n)
	if err := d.unrepairable(op, n, row, there); err != nil {
		return d.refuse(op, err)
	}
	d.handOutAgain(op, n, row, there)
	return nil
}

// unrepairable says why a nonce is not handed out by a repair.
func (d *draft) unrepairable(op *Op, n int64, row Row, there bool) error {
	conflict := func(row Row, sentence string) error { op.conflict(row, sentence); return op.Err }
	switch {
	case d.chain == nil && op.Nonce < 0:
		return ErrNoChain
	case d.chain != nil && !d.view.Known, d.silent():
		return &UnavailableError{Outcome: NotSent, Err: ErrChainUnknown}
	case d.chain != nil && n != d.view.Mined:
		return conflict(Row{Nonce: -1}, fmt.Sprintf("only the nonce that blocks others can be repaired, which is %d", d.view.Mined))
	case n >= d.change.Next && op.Nonce < 0:
		return conflict(Row{Nonce: -1}, "no nonce blocks others: the chain has used all that were handed out")
	case n >= d.change.Next:
		return ErrNotFound
	case d.inDoubt(n):
		return conflict(row, inDoubt)
	case n < d.st.pruned, d.chain == nil && n < d.change.Floor:
		return conflict(Row{Nonce: n, Status: Consumed}, "the nonce is consumed, so long ago that nothing else is known of it")
	case there && row.Status == Held && row.Reason == ReasonRepair && row.Holder != op.Principal:
		return conflict(Row{Nonce: n, Status: Held}, "somebody else is repairing the nonce")
	}
	return nil
}

func (d *draft) handOutAgain(op *Op, n int64, row Row, there bool) {
	hold, hashes := d.holdOf(op), row.Replaced
	if n := hashes.Len(); n >= MaxHashes-1 { // room for the one to come; the oldest is likelier in a pool than what nodes refused since
		one := len(TxHash{})
		hashes = hashes[:one] + hashes[(n-MaxHashes+3)*one:]
	}
	to := RowChange{
		Nonce: n, Fresh: !there, FromStatus: row.Status, FromAttempt: row.Attempt, Status: Held,
		// Every write of the signer raises its version, so that no hand-out of a nonce of
		// which nothing is known any more can have had a higher attempt.
		Attempt: max(row.Attempt, d.change.Version&(1<<epochShift-1)) + 1,
		Hold:    hold, Holder: op.Principal, TxHash: row.TxHash, Replaced: hashes, Reason: ReasonRepair,
	}
	if there {
		to.Attempt = row.Attempt + 1
	}
	to.Attempt = max(to.Attempt, FirstAttempt(d.change.Version))
	op.Before = &Before{Status: row.Status, Attempt: row.Attempt, Reason: row.Reason}
	op.one = [2]int64{n, to.Attempt}
	op.Nonces, op.Attempts = op.one[0:1:1], op.one[1:2:2]
	op.Hashes = allHashes(to.TxHash, to.Replaced)
	op.Token, op.HoldLeft, op.Status = d.change.Token, hold, Held
	d.end(row, to)
	if op.wrote = true; op.RequestID != "" {
		d.remember(op)
	}
}

func (op *Op) conflict(row Row, sentence string) {
	op.Status = 0
	op.Err = &ConflictError{
		Sentence: sentence, Nonce: row.Nonce, Status: row.Status, Attempt: row.Attempt,
		TxHash: row.TxHash, HeldUntil: row.HeldUntil, Unknown: row.Unknown(),
	}
}

// RequestHash stands for the parameters of an allocate besides signer and id, and for
// whose the id is: the second half is the principal, where there is one.
func (op *Op) RequestHash() [16]byte {
	h := op.paramsHash()
	if op.Principal != 0 {
		binary.BigEndian.PutUint64(h[8:], uint64(op.Principal))
	}
	return h
}

func (op *Op) paramsHash() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(op.Count))
	if op.RecordFirst {
		b[0] = 1
	}
	if op.Kind == KindRepair {
		binary.BigEndian.PutUint64(b[:8], uint64(op.Nonce)) // -1: the one that blocks
		b[0] = 2
	}
	binary.BigEndian.PutUint64(b[8:], uint64(op.Hold))
	sum := sha256.Sum256(b[:])
	return [16]byte(sum[:])
}

// Likeness is what a request that is remembered has to do with the op of its id.
type Likeness uint8

// The kinds of likeness.
const (
	SameRequest    Likeness = iota // the op repeats it
	OtherRequest                   // other parameters
	ForeignRequest                 // another principal's, as far as can be seen
)

// CompareRequest compares the op with the hash of the request that has its id. An id
// that was given when nobody was told apart is everybody's.
func (op *Op) CompareRequest(hash [16]byte) Likeness {
	params := op.paramsHash()
	mine := op.Principal == 0 || op.Principal == Principal(binary.BigEndian.Uint64(hash[8:]))
	switch {
	case hash == params, mine && [8]byte(hash[:]) == [8]byte(params[:]):
		return SameRequest
	case mine:
		return OtherRequest
	}
	return ForeignRequest
}
