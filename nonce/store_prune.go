package nonce

import (
	"context"
	"time"

	"noncegate/lease"
)

// Pruner deletes allocations that are history only: of each signer the lowest
// ones, as long as they are CONSUMED and were last written longer ago than an
// age, by the store's clock. They then count as CONSUMED because they lie below
// the signer's Snapshot.Pruned: no nonce below it has a row, it never goes back,
// and it is not above Next.
type Pruner interface {
	// Prunable walks signers in order of their key and finds those whose lowest
	// allocation may be pruned. It changes nothing, needs no index beyond the
	// primary keys, and reads at most q.Signers lowest rows and q.Found times
	// q.Rows others.
	Prunable(ctx context.Context, q PruneQuery) (PrunePage, error)

	// Prune prunes some signers in one transaction. It is a write like any
	// other: each signer's row is changed on the condition of owner, token and
	// version, and its version rises by one; the rows are deleted only through
	// the row that was changed. Which rows are CONSUMED and old is judged by the
	// statement (or in the transaction) that deletes them. The lease is neither
	// renewed nor looked at. With the zero Holder the version alone is the
	// condition, as under Locker.
	//
	// A piece whose condition does not hold, whose signer's row is locked by
	// somebody else, or which finds nothing to prune, is not applied and leaves
	// no trace; the others are. The result has one Pruned a piece, in order.
	// Errors are *StoreError.
	Prune(ctx context.Context, h lease.Holder, p Pruning) ([]Pruned, error)
}

// PruneQuery asks for the next signers of a walk.
type PruneQuery struct {
	After   int64         // the key of the last signer walked over; 0: from the first
	Age     time.Duration // how old a row must be
	Signers int           // how many signers to walk over at most
	Found   int           // how many to find at most
	Rows    int           // how far to count the rows of each that is found
}

// PrunePage is a part of a walk.
type PrunePage struct {
	Found []Prunable
	After int64 // where to go on; 0: the walk is at its end
	Now   time.Time
}

// Prunable is a signer with something to prune.
type Prunable struct {
	ID      int64
	Signer  string
	Version int64
	Lease   lease.Grant
	Rows    int // how many of its rows may be pruned, at most PruneQuery.Rows
}

// Pruning is what one call prunes.
type Pruning struct {
	Age time.Duration
	// Epoch is the store's Epoch the beliefs are of, see Change.Epoch. It is not
	// looked at with the zero Holder.
	Epoch  uint64
	Pieces []PrunePiece // of different signers
}

// PrunePiece is one signer's part of a Pruning.
type PrunePiece struct {
	ID      int64
	Signer  string
	Token   int64 // believed; not looked at with the zero Holder
	Version int64 // believed
	Rows    int   // the most rows to delete
}

// Pruned tells what became of a piece.
type Pruned struct {
	Applied bool
	Below   int64 // Snapshot.Pruned from now on
	Rows    int   // how many rows were deleted
}
