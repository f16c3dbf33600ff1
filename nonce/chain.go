package nonce

import (
	"errors"
	"slices"
	"time"
)

// Chain is what a service asks about blockchains. Its methods are called while plans
// are made: they must not block, nor call the service. See package chain.
type Chain interface {
	// Signer returns what is known of a signer of a chain, nil if no chain is
	// configured for it. It may be kept for as long as the signer is.
	Signer(signer string) ChainSigner
}

// ChainSigner is one signer as its chain sees it. All of it is soft: it is asked for
// again by whoever owns the signer, and nothing of it is stored.
type ChainSigner interface {
	// View is what is known now. next is the signer's cursor, as far as the plan goes.
	View(next int64) ChainView
	// Unseen reports whether, since the hold of that attempt became unknown, all nodes
	// were asked for its nonce, none saw a transaction, and the chain moved on.
	Unseen(n, attempt int64) bool
	// UsedBy is the transaction with which a block used the nonce; zero if that is not
	// known.
	UsedBy(n int64) TxHash
	// Committed tells what a commit of this node changed. The events are not to be kept.
	Committed(events []Event)
	// Owned tells whether this node owns the signer now.
	Owned(owned bool)
}

// ChainView is what the chain says of one signer at a moment.
type ChainView struct {
	// Known: a node has said how far the account is. Else Mined, Final and Start
	// mean nothing.
	Known bool
	Mined int64 // nonces below it are used, at the canonical head
	Final int64 // and at the final one; not above Mined
	Start int64 // where a signer begins that is met for the first time
	// StartOld: Start is of long ago, so that nobody begins there.
	StartOld bool
	// Window bounds new nonces: they are below Mined + Window. 0: it does not.
	Window int64
	// UnknownFor is how long a hold stays unknown before it may be released; 0: until
	// somebody knows.
	UnknownFor time.Duration
}

// ErrChainUnknown: the signer is new here, and no node of its chain has said yet how
// far the account is. Nothing happened.
var ErrChainUnknown = errors.New("no node of the signer's chain has said yet how many transactions the account has; nonces of a new signer begin there")

// unknownLook is when a hold that stays unknown is looked at again, which is a write:
// soon, in proportion, where that may release it, and seldom where only a node's
// answer ends it.
func (v *ChainView) unknownLook() time.Duration {
	if v.UnknownFor == 0 {
		return 10 * time.Minute
	}
	return min(max(v.UnknownFor/20, time.Second), 30*time.Second)
}

// alignFloor is how far the floor stays behind the final count at most. It follows in
// steps, because each is a write of its own kind.
const alignFloor = 16

// chainOf is what the chain says of the signer of a plan.
func (st *state) chainOf(r *Rules) (ChainSigner, ChainView) {
	if r.Chain == nil {
		return nil, ChainView{}
	}
	if !st.chainAsked {
		if st.chain, st.chainAsked = r.Chain.Signer(st.signer), true; st.chain != nil && st.owned {
			st.chain.Owned(true)
		}
	}
	if st.chain == nil {
		return nil, ChainView{}
	}
	return st.chain, st.chain.View(st.next)
}

// silent reports whether the chain has not said, or not lately, where the signer is, which
// is not there yet.
func (d *draft) silent() bool {
	return d.chain != nil && d.change.Version == 0 && (!d.view.Known || d.view.StartOld)
}

// behind reports whether the draft's signer has to follow the chain before its ops are
// planned.
func (d *draft) behind() bool {
	v, c := &d.view, &d.change
	if d.chain == nil || !v.Known || d.refusesNew() || d.silent() {
		return false
	}
	return c.Version == 0 && v.Start > c.Next || v.Mined > c.Next || v.Final >= c.Floor+alignFloor ||
		len(d.released) > 0 && d.released[0].nonce < v.Mined
}

var errBehind = errors.New("the signer does not follow its chain, because the store refuses the write; try again")

// errNotAligned refuses a hand-out where the chain may have used what would be handed
// out: the write that follows it was aborted all alone.
func errNotAligned() error { return &UnavailableError{Outcome: Aborted, Err: errBehind} }

// begins reports whether the signer is there, or one of the ops makes it begin. Where a
// new signer begins is what the chain says when something is handed out of it, and not
// when somebody marks a nonce that he never got.
func (d *draft) begins(ops ...*Op) bool {
	return d.change.Version != 0 || slices.ContainsFunc(ops, func(op *Op) bool {
		return op.takes() > 0 || op.Kind == KindRepair || op.Kind == KindSetFloor
	})
}

// align follows the chain: the cursor is not below the count, the floor not far below
// the final one, and what was released and turns out to be used is CONSUMED. It is the
// first op of its draft.
func (d *draft) align(op *Op) {
	op.told = nil
	if !d.behind() {
		return
	}
	v, c := &d.view, &d.change
	if c.Version == 0 {
		c.Next = max(c.Next, v.Start)
	}
	for len(d.released) > 0 && d.released[0].nonce < v.Mined {
		f := d.released[0]
		row := Row{Nonce: f.nonce, Status: Released, Attempt: f.attempt, Holder: f.holder}
		d.end(row, RowChange{
			Nonce: f.nonce, FromStatus: Released, FromAttempt: f.attempt,
			Status: Consumed, Attempt: f.attempt, Holder: f.holder, Reason: ReasonMined, TxHash: d.chain.UsedBy(f.nonce),
		})
		op.told = append(op.told, Event{Type: EventUsed, Nonce: f.nonce, Attempt: f.attempt, Reason: ReasonMined, TxHash: d.chain.UsedBy(f.nonce)})
	}
	c.Next = max(c.Next, v.Mined)
	if v.Final >= c.Floor+alignFloor {
		c.Floor, c.BelowFloor = v.Final, true
		d.dropFreeBelow(v.Final)
		op.told = append(op.told, Event{Type: EventFloor, Nonce: v.Final})
	}
	op.wrote, d.wrote = true, true
}

// judge says what becomes of an overdue hold, and for how long it is HELD if it is.
//
// A recorded hash, or the chain's count, says that the nonce is used. Who promised to
// record a hash before sending, and did not, has not sent. Of others nobody knows: on
// a chain that is asked, such a hold is unknown until the nodes have been asked for
// long enough; without one it is handed out again.
func (d *draft) judge(row Row) RowChange {
	to := RowChange{
		Nonce: row.Nonce, FromStatus: Held, FromAttempt: row.Attempt, Attempt: row.Attempt, Holder: row.Holder,
		TxHash: row.TxHash, Replaced: row.Replaced, Status: Consumed,
	}
	switch {
	case row.TxHash != TxHash{}:
	case row.Nonce < d.change.Floor:
		to.Reason = ReasonBelowFloor
	case d.chain != nil && d.view.Known && row.Nonce < d.view.Mined:
		to.Reason, to.TxHash = ReasonMined, d.chain.UsedBy(row.Nonce)
	case row.Reason == ReasonRecordFirst:
		to.Status, to.Reason = Released, ReasonNotRecorded
	case d.chain == nil:
		to.Status, to.Reason = Released, ReasonExpired
	case row.Reason != ReasonUnknown:
		to.Status, to.Reason, to.Hold = Held, ReasonUnknown, d.view.UnknownFor
		if to.Hold == 0 {
			to.Hold = d.view.unknownLook()
		}
	case d.view.UnknownFor > 0 && d.chain.Unseen(row.Nonce, row.Attempt):
		to.Status, to.Reason = Released, ReasonUnseen
	default:
		to.Status, to.Reason, to.Hold = Held, ReasonUnknown, d.view.unknownLook()
	}
	return to
}

// judged is the event of a hold that was judged; false: nothing is worth telling.
func judged(before Row, to *RowChange) (Event, bool) {
	e := Event{Nonce: to.Nonce, Attempt: to.Attempt, TxHash: to.TxHash, Reason: to.Reason}
	switch {
	case to.Status == Held:
		e.Type, e.Reason = EventUnknown, ""
		return e, before.Reason != ReasonUnknown
	case to.Status == Consumed && to.Reason != ReasonBelowFloor:
		e.Type = EventUsed
	default:
		e.Type = EventExpired
		if to.Reason == ReasonExpired {
			e.Reason = ""
		}
	}
	return e, true
}

// expired counts the holds that a sweep found over, and that nobody had said anything
// of: their nonces came back, or are unknown from now on. What ends later of an unknown
// one, and what turned out to be used, is none.
func (op *Op) expired() (n int) {
	if op.Kind != kindSweep {
		return 0
	}
	for i := range op.told {
		e := &op.told[i]
		if e.Type == EventUnknown || e.Type == EventExpired && e.Reason != ReasonUnseen {
			n++
		}
	}
	return n
}

// wanted is the nonce that the row of an op is read of. A repair that names none is of
// the one that blocks others, as it is now: when that has changed until the plan, it is
// read again. It is called for a read that is about to be made only: the plan takes the
// row of op.target for what was read.
func (op *Op) wanted(st *state, r *Rules) int64 {
	if op.Kind == KindRepair && op.Nonce < 0 {
		_, v := st.chainOf(r)
		op.target = v.Mined
		return op.target
	}
	op.target = op.Nonce
	return op.Nonce
}
