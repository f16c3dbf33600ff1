// Package chain is what a blockchain says of signers: how far their accounts have
// come, which transactions its nodes have seen, and what became of one that was sent.
//
// A Chain is the interface to one blockchain, and knows nothing of holds; package
// chain/ethereum is one, and another chain with nonces of accounts would be a sibling package.
// A Tracker compares what one Chain says with what this node handed out.
//
// What a Chain says is evidence of a moment. A count that only one of several nodes claims
// is a hint, and so is a transaction that only one of them shows. A settled count shows that
// nonces were used, and is undone when it proves wrong. The absence of a transaction proves
// nothing.
//
// The package promises: a count falls only with a reorganization, or when it proves wrong;
// nothing is called external or unseen while a node could not be asked; plans are answered from
// memory and never wait for a node; the memory is bounded by Config.MaxSigners.
//
// It does not promise that what it tells is complete: other nodes of this gateway may have seen
// more, and nothing is kept over a restart. After a take-over two nodes may both tell of a gap.
//
// Goroutines: Chains.Run has one for each Tracker and one for the store's list of watched
// signers, and waits for them. Tracker.Run has four: the starter asks where new signers stand, the
// follower follows heads and asks for counts, the watcher looks at what is open, and the fourth
// is the Chain's own Run.
//
// Locks: Tracker.mu guards the tables, signer.mu one signer. A goroutine that has one of them does
// not take the other, and asks no question meanwhile.
//
// Read chain.go (the interface), tracker.go (the table of signers), signer.go and notes.go (what is
// known of one), start.go (where new ones begin), heads.go and counts.go (how far they are), watch.go
// (what is open), sighting.go (what nodes show), outside.go (nonces that their holders did not use),
// trouble.go (what keeps a nonce from being mined), recall.go (for lists), events.go, chains.go
// (several chains), tell.go (what clients are told) and watchlist.go (what the store lists).
package chain

import (
	"context"
	"errors"
	"time"

	"noncegate/nonce"
)

// Hash is the hash of a block or of a transaction; the zero Hash means none.
type Hash = nonce.TxHash

// Block names a block.
type Block struct {
	Number       int64
	Hash, Parent Hash
	Time         time.Time // as the block has it
}

// Head is the tip of the canonical chain, and what has changed since the Head before.
type Head struct {
	Latest Block
	// Agreed is the newest block that at least two nodes have, or Latest where the chain has
	// one node. Counts are settled at it. A zero Hash: none yet.
	Agreed Block
	// Final is the newest block that no reorganization can remove, as far as the chain
	// says. A zero Hash: the chain has not said yet.
	Final Block
	// Uses are the nonces that the blocks consumed which have become canonical since the
	// Head before, in order. Skipped: some of these blocks were not read, and counts
	// must be asked for.
	Uses    []Use
	Skipped bool
	// Reorg is set when blocks of the Head before are no longer canonical.
	Reorg *Reorg
	// FinalFell says that Final is below, or beside, what was final before: the nodes
	// were reset, or they lie. The gateway does nothing by itself for this chain until
	// FinalStands, or until it is started again.
	FinalFell bool
	// FinalStands says that what fell is final again: the nodes are well.
	FinalStands bool
}

// Use is one nonce that a block consumed.
type Use struct {
	Account string // as in the signer's name, lower case
	Nonce   int64
	Tx      Hash // the transaction in which it happened
	// Unread: the account sent a transaction of which nothing else could be read, or that
	// means something else on its chain. The next count tells.
	Unread bool
	// Authorization: the nonce was consumed by an EIP-7702 authorization that Tx
	// carried. It may have been skipped by the chain; the next count tells.
	Authorization bool
}

// Reorg says which part of the chain was replaced.
type Reorg struct {
	From, To Block // the Latest before and the one after
	Depth    int   // blocks that are no longer canonical
}

// Count is the number of nonces an account has used at one block, as the nodes say.
type Count struct {
	// Used is the number on which Nodes nodes agree. Nodes is 1 only where the chain has one
	// node, and 0 where nothing is settled: Used is then 0.
	Used  int64
	Nodes int
	// Hint is, where nothing is settled, what one node claims and no other contradicts: they are
	// away, or behind. Nothing may follow from it that does not wait for a settled one. 0: there
	// is none.
	Hint int64
	// Loose: Used comes from a node that gives its pool's count for every block. It may fall
	// again, and nothing final follows from it.
	Loose bool
}

// Start is where an account stands when it is met for the first time.
type Start struct {
	Latest  int64 // the greatest count at the head that two nodes reach, or the one that answered
	Pending int64 // the greatest count with pools included
	// Delegated: the account has code that begins with 0xef0100 (EIP-7702), so that
	// nodes keep one transaction of it at most.
	Delegated bool
	// Doubt says that one of several nodes gives a pending count far above all others': transactions
	// that the others have not heard of, or a lie. Nothing may begin there. nil: there is none.
	Doubt error
}

// Ask is a question about one nonce.
type Ask struct {
	Account string
	Nonce   int64
	Hashes  []Hash // the transactions that are known to have been made with it
	// Claims are others of which a node said so: whether the others have them too. One may have
	// carried an authorization of the nonce.
	Claims []Hash
}

// Seen says how far a transaction has come.
type Seen uint8

// What a node can say of a nonce. Absent is not proof of anything.
const (
	Absent Seen = iota
	Pooled
	Mined
)

// Sighting is the answer to an Ask.
type Sighting struct {
	// Settled is what as many nodes show as settle something: two, or the only one that the chain
	// has. Pooled: each of them shows a transaction of the nonce. Mined: they show the same one in
	// a block.
	Settled   Seen
	SettledTx Hash // which transaction; zero: they show different ones, or do not say which

	// Seen is the most that any node shows. Where Settled is less it is a hint: something may wait
	// for it, and nothing else follows.
	Seen   Seen
	Tx     Hash   // which transaction; zero if a node says that there is one and not which
	Block  Block  // only with Mined
	Raw    Offer  // what replacing it, or SettledTx, would have to beat, as far as known
	Failed bool   // at least one node could not be asked, or cannot tell: Absent then says even less
	Nodes  int    // how many nodes answered
	Origin string // the name of the node that saw it
}

// Offer is what a transaction pays, which one that replaces it has to exceed. Empty: unknown.
type Offer = nonce.Offer

// Class is what the answer to a send means for the nonce.
type Class uint8

// The classes of answers. A node that was not reached has not taken the transaction, so the
// others decide; NotReached is the class where there are no others.
const (
	Unknown    Class = iota // it may be in a pool: a time-out, a text that is not known
	InPool                  // a node has accepted it, or had it already
	Taken                   // another transaction has its nonce in a pool, and ours was not accepted
	Used                    // its nonce was used before: a receipt says by which transaction
	Free                    // it was refused, no node has it, and the nonce is free for any other transaction
	Refused                 // it was refused and no node has it; another transaction of the nonce may meet the same
	NotReached              // it came to no node: no connection, a key or a rate that was refused
)

// String returns the word of the class, as metrics and logs have it.
func (c Class) String() string {
	return [...]string{"unknown", "in_pool", "taken", "used", "free", "refused", "not_reached"}[c]
}

// Verdict is what became of a send.
type Verdict struct {
	Class Class
	// Code, Message and Data are the answer for the sender: that of the node whose
	// answer decided. Code 0 with Class InPool: it was accepted.
	Code    int
	Message string
	Data    []byte // JSON, nil for none
	// Missing: the transaction was refused because a lower nonce is missing.
	Missing bool
	// Later: the same transaction may be taken later, after RetryAfter where a node said so.
	Later      bool
	RetryAfter time.Duration
	// Unanswered: of Free, Refused and Taken, and of Used where one of several nodes says so, some
	// nodes were not reached, and may have the transaction from an earlier try.
	Unanswered bool
	// Disputed: of Used, one of several nodes says so, and another may have the transaction.
	Disputed bool
	// Before: of Free and Refused, an earlier try of this process may have left the transaction
	// with a node that refuses it now; of Used where one of several nodes says so, any try with
	// another node.
	Before bool
}

// Tx is a decoded transaction that a client wants to send.
type Tx struct {
	Account string // the sender by the signature, as in the signer's name
	Nonce   int64
	Hash    Hash
	Offer   Offer
	// Payment is the same for transactions that do the same, whatever they pay for it. Cancels:
	// it does nothing but use its nonce.
	Payment [16]byte
	Cancels bool
	// Protected: it names its chain, and no other one takes it.
	Protected bool
}

// ErrUnreachable says that no node could be asked. Nothing is known.
var ErrUnreachable = errors.New("no node of the chain answers")

// Chain is one chain and the nodes that are asked about it. All methods may be
// called by many goroutines. Each is bounded: by the context, by a number of requests
// under way, and by the size of an answer.
type Chain interface {
	// ID is the CAIP-2 identifier, such as "eip155:1".
	ID() string
	// Run follows the chain until ctx ends and calls on for each new Head, one call at
	// a time. It must be called once; the other methods work while it runs.
	Run(ctx context.Context, on func(Head))
	// Several reports whether the chain has more nodes than one, so that the word of one of
	// them, which is what the uses of a Head are, settles nothing.
	Several() bool
	// Counts asks how many nonces accounts have used at a block. The result has one
	// Count an account. ErrUnreachable: no node that has the block answered.
	Counts(ctx context.Context, at Block, accounts []string) ([]Count, error)
	// Start asks where accounts stand that are met for the first time.
	Start(ctx context.Context, accounts []string) ([]Start, error)
	// Lookup asks all nodes what they have seen. The result has one Sighting an Ask.
	Lookup(ctx context.Context, asks []Ask) ([]Sighting, error)
	// Decode reads a raw transaction, and refuses one of another chain.
	Decode(raw []byte) (Tx, error)
	// Send gives a raw transaction to all nodes. It always returns a Verdict; when
	// nothing is known, it says Unknown.
	Send(ctx context.Context, raw []byte) Verdict
}
