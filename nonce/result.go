package nonce

import (
	"cmp"
	"slices"
	"time"
)

// Result is what came of a Request: a plain value. With an Err all else is zero.
type Result struct {
	Err error // nil, or one of the errors of this package
	// Nonces and Attempts are what allocate or repair handed out, ascending.
	Nonces, Attempts []int64
	Token            int64         // allocate, extend, repair: the fencing token of the hand-out
	HeldUntil        time.Time     // allocate, extend, repair, markSigned: the deadline by the store's clock
	HoldLeft         time.Duration // the same: what was left of the hold at the commit
	Status           Status        // marks, extend: the state the nonce is in now
	Attempt          int64         // marks, extend: the attempt that was marked
	Hashes           TxHashes      // marks, repair: all that are recorded for the nonce now, newest first
	Replaced         TxHash        // markUsed, markSigned: the newest before this one
	Before           *Before       // repair: what the nonce was; nil if its request id was known
	// Earlier, of an allocate for each of Nonces, of a repair or a forwarded markSigned for its
	// nonce, is the hold before that was not accounted for; nil: none of them has one.
	Earlier []*Earlier
	Floor   int64    // setFloor: the floor now in force
	Next    int64    // setFloor
	Summary Summary  // status
	Page    ListPage // list

	// Holders, of a list WithHolders, are the names that are known.
	Holders map[Principal]string
	// Offer, of a repair that another node answered, is what that node knows of the
	// transaction to be outbid; nil: nothing. A service does not fill it.
	Offer *Offer
	// Said, of a status or list, is what the signer's owner says of its chain; nil: it was not
	// asked. A service does not fill it.
	Said *ChainSaid
}

// Before is what a nonce was that a repair handed out.
type Before struct {
	Status  Status
	Attempt int64
	Reason  string
}

// Offer is what a transaction pays, in hexadecimal quantities; empty: unknown, or of
// another type of transaction.
type Offer struct {
	GasPrice, MaxFeePerGas, MaxPriorityFeePerGas, MaxFeePerBlobGas string
}

// ChainSaid is what the owner of a signer says of its chain.
type ChainSaid struct {
	State *ChainState // of a status; nil: nothing is known
	Words []ChainWord // of a list: of the nonces that something is said of, ascending
	// Partial: the owner was not reached, and this is what the node that was asked knows by itself.
	Partial bool
}

// ChainWord is what a chain says of one nonce with its attempt: one of the words of the protocol.
type ChainWord struct {
	Nonce, Attempt int64
	Word           string
}

// Word is the word for a nonce with its attempt, "" for none.
func (s *ChainSaid) Word(n, attempt int64) string {
	i, ok := slices.BinarySearchFunc(s.Words, n, func(w ChainWord, n int64) int { return cmp.Compare(w.Nonce, n) })
	if !ok || s.Words[i].Attempt != attempt {
		return ""
	}
	return s.Words[i].Word
}

// ChainState is what a chain says of a signer.
type ChainState struct {
	Head         int64 // the number of the block at which that was so
	Mined, Final int64 // nonces below are used, at the head, and at the final block if FinalKnown
	Claimed      int64 // a count above Mined that one node gives while the others are away or behind; 0: none does
	FinalKnown   bool
	Window       int64 // new nonces are below Mined plus this; 0: no bound
	Trouble      *Gap  // what keeps the lowest open nonce from being mined; nil: nothing that is known
	Stopped      bool  // the final block fell, and nothing is done by itself for the chain's signers
}
