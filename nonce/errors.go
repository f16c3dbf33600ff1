package nonce

import (
	"errors"
	"fmt"
	"time"

	"noncegate/lease"
)

// Errors of a Result. Except where said otherwise they mean that nothing
// happened.
var (
	// ErrBusy: the queue of the signer's worker is full.
	ErrBusy = errors.New("the signer's worker queue is full")
	// ErrEventsBusy: the signer's events are subscribed to, and there is no place for them.
	ErrEventsBusy = errors.New("the queue of the signer's events is full")
	// ErrFenced: ownership of the signer was lost before the commit.
	ErrFenced = errors.New("ownership of the signer was lost before the commit")
	// ErrNotFound: the nonce was never handed out. Of an allocate that is OnlyKnown:
	// its request id is not known.
	ErrNotFound = errors.New("this nonce was never handed out")
	// ErrNotHolder: another principal took the hold, and only that one, or one with the
	// right to mark any, may mark it.
	ErrNotHolder = errors.New("the hold is another principal's")
	// ErrDraining: the service is going away and takes nothing new.
	ErrDraining = errors.New("the gateway is going away")
	// ErrGone: the caller had gone before the work began.
	ErrGone = errors.New("the caller is gone")
	// ErrNoChain: no chain is configured that could say which nonce blocks others.
	ErrNoChain = errors.New("no chain is configured for this signer; name the nonce to be repaired")
	// ErrNewSigner: no signer of this name is there, and the gateway takes no new ones
	// by itself.
	ErrNewSigner = errors.New("there is no signer of this name, and --new-signers=refuse takes none by itself; " +
		"raise its floor to where it begins (nonce_setFloor, also to 0)")
	// ErrInternal: this program is wrong. Nothing was committed.
	ErrInternal = errors.New("internal error")
)

// NotOwnerError says that another node owns the signer.
type NotOwnerError struct {
	Node string // node id of the owner
	URL  string // its advertised URL, "" when it registered none
}

// Error implements error.
func (e *NotOwnerError) Error() string { return fmt.Sprintf("node %s owns the signer", e.Node) }

// InvalidError says that a request breaks a rule of the node that owns the signer.
type InvalidError struct{ Field, Rule string }

// Error implements error.
func (e *InvalidError) Error() string { return e.Field + ": " + e.Rule }

// PeerAwayError says that this node does not reach the one that owns the signer.
// It is an ErrPeerAway: nothing was sent.
type PeerAwayError struct {
	Node string // node id of the owner
	URL  string // its advertised URL, "" when it registered none
}

// Error implements error.
func (e *PeerAwayError) Error() string {
	return fmt.Sprintf("node %s, which owns the signer, is not reached from here", e.Node)
}

// Is reports whether target is ErrPeerAway.
func (e *PeerAwayError) Is(target error) bool { return target == ErrPeerAway }

// UnavailableError says that the store did not do it, or did not say whether it
// did. Only Outcome Unknown leaves that open.
type UnavailableError struct {
	Outcome Outcome
	Err     error
}

// Error implements error.
func (e *UnavailableError) Error() string {
	text, _ := e.words()
	return text
}

// Told reports whether the caller is told the cause itself; else only a log can say it.
func (e *UnavailableError) Told() bool {
	_, general := e.words()
	return !general
}

// Told is a cause that callers are told in its own words.
type Told string

// Error implements error.
func (t Told) Error() string { return string(t) }

// words is the sentence for the caller. general: it is one for many causes, which
// only the log can tell apart.
func (e *UnavailableError) words() (text string, general bool) {
	if errors.Is(e.Err, ErrPeerAway) {
		return e.Err.Error(), false
	}
	if t, ok := errors.AsType[Told](e.Err); ok {
		return t.Error(), false
	}
	if errors.Is(e.Err, ErrChainUnknown) {
		return e.Err.Error(), false
	}
	if e.Outcome == Unknown {
		return "the store did not confirm the write; ask again with the same request id", true
	}
	if errors.Is(e.Err, lease.ErrWentBack) || errors.Is(e.Err, lease.ErrSuperseded) {
		return e.Err.Error(), false // the store is there, and waiting does not help
	}
	if se, ok := errors.AsType[*StoreError](e.Err); ok && se.Outcome == Aborted {
		return "the store refused it", true
	}
	return "the store is out of reach", true
}

// Unwrap returns the store's error.
func (e *UnavailableError) Unwrap() error { return e.Err }

// CauseReplacement is the Cause of a conflict: another transaction is recorded for the nonce, and
// TxHash is the newest one.
const CauseReplacement = "replacement"

// HoldState is the present state of one nonce of a repeated request.
type HoldState struct {
	Nonce, Attempt int64
	Status         Status
	Unknown        bool // it is HELD, its time is over, and whether it was used is unknown
}

// ConflictError says that the present state, which it carries, does not allow
// the call. When a request id is the reason, Nonce is -1 and Holds has the state
// of what that request was given; it then does not mean that nothing ever
// happened.
type ConflictError struct {
	Sentence  string
	Cause     string // which rule it was, where programs need it: CauseReplacement
	Nonce     int64
	Status    Status
	Attempt   int64
	TxHash    TxHash
	HeldUntil time.Time
	Unknown   bool // as in HoldState
	Holds     []HoldState
}

// Error implements error.
func (e *ConflictError) Error() string { return e.Sentence }

// HoldLimitError says that the signer, or the principal, has as many open holds as it
// may have.
type HoldLimitError struct {
	Limit       int
	OfPrincipal bool // at the node that owns the signer
	// Window: Limit is how far new nonces may be ahead of the chain's count, which is
	// Lowest: the lowest nonce that is not used.
	Window bool
	Lowest int64
}

// Error implements error.
func (e *HoldLimitError) Error() string {
	if e.Window {
		return fmt.Sprintf("new nonces may be %d ahead of the chain, and nonce %d is the lowest that it has not used", e.Limit, e.Lowest)
	}
	if e.OfPrincipal {
		return fmt.Sprintf("the principal may have %d open holds of this node; mark some, or wait for them to end", e.Limit)
	}
	return fmt.Sprintf("the signer may have %d open holds; mark some, or wait for them to end", e.Limit)
}

// ErrNotSent is in the error of a WithNonce function that knows that its transaction
// was not given to any node: the nonce is given back.
//
//	return nonce.TxHash{}, fmt.Errorf("%w: %w", nonce.ErrNotSent, err)
var ErrNotSent = errors.New("the transaction was not sent")
