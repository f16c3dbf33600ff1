package nonce

import "iter"

// Kind says what a Request asks for.
type Kind uint8

// The kinds. What the rest of the gateway has to know of one is its row in the table below.
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

// kinds is the table. It is never written.
var kinds = [...]struct {
	name string // of metrics and logs
	// reads: any node answers it from the rows, without owning the signer (status, list). A kind that
	// changes nothing but is answered by the owner is none of these.
	reads bool
	// ofNonce: it is about the nonce that it names, and so needs that one's row of the history
	// once it is CONSUMED.
	ofNonce bool
	// withID: it may have a request id, which stands for what it handed out.
	withID bool
	// withChain: what the signer's chain says belongs to its result.
	withChain bool
	// event is what it causes as a rule; 0: none.
	event EventType
	// begins: a signer that is not there yet begins by it. needsChain: it needs the first word of
	// its signer's chain. nil: never.
	begins, needsChain func(r *Request) bool
}{
	KindAllocate:       {name: "allocate", withID: true, event: EventAllocated, begins: handsOut, needsChain: handsOut},
	KindMarkUsed:       {name: "mark_used", ofNonce: true, event: EventUsed},
	KindMarkRecyclable: {name: "mark_recyclable", ofNonce: true, event: EventReleased},
	KindSetFloor:       {name: "floor", event: EventFloor, begins: always},
	KindStatus:         {name: "status", reads: true, withChain: true},
	KindList:           {name: "list", reads: true, withChain: true},
	KindExtend:         {name: "extend", ofNonce: true, event: EventExtended},
	KindMarkSigned:     {name: "mark_signed", ofNonce: true, event: EventSigned, begins: takes, needsChain: always},
	KindRepair: {name: "repair", ofNonce: true, withID: true, withChain: true, event: EventAllocated,
		begins: always, needsChain: always},
}

func always(*Request) bool { return true }

func handsOut(r *Request) bool { return !r.OnlyKnown }

func takes(r *Request) bool { return r.Take }

// lastKind is the highest one.
const lastKind = Kind(len(kinds) - 1)

// Kinds are all of them.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := Kind(1); k <= lastKind && yield(k); k++ {
		}
	}
}

// String returns the label of metrics and logs.
func (k Kind) String() string {
	if k == 0 || k > lastKind {
		return "unknown"
	}
	return kinds[k].name
}

// Reads reports whether requests of the kind change nothing.
func (k Kind) Reads() bool { return kinds[k].reads }

// Writes reports whether they may change something. The zero Kind does nothing.
func (k Kind) Writes() bool { return k != 0 && !kinds[k].reads }

// OfNonce reports whether they are about Request.Nonce.
func (k Kind) OfNonce() bool { return kinds[k].ofNonce }

// WithRequestID reports whether they may have a request id.
func (k Kind) WithRequestID() bool { return kinds[k].withID }

// WithChain reports whether what the signer's chain says belongs to their results.
func (k Kind) WithChain() bool { return kinds[k].withChain }

// Event is what they cause as a rule; 0: nothing.
func (k Kind) Event() EventType { return kinds[k].event }

// Begins reports whether a signer that is not there yet begins by the request.
func (r *Request) Begins() bool { f := kinds[r.Kind].begins; return f != nil && f(r) }

// NeedsChain reports whether the request needs the first word of its signer's chain.
func (r *Request) NeedsChain() bool { f := kinds[r.Kind].needsChain; return f != nil && f(r) }
