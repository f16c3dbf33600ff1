package nonce

import (
	"fmt"
	"time"
)

// Status is the state of an allocation. The numbers are what stores write.
type Status uint8

// The three states. CONSUMED is final.
const (
	Held     Status = 1
	Released Status = 2
	Consumed Status = 3
)

// String returns the word of the wire protocol.
func (s Status) String() string {
	switch s {
	case Held:
		return "HELD"
	case Released:
		return "RELEASED"
	case Consumed:
		return "CONSUMED"
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Reasons the gateway itself writes on an allocation. Those of a HELD one say what is
// known of the hold beyond its deadline; an ordinary hold has none.
const (
	ReasonExpired    = "expired"     // RELEASED: a hold whose deadline passed
	ReasonBelowFloor = "below_floor" // CONSUMED by raising the floor

	ReasonRecordFirst = "record_first" // HELD: its holder records the hash before it sends
	ReasonForwarded   = "forwarded"    // HELD: its transaction goes through the gateway
	ReasonResent      = "resent"       // HELD: the same, and the same transaction was sent again before it was known what became of it
	ReasonRefused     = "refused"      // HELD: nodes refused its transaction, and none has it; its holder may send another one
	ReasonRepair      = "repair"       // HELD: handed out by nonce_repair
	ReasonUnknown     = "unknown"      // HELD: its time is over, and whether it was used is unknown
	ReasonNotRecorded = "not_recorded" // RELEASED: its holder had to record a hash first, and did not
	ReasonUnseen      = "unseen"       // RELEASED: it was unknown for long, and no node saw a transaction
	ReasonMined       = "mined"        // CONSUMED: the chain's count has passed it
	ReasonInDoubt     = "in_doubt"     // RELEASED: a loss of Redis left it in doubt
)

// IsOwnReason reports whether a reason is one that the gateway itself writes.
func IsOwnReason(reason string) bool {
	switch reason {
	case ReasonExpired, ReasonBelowFloor, ReasonRecordFirst, ReasonForwarded, ReasonResent, ReasonRepair, ReasonUnknown,
		ReasonNotRecorded, ReasonUnseen, ReasonMined, ReasonInDoubt:
		return true
	}
	return false
}

// Row is one nonce as rules and lists see it, made of an Entry or of a Past.
type Row struct {
	Nonce     int64
	Status    Status
	Attempt   int64
	Token     int64    // fencing token it was last written under; 0 from mode basic
	TxHash    TxHash   // the newest one recorded
	Replaced  TxHashes // those that it replaced, oldest first; empty without TxHash
	Reason    string
	Earlier   *Earlier  // not of a CONSUMED one
	HeldUntil time.Time // store clock; only while HELD
	Holder    Principal // that has, or had, its last attempt; 0: none is known
	RequestID string    // only filled by Database.List
	UpdatedAt time.Time // only filled by Database.List
}

// Unknown reports whether the row is a hold whose time is over, while it is unknown
// whether it was used.
func (r *Row) Unknown() bool { return r.Status == Held && r.Reason == ReasonUnknown }

// Remembered is one remembered request id: what it asked for and what it got.
type Remembered struct {
	ID       string
	Hash     [16]byte // of the parameters; equal means the same call
	Nonces   []int64
	Attempts []int64 // Attempts[i] is the attempt of Nonces[i]
}
