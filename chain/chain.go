// Package chain is what a blockchain says of signers: how far their accounts have
// come, which transactions its nodes have seen, and what became of one that was sent.
//
// A Chain is the interface to one blockchain, and knows nothing of holds; package
// chain/ethereum is one, and another chain with nonces of accounts would be a sibling package.
// A Tracker compares what one Chain says with what this node handed out.
//
// What a Chain says is evidence of a moment: docs/chain.md says what follows from it, and how many
// nodes must say the same. Plans are answered from memory and never wait for a node; the memory is
// bounded by Config.MaxSigners. Nothing is kept over a restart, and after a take-over two nodes may
// both tell of a gap.
//
// Goroutines: Chains.Run has one for each Tracker and one for the store's list of watched
// signers, and waits for them. Tracker.Run has four: starter, follower, watcher, and the Chain's own Run.
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

// Head is the tip of the canonical chain, and what has changed since the Head before. A Block with a
// zero Hash: none yet.
type Head struct {
	Latest Block
	Agreed Block // the newest that two nodes have, or Latest where there is one node: counts are settled at it
	Final  Block // the newest that no reorganization can remove, as far as the chain says

	Uses    []Use  // of the blocks that have become canonical since the Head before, in order
	Skipped bool   // some of these blocks were not read, and counts must be asked for
	Reorg   *Reorg // blocks of the Head before are no longer canonical; nil: all are

	// FinalFell: Final is below, or beside, what was final before: the nodes were reset, or they lie.
	// FinalStands: what fell is final again.
	FinalFell, FinalStands bool
}

// Use is one nonce that a block consumed.
type Use struct {
	Account string // as in the signer's name, lower case
	Nonce   int64
	Tx      Hash // the transaction in which it happened
	// The next count tells of these. Unread: nothing but the account of a transaction could be read, or it means
	// something else on its chain. Authorization: one that Tx carried (EIP-7702), and the chain may have skipped.
	Unread, Authorization bool
}

// Reorg says which part of the chain was replaced.
type Reorg struct {
	From, To Block // the Latest before and the one after
	Depth    int   // blocks that are no longer canonical
}

// Count is the number of nonces an account has used at one block, as the nodes say.
type Count struct {
	// Used is the number on which Nodes nodes agree; both are 0 where nothing is settled.
	Used  int64
	Nodes int
	// Hint is, where nothing is settled, what one node claims and no other contradicts; 0: nothing.
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
	Doubt     error // one of several nodes gives a pending count far above all others': nothing may begin there
}

// Ask is a question about one nonce.
type Ask struct {
	Account string
	Nonce   int64
	Hashes  []Hash // the transactions that are known to have been made with it
	Claims  []Hash // others of which a node said so; one may have carried an authorization of the nonce
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
	Tx     Hash  // which transaction; zero if a node says that there is one and not which
	Block  Block // only with Mined
	Raw    Offer // what replacing it, or SettledTx, would have to beat, as far as known
	Failed bool  // at least one node could not be asked, or cannot tell: Absent then says even less
	Nodes  int   // how many nodes answered
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
	// Code, Message and Data (JSON) are those of the node whose answer decided.
	Code    int
	Message string
	Data    []byte

	Missing    bool // it was refused because a lower nonce is missing
	Later      bool // the same transaction may be taken later, after RetryAfter where a node said so
	RetryAfter time.Duration
	// Unanswered: some nodes were not reached, and may have the transaction from an earlier try. Before: such a
	// try of this process may have left it with a node. Disputed: of Used, another node may have it. Of Used they
	// are set where one of several nodes says so.
	Unanswered, Before, Disputed bool
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

// ErrUnreachable says that no node could be asked.
var ErrUnreachable = errors.New("no node of the chain answers")

// Chain is one chain and the nodes that are asked about it. All methods may be called by many
// goroutines, and are bounded in time, requests under way and size of answers. Results are in the order
// of what was asked; the error of a question is ErrUnreachable where no node has answered.
type Chain interface {
	// ID is the CAIP-2 identifier, such as "eip155:1".
	ID() string
	// Run follows the chain until ctx ends and calls on for each new Head, one call at
	// a time. It is called once; the other methods work while it runs.
	Run(ctx context.Context, on func(Head))
	// Several reports whether the chain has more nodes than one, so that the word of one of
	// them, which is what the uses of a Head are, settles nothing.
	Several() bool
	// Counts asks how many nonces accounts have used at a block.
	Counts(ctx context.Context, at Block, accounts []string) ([]Count, error)
	// Start asks where accounts stand that are met for the first time.
	Start(ctx context.Context, accounts []string) ([]Start, error)
	// Lookup asks all nodes what they have seen.
	Lookup(ctx context.Context, asks []Ask) ([]Sighting, error)
	// Decode reads a raw transaction, and refuses one of another chain.
	Decode(raw []byte) (Tx, error)
	// Send gives a raw transaction to all nodes.
	Send(ctx context.Context, raw []byte) Verdict
}
