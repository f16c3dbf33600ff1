package nonce

import (
	"context"
	"time"

	"noncegate/lease"
)

// SignerFilter says which signers are wanted.
type SignerFilter uint8

// The filters.
const (
	AllSigners      SignerFilter = iota
	GapSigners                   // a RELEASED nonce at or above the floor lies below a HELD or CONSUMED one, and no chain is watched
	TroubledSigners              // their owner, which watches their chain, has found that they do not move
	UnknownSigners               // a hold with ReasonUnknown
	OverdueSigners               // a hold whose deadline passed, without ReasonUnknown
	RepeatSigners                // a HELD or RELEASED nonce of attempt 3 or higher
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
	Owner                   string    // node id of a lease that runs; "": none
	Watch                   Watch     // what the owner has found out by watching the signer's chain; zero: it is not watched
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
	// identifier or timeline). A gateway that remembers signers compares them then.
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
