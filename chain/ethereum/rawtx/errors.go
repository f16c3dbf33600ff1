package rawtx

import (
	"errors"
	"fmt"
)

// What a caller may branch on. Every error of Decode is an *Error of exactly one of
// these kinds; errors.Is tells which.
var (
	ErrEmpty     = errors.New("empty transaction")
	ErrTooLarge  = errors.New("transaction too large") // bytes, or authorizations
	ErrType      = errors.New("unknown transaction type")
	ErrEncoding  = errors.New("wrong transaction encoding")             // RLP, number of fields, their lengths
	ErrUnsigned  = errors.New("unsigned transaction")                   // no signature, or one of zeros
	ErrHighS     = errors.New("signature with a high s")                // good on the curve, refused by EIP-2
	ErrSignature = errors.New("invalid signature")                      // any other that no key made
	ErrChainID   = errors.New("unusable chain id")                      // 0, or above MaxChainID
	ErrNonce     = errors.New("unusable nonce")                         // 2^64-1 (EIP-2681)
	ErrContent   = errors.New("transaction against a rule of its type") // blobs and authorizations
)

// Error says why a transaction was refused.
type Error struct {
	Field string // as JSON-RPC calls it, such as accessList[2].address; transaction for the whole
	Rule  string // what is wrong with it, as the rest of a sentence
	Kind  error  // one of the sentinels above
}

// Error returns a sentence that names the field and the rule.
func (e *Error) Error() string { return e.Field + " " + e.Rule }

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

// whole is the Field of errors about no single field.
const whole = "transaction"

func refuse(kind error, field, format string, args ...any) *Error {
	return &Error{Field: field, Rule: fmt.Sprintf(format, args...), Kind: kind}
}
