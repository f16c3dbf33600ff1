package nonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/lease"
)

// Kept is a part of what a store keeps of its signers, as KeptStore hands it out and takes it in.
// The parts of one signer follow one another; the first of them has Signer.
type Kept struct {
	Names    map[Principal]string // what principals are called; only in parts before the first signer
	Name     string               // of the signer that all below is of
	Signer   *KeptSigner
	History  []Past
	Requests []KeptRequest
	Sent     []KeptSent
}

// KeptSigner is a signer's row.
type KeptSigner struct {
	Signer
	Err   error       // an ErrLive: the row cannot be read
	Watch Watch       // Kind below WatchOn: its chain is not watched
	Shard lease.Shard // where it came from
}

// KeptRequest is a remembered request id, and when it was remembered.
type KeptRequest struct {
	Remembered
	At time.Time
}

// KeptSent is a transaction that is offered to nodes of a chain, and when it is looked after next.
type KeptSent struct {
	Sent
	LookAt time.Time
}

// KeptStore is a store whose signers can be moved to another one.
type KeptStore interface {
	// Export calls each with all that is kept of all signers, in order of name, as it was at one
	// moment, by the store's clock now. It changes nothing. An error of each ends it and is
	// returned.
	Export(ctx context.Context, history bool, each func(now time.Time, part *Kept) error) error
	// Import takes signers in, in one transaction: all that next returns until io.EOF. A signer
	// that the store knows already refuses all: a *KnownSignerError. So does a shard that has the
	// performance engine: ErrEngineOn. They get token 0. Any other error of next is returned, and
	// nothing happened.
	Import(ctx context.Context, next func() (*Kept, error)) error
}

// KeptPiece is how many rows of a kind a part of a signer has at most.
const KeptPiece = 1000

// FirstDeadline is the earliest deadline of a hold in Unix milliseconds, 0 without any.
func (s *Signer) FirstDeadline() (first int64) {
	for i := range s.Live {
		if e := &s.Live[i]; e.Status == Held && (first == 0 || e.Until < first) {
			first = e.Until
		}
	}
	return first
}

// KnownSignerError refuses an import: the store has the signer.
type KnownSignerError struct{ Name string }

// Error implements error.
func (e *KnownSignerError) Error() string {
	return fmt.Sprintf("the store knows signer %s already; an import adds signers and changes none", e.Name)
}

// ErrEngineOn refuses an export or import while the performance engine serves signers.
var ErrEngineOn = errors.New("the performance engine serves signers, of which the rows of PostgreSQL are behind: " +
	"switch to the reliable engine first (gateway engine switch reliable)")
