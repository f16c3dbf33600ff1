package nonce

import (
	"cmp"
	"slices"
	"time"
)

// MaxLive is the most that may be set for the HELD and RELEASED nonces of one signer: a row
// is written whole, and no chain takes as many pending transactions of one account.
const MaxLive = 4096

// Signer is the whole live state of a signer, as its row has it.
type Signer struct {
	Version int64 // grows with every write; 0: there is no row yet
	Next    int64 // nonces from it on were never handed out
	Floor   int64 // nonces below it are not handed out any more
	// Live has every nonce below Next that is HELD or RELEASED, ascending. All others
	// below Next are CONSUMED. It is not changed in place.
	Live []Entry
	// Ceiling is above every nonce that a log may have handed out without the row, since the
	// shard's Epoch; 0: none was. It never falls, and raising it leaves the version.
	Ceiling, Epoch int64
}

// Entry is one nonce that is HELD or RELEASED.
type Entry struct {
	Nonce   int64
	Attempt int64
	Until   int64     // HELD: its deadline, store clock, Unix milliseconds; else 0
	Holder  Principal // that has, or had, that attempt; 0: none is known
	Status  Status
	Note    *Note // nil: nothing more is known. It is not changed in place
}

// Note is what is known of few entries only.
type Note struct {
	Reason   string
	TxHash   TxHash   // the newest one recorded
	Replaced TxHashes // those that it replaced, oldest first
	Earlier  *Earlier // nil: none. It is not changed in place
}

// Earlier is a hold of a nonce that ended without a word of its holder, so that its
// transaction may still turn up. Each later holder is told, until it is CONSUMED. Of
// several such holds it is the last one.
type Earlier struct {
	Attempt int64
	Reason  string // why it ended: ReasonUnseen or ReasonRepair
	TxHash  TxHash // the newest one that was recorded with it
}

// Past is a nonce that was CONSUMED, as its row in the history has it.
type Past struct {
	Nonce, Attempt int64
	Holder         Principal // of the last attempt
	Again          bool      // only when it is written: there may be a row of it, of no higher attempt
	Note
	At time.Time // when it was written; only filled when it is read
}

// Find returns the index of a nonce in Live, or where it would be.
func (s *Signer) Find(n int64) (int, bool) {
	if k := len(s.Live); k == 0 || s.Live[k-1].Nonce < n {
		return k, false
	}
	return slices.BinarySearchFunc(s.Live, n, func(e Entry, n int64) int { return cmp.Compare(e.Nonce, n) })
}

// Earlier is the hold of the nonce before that was not accounted for; nil: there is none.
func (e *Entry) Earlier() *Earlier {
	if e.Note == nil {
		return nil
	}
	return e.Note.Earlier
}

// Row is the entry as clients see a nonce.
func (e *Entry) Row() Row {
	r := Row{Nonce: e.Nonce, Status: e.Status, Attempt: e.Attempt, Holder: e.Holder}
	if e.Note != nil {
		r.TxHash, r.Replaced, r.Reason, r.Earlier = e.Note.TxHash, e.Note.Replaced, e.Note.Reason, e.Note.Earlier
	}
	if e.Status == Held {
		r.HeldUntil = time.UnixMilli(e.Until)
	}
	return r
}

// Row is the consumed nonce as clients see it.
func (p *Past) Row() Row {
	return Row{
		Nonce: p.Nonce, Status: Consumed, Attempt: p.Attempt, Holder: p.Holder,
		TxHash: p.TxHash, Replaced: p.Replaced, Reason: p.Reason, UpdatedAt: p.At,
	}
}

// Clock is what a node knows of the store's clock at a moment.
type Clock struct {
	Earliest, Latest int64 // Unix milliseconds; it is not before the one nor after the other
}
