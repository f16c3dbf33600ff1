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
	kindSweep   // of the service's own: end overdue holds
	kindRelease // of the service's own: give leases back; only a label
	kindPrune   // of the service's own: delete old CONSUMED rows, at most Count
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
	case kindSweep:
		return "sweep"
	case kindRelease:
		return "release"
	case kindPrune:
		return "prune"
	}
	return "unknown"
}

// reads reports whether the op only reads. A read is a barrier among the ops of
// its signer: it sees all before it and nothing after it.
func (k Kind) reads() bool { return k == KindStatus || k == KindList }

// MaxCount is the largest count of one allocate.
const MaxCount = 256

// Op is one request to the Service. The caller fills the request part and does
// not touch the Op between Submit and Done; the service fills the result part
// before Done.
type Op struct {
	Kind      Kind
	Signer    string        // as ParseSigner returned it
	Count     int           // allocate: 1 to MaxCount
	RequestID string        // allocate: "" for none
	OnlyKnown bool          // allocate, with a RequestID: hand nothing out; ErrNotFound if the id is not known
	Hold      time.Duration // allocate: 0 for the default; part of what a request id stands for
	Nonce     int64         // marks
	Attempt   int64         // marks: from 1
	TxHash    TxHash        // markUsed
	Reason    string        // markRecyclable
	Floor     int64         // setFloor; with the result, the floor now in force
	List      ListQuery     // list
	// Principal is who asks; a hold belongs to who asked for it. MarkAny lets a mark
	// end holds of others too.
	Principal Principal
	MarkAny   bool
	// MaxOpen bounds, for an allocate, the holds of the Principal that the node which
	// hands out has handed out to it, of all signers, and that are neither marked there
	// nor due. Each node counts its own, from the first op on that has a bound. 0: none.
	MaxOpen int

	// EventPlace says that a post-DB place was reserved for this op. It is false
	// again once the place was handed to the EventSink; when it is still true at
	// Done, the place is the caller's to give back.
	EventPlace bool
	// Path is set on what came from another node and changes something; see Path.
	Path *Path
	// Completion is told when the op has ended.
	Completion Completion

	// Err is nil, or one of the errors of this package; all below is then zero.
	Err error
	// Nonces and Attempts are what allocate handed out, ascending.
	Nonces, Attempts []int64
	Token            int64         // allocate: the fencing token of the hand-out
	HeldUntil        time.Time     // allocate: the deadline by the store's clock
	HoldLeft         time.Duration // allocate: what was left of the hold at the commit
	Status           Status        // marks: the state the nonce is in now
	Next             int64         // setFloor
	Summary          Summary       // status
	Page             ListPage      // list

	askedFloor int64 // setFloor: Floor as the caller filled it
	queuedAt   time.Time
	wrote      bool // the plan changes something for this op
	recovered  bool // an unknown commit proved to have done this op, or another with its request id
	made       bool // and it was this one
	inShard    bool // holds a place of its shard's queue

	claimed int       // allocate: room it has among its principal's open holds, while it is committed
	endsOf  Principal // marks: whose hold it ends, 0: none's
	endsAt  time.Time // and when that would have been due

	taken *bool // with caller-runs: set once it was taken from the queue, in the turn of its shard

	trail *trail // while the op is under way at another node
	order int    // among the ops of its trail
	trips int    // how often it was sent to another node, or had to be routed again
	doubt bool   // another node may have done it
	late  bool   // Redis answered a hand-out after the end of the grant
	// one keeps the single nonce of the common case inside the Op.
	one [2]int64
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

// takes is how many nonces the op wants.
func (op *Op) takes() int {
	if op.Kind != KindAllocate || op.OnlyKnown {
		return 0
	}
	return op.Count
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
)

// String returns the word of the wire protocol.
func (t EventType) String() string {
	switch t {
	case EventAllocated:
		return "allocated"
	case EventUsed:
		return "used"
	case EventReleased:
		return "released"
	case EventExpired:
		return "expired"
	case EventFloor:
		return "floor"
	}
	return "unknown"
}

// Event is a committed change of one nonce. With EventFloor, Nonce is the floor.
type Event struct {
	Type    EventType
	Signer  string
	Nonce   int64
	Attempt int64
	TxHash  TxHash
	Reason  string
	Version int64 // of the signer, after the commit; equal within one commit
	At      time.Time
}

// EventSink receives events after their commit.
type EventSink interface {
	// Watched reports whether anybody wants events of the signer. It is asked
	// for every op and must be cheap.
	Watched(signer string) bool
	// Publish hands over the events of one op, in commit order per lane. It must
	// not block. placed says that a place was reserved for them at admission;
	// the sink gives it back when its task has run. Without one the sink takes a
	// place that is free, or drops the events and counts them.
	Publish(lane int, placed bool, events []Event)
}
