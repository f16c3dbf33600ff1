package nonce

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Kind says what an Op asks for.
type Kind uint8

// The kinds of an Op.
const (
	KindAllocate Kind = iota + 1
	KindMarkUsed
	KindMarkRecyclable
	KindSetFloor
	KindStatus
	KindList
	KindExtend     // a running hold gets a new deadline
	KindMarkSigned // a hash is recorded before its transaction is sent
	KindRepair     // the nonce that blocks others is handed out, whatever its state
)

// String returns the op label of metrics and logs.
func (k Kind) String() string {
	switch k {
	case KindAllocate:
		return "allocate"
	case KindMarkUsed:
		return "mark_used"
	case KindMarkRecyclable:
		return "mark_recyclable"
	case KindSetFloor:
		return "floor"
	case KindStatus:
		return "status"
	case KindList:
		return "list"
	case KindExtend:
		return "extend"
	case KindMarkSigned:
		return "mark_signed"
	case KindRepair:
		return "repair"
	}
	return "unknown"
}

// MaxCount is the largest count of one allocate.
const MaxCount = 256

// Op is one request to the Service. The caller fills the request part and does
// not touch the Op between Submit and Done; the service fills the result part
// before Done.
type Op struct {
	Kind      Kind
	Signer    string        // as ParseSigner returned it
	Count     int           // allocate: 1 to MaxCount
	RequestID string        // allocate, repair: "" for none
	OnlyKnown bool          // allocate, with a RequestID: hand nothing out; ErrNotFound if the id is not known
	Hold      time.Duration // allocate, extend, repair: 0 for the default; of an allocate, part of what a request id stands for
	Nonce     int64         // marks, extend, repair
	Attempt   int64         // marks, extend: from 1. 0, with a markSigned that is Forwarded: the current one
	TxHash    TxHash        // markUsed: zero if it is not known; markSigned
	Reason    string        // markRecyclable
	Floor     int64         // setFloor; with the result, the floor now in force
	List      ListQuery     // list
	// WithHolders, of a list, wants the names of those who have, or had, the nonces.
	WithHolders bool
	// ChainOnly, of a list that another node asks for, wants what the chain says of the nonces, and
	// nothing else of them.
	ChainOnly bool
	// RecordFirst, of an allocate, is the caller's promise to record the hash before it
	// sends, and to send only if that succeeded.
	RecordFirst bool
	// Unsent, of a markRecyclable, says that no node has a transaction with a recorded
	// hash: none was given one, or each that was has refused it for good.
	Unsent bool
	// Forwarded says that the gateway itself gives the transaction to the nodes: of a
	// markSigned that it is about to, of a markRecyclable that every node refused it.
	Forwarded bool
	// Keep, of a markRecyclable that is Forwarded, leaves the hold with its holder: the nodes
	// refused the transaction TxHash, which is taken out of the record, and the holder may send
	// another one. Reason is then ReasonRefused or "".
	Keep bool
	// Over, of a markSigned that is Forwarded, is the newest transaction that the caller knows
	// to be recorded for the nonce, and that this one may replace. Where another one is
	// recorded, or one and Over is zero, the op is a conflict with CauseReplacement.
	Over TxHash
	// Take lets a markSigned that is Forwarded take the nonce which would be handed out
	// next, if nobody holds it.
	Take bool
	// Principal is who asks; a hold belongs to who asked for it. MarkAny lets a mark
	// end holds of others too.
	Principal Principal
	MarkAny   bool
	// MaxOpen bounds, for an allocate, the holds of the Principal that the node which
	// hands out has handed out to it, of all signers, and that are neither marked there
	// nor due. Each node counts its own, from the first op on that has a bound. 0: none.
	MaxOpen int

	// EventSlot says that a post-DB slot was reserved for this op. It is false
	// again once the slot was handed to the EventSink; when it is still true at
	// Done, the slot is the caller's to give back.
	EventSlot bool
	// Path is set on what came from another node and changes something; see Path.
	Path *Path
	// PathID is set by the service on what it gives to Router.Forward: the number of the
	// path that the op takes, unique in this process and the same for ops of one signer
	// that must not overtake one another.
	PathID uint64
	// Task is the service's own, from Submit to Done.
	Task any
	// Completion is told when the op has ended.
	Completion Completion

	// Err is nil, or one of the errors of this package; all below is then zero.
	Err error
	// Nonces and Attempts are what allocate or repair handed out, ascending.
	Nonces, Attempts []int64
	Token            int64         // allocate, extend, repair: the fencing token of the hand-out
	HeldUntil        time.Time     // allocate, extend, repair, markSigned: the deadline by the store's clock
	HoldLeft         time.Duration // the same: what was left of the hold at the commit
	Status           Status        // marks, extend: the state the nonce is in now
	Hashes           TxHashes      // marks, repair: all that are recorded for the nonce now, newest first
	Replaced         TxHash        // markUsed, markSigned: the newest before this one
	Before           *Before       // repair: what the nonce was; nil if its request id was known
	// Earlier, of an allocate for each of Nonces, of a repair or a forwarded markSigned for its
	// nonce, is the hold before that nobody accounted for; nil: none of them has one.
	Earlier []*Earlier
	Next    int64    // setFloor
	Summary Summary  // status
	Page    ListPage // list

	// Holders, of a list WithHolders, are the names that are known.
	Holders map[Principal]string
	// Offer, of a repair that another node answered, is what that node knows of the
	// transaction to be outbid; nil: nothing. The service does not fill it.
	Offer *Offer
	// Said, of a status or list, is what the signer's owner says of its chain, in the form of
	// whoever asked for it; nil: nobody asked. The service does not touch it.
	Said any
}

// Principal is who a client is, in eight bytes. The zero Principal is everybody,
// where nobody is told apart.
type Principal uint64

// PrincipalOf returns the Principal of a name: the first eight bytes of its SHA-256.
// That of the empty name is zero.
func PrincipalOf(name string) Principal {
	if name == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(name))
	return max(1, Principal(binary.BigEndian.Uint64(sum[:])))
}

// String returns the sixteen hexadecimal digits that ParsePrincipal reads.
func (p Principal) String() string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(p))
	return hex.EncodeToString(b[:])
}

// Before is what a nonce was that a repair handed out.
type Before struct {
	Status  Status
	Attempt int64
	Reason  string
}

// Offer is what a transaction pays, in hexadecimal quantities; empty: unknown, or of
// another type of transaction.
type Offer struct {
	GasPrice, MaxFeePerGas, MaxPriorityFeePerGas, MaxFeePerBlobGas string
}

// Completion is told of the end of an op.
type Completion interface {
	// Done is called exactly once for a submitted op, from a worker's goroutine
	// (worker-queue) or the submitter's own (basic, caller-runs). It must not
	// block. The Waker it returns, which may be nil, is woken after the Done
	// calls of the whole batch, so that what one connection gets leaves together.
	Done(op *Op) Waker
	// Gone reports that nobody waits for the op any more. Work of a gone caller
	// is skipped, with ErrGone, where nothing is committed yet.
	Gone() bool
}

// Waker is woken when a batch is complete.
type Waker interface{ Wake() }

// EventType says what happened to a nonce.
type EventType uint8

// The types of events.
const (
	EventAllocated EventType = iota + 1
	EventUsed
	EventReleased
	EventExpired
	EventFloor
	EventReplaced  // another transaction was recorded for the nonce
	EventSigned    // a hash was recorded before its transaction is sent
	EventExtended  // a hold has a new deadline
	EventUnknown   // a hold is over, and nobody knows whether the nonce was used
	EventSent      // the gateway gave the transaction to the nodes, and one has it
	EventMined     // a block used the nonce
	EventFinal     // that block is final
	EventDropped   // no node has the transaction any more
	EventGap       // the nonce blocks others
	EventGapClosed // it does not any more
	EventExternal  // the chain used the nonce, and it was not one of ours, or with another transaction
	EventReorg     // blocks were replaced: Nonce is the count now
	EventStuck     // nodes have the transaction of the lowest unused nonce, and it is not mined for long
)

// eventWords are the words of the wire protocol.
var eventWords = [...]string{
	EventAllocated: "allocated", EventUsed: "used", EventReleased: "released", EventExpired: "expired", EventFloor: "floor",
	EventReplaced: "replaced", EventSigned: "signed", EventExtended: "extended", EventUnknown: "unknown", EventSent: "sent",
	EventMined: "mined", EventFinal: "final", EventDropped: "dropped", EventGap: "gap", EventGapClosed: "gapClosed",
	EventExternal: "external", EventReorg: "reorg", EventStuck: "stuck",
}

// String returns the word of the wire protocol.
func (t EventType) String() string {
	if int(t) < len(eventWords) && eventWords[t] != "" {
		return eventWords[t]
	}
	return "unknown event"
}

// Event is a committed change of one nonce, or what the chain said of it. With
// EventFloor, Nonce is the floor.
type Event struct {
	Type    EventType
	Signer  string
	Nonce   int64
	Attempt int64
	TxHash  TxHash
	Reason  string
	Version int64 // of the signer, after the commit; equal within one commit. 0: no commit
	At      time.Time

	Gap *Gap // EventGap
}

// Gap is why the lowest nonce that the chain has not used is not mined, for long.
type Gap struct {
	Kind    WatchKind // one with trouble
	Nonce   int64
	Since   time.Time // from when on, by the clock of the node that saw it first
	Status  Status    // 0: there is nothing of it
	Unknown bool      // it is HELD, and unknown
	Attempt int64
	TxHash  TxHash
	Blocked int64 // nonces above it that are HELD or CONSUMED
}

// EventSink receives events after their commit.
type EventSink interface {
	// Watched reports whether anybody wants events of the signer. It is asked
	// for every op and must be cheap.
	Watched(signer string) bool
	// Publish hands over the events of one op, in commit order per worker. It must
	// not block. placed says that a slot was reserved for them at admission;
	// the sink gives it back when its task has run. Without one the sink takes a
	// slot that is free, or drops the events and counts them.
	Publish(worker int, placed bool, events []Event)
}
