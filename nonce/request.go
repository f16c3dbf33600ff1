package nonce

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// MaxCount is the largest count of one allocate.
const MaxCount = 256

// Request is what a client asks of a signer: a plain value. The service changes nothing of it,
// but that it may fill in List.Signer.
type Request struct {
	Kind      Kind
	Signer    string        // as ParseSigner returned it
	Count     int           // allocate: 1 to MaxCount
	RequestID string        // allocate, repair: "" for none
	OnlyKnown bool          // allocate, with a RequestID: hand nothing out; ErrNotFound if the id is not known
	Hold      time.Duration // allocate, extend, repair: 0 for the default; of an allocate, part of what a request id stands for
	Nonce     int64         // marks, extend, repair: -1, of a repair, is the one that blocks others
	Attempt   int64         // marks, extend: from 1. 0, with a markSigned that is Forwarded: the current one
	TxHash    TxHash        // markUsed: zero if it is not known; markSigned
	Reason    string        // markRecyclable
	Floor     int64         // setFloor
	List      ListQuery     // list
	// WithHolders, of a list, wants the names of the principals that have, or had, the nonces.
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
	// recorded, or one and Over is zero, the request is a conflict with CauseReplacement.
	Over TxHash
	// Take lets a markSigned that is Forwarded take the nonce which would be handed out
	// next, if it is not held.
	Take bool
	// Principal is the caller's; a hold belongs to the principal that asked for it. MarkAny lets
	// a mark end holds of others too.
	Principal Principal
	MarkAny   bool
	// MaxOpen bounds, for an allocate, the holds of the Principal that the node which
	// hands out has handed out to it, of all signers, and that are neither marked there
	// nor due. Each node counts its own, from the first request on that has a bound. 0: none.
	MaxOpen int
	// DryRun asks what would become of the request: it is answered as if it had been done, or
	// refused as it would be, and changes nothing. Its request id counts as new.
	DryRun bool
}

// Principal is the name of a client's principal, in eight bytes. All clients have the zero Principal
// where there is no authentication.
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

// NewSigners is a policy.
type NewSigners string

// The policies: a signer begins with its first hand-out, or only when its floor was
// set, so that a mistyped name is refused.
const (
	AllowNew  NewSigners = "allow"
	RefuseNew NewSigners = "refuse"
)

// MayMark reports whether the hold is the caller's to end, now or after it has ended:
// its own, one without a principal, or any. The zero Principal may end any.
func (r *Request) MayMark(row Row) bool {
	return r.MarkAny || r.Principal == 0 || row.Holder == 0 || row.Holder == r.Principal
}

// RequestHash stands for the parameters of an allocate besides signer and id, and for
// whose the id is: the second half is the principal, where there is one.
func (r *Request) RequestHash() [16]byte {
	h := r.paramsHash()
	if r.Principal != 0 {
		binary.BigEndian.PutUint64(h[8:], uint64(r.Principal))
	}
	return h
}

func (r *Request) paramsHash() [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(r.Count))
	if r.RecordFirst {
		b[0] = 1
	}
	if r.Kind == KindRepair {
		binary.BigEndian.PutUint64(b[:8], uint64(r.Nonce)) // -1: the one that blocks
		b[0] = 2
	}
	binary.BigEndian.PutUint64(b[8:], uint64(r.Hold))
	sum := sha256.Sum256(b[:])
	return [16]byte(sum[:])
}

// Likeness is what a remembered request has to do with a new one of the same id.
type Likeness uint8

// The kinds of likeness.
const (
	SameRequest    Likeness = iota // the new one repeats it
	OtherRequest                   // other parameters
	ForeignRequest                 // another principal's, as far as can be seen
)

// CompareRequest compares the request with the hash of the request that has its id. An id
// that was stored without a principal, because clients were not told apart, matches any principal.
func (r *Request) CompareRequest(hash [16]byte) Likeness {
	params := r.paramsHash()
	mine := r.Principal == 0 || r.Principal == Principal(binary.BigEndian.Uint64(hash[8:]))
	switch {
	case hash == params, mine && [8]byte(hash[:]) == [8]byte(params[:]):
		return SameRequest
	case mine:
		return OtherRequest
	}
	return ForeignRequest
}
