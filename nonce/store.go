package nonce

import (
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/lease"
)

// Status is the state of an allocation. The numbers are what stores write.
type Status uint8

// The three states. CONSUMED is final.
const (
	Held     Status = 1
	Released Status = 2
	Consumed Status = 3
)

// String returns the word of the wire protocol.
func (s Status) String() string {
	switch s {
	case Held:
		return "HELD"
	case Released:
		return "RELEASED"
	case Consumed:
		return "CONSUMED"
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Reasons the gateway itself writes on an allocation. Those of a HELD one say what is
// known of the hold beyond its deadline; an ordinary hold has none.
const (
	ReasonExpired    = "expired"     // RELEASED: a hold whose deadline passed
	ReasonBelowFloor = "below_floor" // CONSUMED by raising the floor

	ReasonRecordFirst = "record_first" // HELD: its holder records the hash before it sends
	ReasonForwarded   = "forwarded"    // HELD: its transaction goes through the gateway
	ReasonResent      = "resent"       // HELD: the same, and the same transaction was sent again before it was known what became of it
	ReasonRepair      = "repair"       // HELD: handed out by nonce_repair
	ReasonUnknown     = "unknown"      // HELD: its time is over, and nobody knows whether it was used
	ReasonNotRecorded = "not_recorded" // RELEASED: its holder had to record a hash first, and did not
	ReasonUnseen      = "unseen"       // RELEASED: it was unknown for long, and no node saw a transaction
	ReasonMined       = "mined"        // CONSUMED: the chain's count has passed it
	ReasonInDoubt     = "in_doubt"     // RELEASED: a loss of Redis left it in doubt
)

// Row is one nonce as rules and lists see it, made of an Entry or of a Past.
type Row struct {
	Nonce     int64
	Status    Status
	Attempt   int64
	Token     int64    // fencing token it was last written under; 0 from mode basic
	TxHash    TxHash   // the newest one recorded
	Replaced  TxHashes // those that it replaced, oldest first; empty without TxHash
	Reason    string
	HeldUntil time.Time // store clock; only while HELD
	Holder    Principal // who has, or had, its last attempt; 0: nobody in particular
	RequestID string    // only filled by Database.List
	UpdatedAt time.Time // only filled by Database.List
}

// Unknown reports whether the row is a hold whose time is over, of which nobody knows
// whether it was used.
func (r *Row) Unknown() bool { return r.Status == Held && r.Reason == ReasonUnknown }

// Request is one remembered request id: what it asked for and what it got.
type Request struct {
	ID       string
	Hash     [16]byte // of the parameters; equal means the same call
	Nonces   []int64
	Attempts []int64 // Attempts[i] is the attempt of Nonces[i]
}

// SignerFilter says which signers are wanted.
type SignerFilter uint8

// The filters.
const (
	AllSigners     SignerFilter = iota
	GapSigners                  // a RELEASED nonce at or above the floor lies below a HELD or CONSUMED one
	UnknownSigners              // a hold with ReasonUnknown
	OverdueSigners              // a hold whose deadline passed, without ReasonUnknown
	RepeatSigners               // a HELD or RELEASED nonce of attempt 3 or higher
)

// SignersQuery asks for a page of signers.
type SignersQuery struct {
	Filter SignerFilter
	After  string   // only signers whose name is greater, byte by byte
	Names  []string // only these; nil: all
	Limit  int      // at most 1000
}

// SignerFigures is one signer in a list. HELD rows are counted as they stand, overdue ones
// included, RELEASED ones at or above the floor.
type SignerFigures struct {
	Signer                  string
	Next, Floor, Version    int64
	Held, Unknown, Released int64
	LowestReleased          int64     // -1: none
	OldestHold              time.Time // the earliest deadline of a HELD row; zero: none
	MaxAttempt              int64     // of those HELD and RELEASED; after a loss of Redis it begins at FirstAttempt
	Owner                   string    // node id of a lease that runs; "": nobody
	// Unreadable: what is open of the signer cannot be read (ErrLive). Nothing is said of
	// it here, and no filter but AllSigners finds it.
	Unreadable bool
}

// Totals counts what is open in the whole store. Each count stops at TotalsBound.
type Totals struct {
	Held, Unknown, Released int64
	Repeated                int64         // HELD or RELEASED rows of attempt 3 or higher
	OldestOverdue           time.Duration // how long ago the first hold without ReasonUnknown ended; 0: none is overdue
	Unreadable              int64         // signers that are not counted, because what is open of them cannot be read (ErrLive)
}

// TotalsBound is where Totals stops to count: what it costs is bounded by it.
const TotalsBound = 100_000

// Summary is the state of one signer in figures. Consumed is Next less Held
// less Released: what lies below the floor counts as consumed, and what lies below
// Pruned too, of which there are no rows any more.
type Summary struct {
	Exists                   bool
	Next, Floor, Version     int64
	Held, Released, Consumed int64
	LowestHeld               int64 // -1: none
	// Overdue is how many holds at or above the floor are counted in Released because
	// their deadline has passed; Unknown, how many of Held have ReasonUnknown: these
	// are HELD whatever their deadline.
	Overdue, Unknown int64
	Lease            lease.Ownership
	Performance      bool // the signer's shard has the performance engine
	Now              time.Time
}

// ListQuery asks for a page of a signer's allocations.
type ListQuery struct {
	Signer string
	Status Status // 0: all. An overdue hold is listed as it stands, HELD
	// Unknown lists the HELD rows with ReasonUnknown only; Status is then Held.
	Unknown bool
	From    int64
	Limit   int
}

// ListPage is one page. NextFrom is -1 on the last one.
type ListPage struct {
	Rows     []Row
	NextFrom int64
}

// Names keeps what principals are called, for people: a Principal is eight bytes.
type Names interface {
	// RememberNames stores the names of principals that are not known yet.
	RememberNames(ctx context.Context, names []string) error
	// NamesOf returns the names of those principals that are known.
	NamesOf(ctx context.Context, of []Principal) (map[Principal]string, error)
}

// Database is what a gateway needs of a store beside the fence.
type Database interface {
	Names
	// Name is the engine as gateway_info shows it, such as "postgres".
	Name() string
	// Generation changes when the store may have become another one (a new system
	// identifier or timeline). Who remembers signers compares them then.
	Generation() uint64
	// Ping reports whether the store answers.
	Ping(ctx context.Context) error
	// PruneRequests deletes remembered requests older than age, at most limit,
	// and returns how many it deleted.
	PruneRequests(ctx context.Context, age time.Duration, limit int) (int, error)
	// List reads allocations in order of nonce.
	List(ctx context.Context, q ListQuery) (ListPage, error)
	// Signers lists signers with what stands out about them, in order of name. Without
	// names a filter looks at no more than the first TotalsBound allocations that may
	// be what it wants, so where more of them stand out it may leave signers out. Of
	// signers that the performance engine serves the figures are those of the store's
	// rows, which follow Redis.
	Signers(ctx context.Context, q SignersQuery) ([]SignerFigures, error)
	// Totals counts what is open in the whole store, by its rows: those of signers that
	// the performance engine serves follow Redis.
	Totals(ctx context.Context) (Totals, error)
	// Close ends all connections. No call may be under way.
	Close() error
}

// Outcome says whether a write happened.
type Outcome uint8

// The outcomes of a write that ended in an error. They are never merged.
const (
	// NotSent: the store was out of reach before anything was sent. Nothing
	// happened.
	NotSent Outcome = iota
	// Aborted: the store refused the transaction as a whole (a violated key, a
	// deadlock, a lock timeout). Nothing happened; smaller pieces may succeed.
	Aborted
	// Unknown: the connection broke, or time ran out, while the store may have
	// been committing.
	Unknown
)

// String names the outcome for logs.
func (o Outcome) String() string { return [...]string{"not sent", "aborted", "unknown"}[o] }

// StoreError is an error of a store with its outcome.
type StoreError struct {
	Outcome Outcome
	Err     error
}

// Error implements error.
func (e *StoreError) Error() string { return "store (" + e.Outcome.String() + "): " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }

// OutcomeOf returns the outcome of a store's error. An error that does not say
// is Unknown: nobody may take it for a refusal.
func OutcomeOf(err error) Outcome {
	if se, ok := errors.AsType[*StoreError](err); ok {
		return se.Outcome
	}
	return Unknown
}

// ErrInvariant is the cause of an Aborted StoreError when a row was not as the
// rules left it. It is an alarm: somebody else wrote, or this program is wrong.
var ErrInvariant = errors.New("a row is not as the rules left it")
