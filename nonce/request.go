package nonce

import (
	"crypto/sha256"
	"encoding/binary"
)

// NewSigners is a policy.
type NewSigners string

// The policies: a signer begins with its first hand-out, or only when its floor was
// set, so that a mistyped name is refused.
const (
	AllowNew  NewSigners = "allow"
	RefuseNew NewSigners = "refuse"
)

// MayMark reports whether the hold is the caller's to end, now or after it has ended:
// its own, nobody's in particular, or anybody's. The zero Principal is everybody.
func (op *Op) MayMark(row Row) bool {
	return op.MarkAny || op.Principal == 0 || row.Holder == 0 || row.Holder == op.Principal
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
