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
	Exporter
	// Import takes signers in, in one transaction: all that next returns until io.EOF. A signer
	// that the store knows already refuses all: a *KnownSignerError. So does a shard that has the
	// performance engine: ErrEngineOn. They get token 0. Any other error of next is returned, and
	// nothing happened.
	Import(ctx context.Context, next func() (*Kept, error)) error
}

// Exporter hands out all that a store keeps of its signers.
type Exporter interface {
	// Export calls each with all that is kept of all signers, in order of name, as it was at one
	// moment, by the store's clock now. It changes nothing. An error of each ends it and is
	// returned.
	Export(ctx context.Context, history bool, each func(now time.Time, part *Kept) error) error
}

// KeptRows reads what an export tells of, in one transaction. Each list is in order, after what is
// given, and has KeptPiece rows at most; it is empty at the end.
type KeptRows interface {
	Names(ctx context.Context) (map[Principal]string, error)
	Signers(ctx context.Context, after string) ([]KeptRow, error)
	Pasts(ctx context.Context, signer, from int64) ([]Past, error)
	Requests(ctx context.Context, signer int64, after string) ([]KeptRequest, error)
	Sent(ctx context.Context, name string, after *KeptSent) ([]KeptSent, error)
}

// KeptRow is a signer and its key in the store.
type KeptRow struct {
	ID   int64
	Name string
	KeptSigner
}

// ExportRows calls each with all that is kept of all signers.
func ExportRows(ctx context.Context, rows KeptRows, history bool, each func(*Kept) error) error {
	names, err := rows.Names(ctx)
	if err == nil {
		err = each(&Kept{Names: names})
	}
	for after := ""; err == nil; {
		var signers []KeptRow
		if signers, err = rows.Signers(ctx, after); err != nil || len(signers) == 0 {
			return err
		}
		for i := range signers {
			after = signers[i].Name
			if err = exportSigner(ctx, rows, &signers[i], history, each); err != nil {
				return err
			}
		}
	}
	return err
}

func exportSigner(ctx context.Context, rows KeptRows, s *KeptRow, history bool, each func(*Kept) error) error {
	err := each(&Kept{Name: s.Name, Signer: &s.KeptSigner})
	for from := int64(0); history && err == nil; {
		var past []Past
		if past, err = rows.Pasts(ctx, s.ID, from); err != nil || len(past) == 0 {
			break
		}
		err, from = each(&Kept{Name: s.Name, History: past}), past[len(past)-1].Nonce+1
	}
	for after := ""; err == nil; {
		var requests []KeptRequest
		if requests, err = rows.Requests(ctx, s.ID, after); err != nil || len(requests) == 0 {
			break
		}
		err, after = each(&Kept{Name: s.Name, Requests: requests}), requests[len(requests)-1].ID
	}
	for after := (&KeptSent{Sent: Sent{Nonce: -1}}); err == nil; {
		var sent []KeptSent
		if sent, err = rows.Sent(ctx, s.Name, after); err != nil || len(sent) == 0 {
			break
		}
		err, after = each(&Kept{Name: s.Name, Sent: sent}), &sent[len(sent)-1]
	}
	return err
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
