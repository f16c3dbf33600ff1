package nonce

import (
	"context"
	"errors"
	"time"
)

// Sent is a transaction that a gateway gives to the nodes of a chain, as the store keeps it from
// before that until a block has used its nonce.
type Sent struct {
	Signer  string
	Nonce   int64
	Hash    TxHash
	Payment [16]byte // the same for transactions that pay the same to the same
	State   SentState
	Raw     []byte // of an open one
}

// SentState is what is known of a transaction.
type SentState uint8

// The states. The numbers are what stores write; 0 is no transaction.
const (
	SentOpen    SentState = 1 // it is under way, or what became of it is not known
	SentTaken   SentState = 2 // a node has taken it
	SentRefused SentState = 3 // all nodes refused it, and none has it
)

// String names the state for logs and tests.
func (s SentState) String() string { return [...]string{"none", "open", "taken", "refused"}[s] }

// Bounds on the transactions of one signer that are kept.
const (
	MaxSent      = MaxLive // rows
	MaxSentBytes = 4 << 20 // of the raw ones together
)

// ErrSentFull: as many transactions of the signer are kept as may be. Nothing happened.
var ErrSentFull = errors.New("too many transactions of the signer are under way")

// SentStore keeps transactions. It is apart from the state of signers, and has no fence: what it
// has is offered to nodes again, and offering something twice does no harm. What the nonce of a
// transaction is, the signer's row says.
type SentStore interface {
	// KeepSent keeps a transaction as open, and returns what it was before: one that is taken
	// stays so, one that was refused is open again. It is due for a look after wait. Those of the
	// signer whose nonces are below a number are forgotten in passing.
	KeepSent(ctx context.Context, s Sent, below int64, wait time.Duration) (was SentState, err error)
	// SettleSent sets the state of one that is kept; of one that is not open the raw transaction
	// is forgotten. It is due for a look after wait.
	SettleSent(ctx context.Context, signer string, n int64, hash TxHash, state SentState, wait time.Duration) error
	// DropSent forgets one.
	DropSent(ctx context.Context, signer string, n int64, hash TxHash) error
	// ForgetSent forgets those of a signer whose nonces are below a number.
	ForgetSent(ctx context.Context, signer string, below int64) error
	// SentOf returns those of a signer from a nonce on, in order of nonce, without Raw.
	SentOf(ctx context.Context, signer string, from int64) ([]Sent, error)
	// DueSent returns those of shards that are due, the longest due first, with Raw.
	DueSent(ctx context.Context, shards []int, limit int) ([]Sent, error)
	// DelaySent makes them due after wait.
	DelaySent(ctx context.Context, all []Sent, wait time.Duration) error
	// SentTotals counts all that is kept, and the bytes of what is raw.
	SentTotals(ctx context.Context) (rows, bytes int64, err error)
}
