package nonce

import (
	"errors"
	"time"
)

// Chain is all that the rest of a gateway asks about blockchains; where none is configured, it is nil.
// A service asks for Signer, while it makes plans; what takes requests asks for the others. All but Tell
// must not block, nor wait for the service. Package chain has it.
type Chain interface {
	// Signer returns what is known of a signer of a chain, nil if no chain is
	// configured for it. It may be kept for as long as the signer is.
	Signer(signer string) ChainSigner
	// Refuses is the rule by which nothing is handed out to a signer, as its chain is none of those
	// that are configured; "": nothing is against it.
	Refuses(signer string) string
	// Await reports whether a request for which Request.NeedsChain holds has to wait for what its chain
	// says. Then heard is called, by another goroutine, when the chain has spoken or the wait for it is
	// over. If it need not wait, heard is never called. The request is not kept.
	Await(q *Request, heard func()) (waits bool)
	// Tell adds to the result of a request of a kind WithChain that has not failed what the chain says:
	// Said to a status or list, Offer to a repair that has none. Of a read the owner of the signer is asked,
	// which may take as long as a request that is forwarded; of a repair it does not block. Where a node
	// asks this one as the owner (Request.ChainOnly), and it is not, Err says so.
	Tell(q *Request, r *Result)
}

// ChainSigner is one signer as its chain sees it. All of it is soft: it is asked for
// again by the signer's owner, and nothing of it is stored.
type ChainSigner interface {
	// View is what is known now. next is the signer's cursor, as far as the plan goes.
	View(next int64) ChainView
	// Unseen reports whether, since the hold of that attempt became unknown, all nodes
	// were asked for its nonce, none saw a transaction, and the chain moved on.
	Unseen(n, attempt int64) bool
	// UsedBy is the transaction with which a block used the nonce; zero if that is not
	// known.
	UsedBy(n int64) TxHash
	// RepairOld reports whether what nodes have of the lowest open nonce was not asked lately.
	RepairOld() bool
	// Committed tells what a commit of this node changed. The events are not to be kept.
	Committed(events []Event)
	// Owned tells whether this node owns the signer now.
	Owned(owned bool)
}

// ChainView is what the chain says of one signer at a moment.
type ChainView struct {
	// Known: a node has said how far the account is. Else Mined, Final and Start
	// mean nothing.
	Known bool
	// Guessed: Mined is of no block, or of a node whose word settles nothing. New signers begin by
	// it, and new nonces are bounded by it; nothing else follows.
	Guessed bool
	Mined   int64 // nonces below it are used, at the canonical head
	Final   int64 // and at the final one; not above Mined
	Start   int64 // where a signer begins that is met for the first time
	// StartOld: Start is of long ago, so that no signer begins there.
	StartOld bool
	// Said is why nodes did not answer lately, for the client of a signer that cannot begin: MaxSaid
	// visible ASCII characters at most, none that JSON escapes. Empty: they did, or were not asked.
	Said string
	// Ahead, above Mined, is a count that a node gives and that is not settled; 0: none does.
	Ahead int64
	// Window bounds new nonces: they are below Mined + Window. 0: it does not. Claimed, above Mined,
	// is a count that one of several nodes gives while the others are away or behind; the window
	// begins there, and nothing else follows. 0: there is none.
	Window  int64
	Claimed int64
	// UnknownFor is how long a hold stays unknown before it may be released; 0: until
	// it is known.
	UnknownFor time.Duration
	// Trouble is what keeps the signer's transactions from being mined, or WatchClear; the zero
	// Watch: that is not found out yet.
	Trouble Watch
}

// ErrChainUnknown: the signer is new here, and no node of its chain has said yet how
// far the account is. Nothing happened.
var ErrChainUnknown = errors.New("no node of the signer's chain has said yet how many transactions the account has; " +
	"nonces of a new signer begin there")

// MaxSaid bounds ChainView.Said.
const MaxSaid = 200

// ErrChainSilent and ErrChainAhead keep a nonce from being repaired. Nothing happened.
var (
	ErrChainSilent = errors.New("no node of the signer's chain has answered just now whether the nonce is used")
	ErrChainAhead  = errors.New("a node of the signer's chain says that the nonce has just been used; ask again in a moment")
)
