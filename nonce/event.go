package nonce

import "time"

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
	EventUnknown   // a hold is over, and whether the nonce was used is unknown
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
	// Watched reports whether any client wants events of the signer. It is asked
	// for every op and must be cheap.
	Watched(signer string) bool
	// Publish hands over the events of one op, in commit order per worker. It must
	// not block. placed says that a slot was reserved for them at admission;
	// the sink gives it back when its task has run. Without one the sink takes a
	// slot that is free, or drops the events and counts them.
	Publish(worker int, placed bool, events []Event)
	// Unreserve gives back a slot of a worker that was reserved and is not needed.
	Unreserve(worker int)
}
