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
	ReasonRepair      = "repair"       // HELD: handed out by nonce_repair
	ReasonUnknown     = "unknown"      // HELD: its time is over, and nobody knows whether it was used
	ReasonNotRecorded = "not_recorded" // RELEASED: its holder had to record a hash first, and did not
	ReasonUnseen      = "unseen"       // RELEASED: it was unknown for long, and no node saw a transaction
	ReasonMined       = "mined"        // CONSUMED: the chain's count has passed it
)

// Row is one allocation as a store keeps it.
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
	RequestID string    // only filled by Reader.List
	UpdatedAt time.Time // only filled by Reader.List
}

// Unknown reports whether the row is a hold whose time is over, of which nobody knows
// whether it was used.
func (r *Row) Unknown() bool { return r.Status == Held && r.Reason == ReasonUnknown }

// Request is one remembered request id: what it asked for and what it got.
type Request struct {
	ID       string
	Hash     [16]byte // of the parameters; equal means the same call
	Nonces   []int64
	Attempts []int64 // Attempts[i] is the generation of Nonces[i]
}

// Need says what to read of one signer, beyond its row.
type Need struct {
	Signer     string
	Released   int      // how many RELEASED rows at or above the floor, lowest first
	Due        int      // how many overdue HELD rows, earliest deadline first
	Nonces     []int64  // rows wanted by number
	RequestIDs []string // remembered requests wanted, with the rows of their nonces
}

// Snapshot is what a store says of one signer. The signer's row was read first
// and the allocations after it, never the reverse: when a later write finds the
// row's Version unchanged, everything here was true together.
type Snapshot struct {
	Signer  string
	Exists  bool  // false: no row for this signer; all else is zero
	ID      int64 // the store's key of the signer
	Next    int64
	Floor   int64
	Version int64
	Held    int64 // HELD rows, overdue ones included
	Pruned  int64 // nonces below it have no row any more and are CONSUMED; see Pruner
	Lease   lease.Grant
	Standing
	Now time.Time // store clock

	// Acquired is set by Acquire when the lease is the caller's now, under
	// Lease.Token. When it is not, nothing was changed.
	Acquired bool
	// TookOverFrom is the other node whose expired lease was taken, "" when the
	// lease was free or this node's.
	TookOverFrom string

	Released     []int64 // lowest first, at most Need.Released
	ReleasedMore bool    // there are more than that
	Due          []Row   // at most Need.Due
	Rows         []Row   // those of Need.Nonces that exist, the RELEASED and HELD rows above, and the rows of Requests; each once, in any order
	Requests     []Request
}

// RowChange is the new state of one allocation. A Fresh one is a plain insert:
// a key violation there aborts the whole commit and is an alarm. Others must
// find the row as From says, or the whole commit aborts.
//
// A HELD row may become HELD: with the same attempt, when its holder extends it or
// records a hash, or with a higher one and ReasonRepair. A CONSUMED row may become
// HELD with a higher attempt and ReasonRepair. A Fresh row may be below the cursor,
// where there was none; then its Reason is ReasonRepair, too.
type RowChange struct {
	Nonce       int64
	Fresh       bool
	FromStatus  Status
	FromAttempt int64
	Status      Status
	Attempt     int64
	Hold        time.Duration // HELD only: the deadline is the store's now plus this
	Holder      Principal     // who has it now, or had it last: written whatever it was
	TxHash      TxHash        // written whatever it was, as are the next two
	Replaced    TxHashes
	Reason      string
}

// Change is one write to one signer, on the condition that owner, token and
// version are what the caller believes. It raises the version by one and, in the
// worker-queue mode, renews the lease. A Change with Check set writes nothing
// and only compares.
type Change struct {
	ID      int64
	Signer  string
	Token   int64 // believed; 0 under Locker
	Version int64 // believed
	Check   bool
	// Epoch is the store's Epoch the belief is of. A store that has become
	// another one refuses the whole commit: NotSent. 0 under Locker, which
	// believes nothing.
	Epoch uint64

	Next, Floor, Held int64 // the new values
	// BelowFloor consumes every RELEASED row below Floor with
	// ReasonBelowFloor, after Rows were applied.
	BelowFloor bool
	Rows       []RowChange // each nonce at most once
	Requests   []Request   // new ones; see Commit for those already known
}

// CommitResult tells which changes took effect.
type CommitResult struct {
	Applied []bool    // Applied[i] is about changes[i]
	Now     time.Time // store clock of the commit; deadlines are Now plus Hold
}

// Ledger is the fenced side of a store: what a node does with signers it owns.
//
// Errors of Acquire, Commit and Release are *StoreError, whose Outcome says
// whether anything happened.
type Ledger interface {
	// Acquire takes the lease of each needed signer for h for ttl and loads it,
	// in one transaction, acquire before load. It creates signers that do not
	// exist. It takes a lease that is free, expired, or of the same node id and
	// an equal or lower incarnation, raises the token always and leaves the
	// version. Rows locked by others are waited for, within a short bound.
	// The result has one Snapshot a need, in order.
	Acquire(ctx context.Context, h lease.Holder, ttl time.Duration, needs []Need) ([]Snapshot, error)

	// Commit applies the changes in one transaction and one round trip. A change
	// whose condition does not hold, whose row is locked by somebody else, or
	// which carries a request id that is already remembered, is not applied and
	// leaves no trace; the others are. Rows are locked in order of ID. A row
	// that is not as its RowChange says, or a violated key, aborts everything.
	Commit(ctx context.Context, h lease.Holder, ttl time.Duration, changes []Change) (CommitResult, error)

	// Load reads without changing anything. The result has one Snapshot a need.
	Load(ctx context.Context, needs []Need) ([]Snapshot, error)

	// Release gives back leases that are still the holder's under the tokens
	// given: token + 1, no owner, expiry now. The rows stay. Others are skipped;
	// the number of those given back tells of them.
	Release(ctx context.Context, h lease.Holder, terms []ReleaseTerm) (int, error)
}

// ReleaseTerm names a lease to be given back.
type ReleaseTerm struct {
	ID    int64
	Token int64
}

// Locker is what mode basic uses: one transaction that locks one signer's row,
// loads under the lock, lets plan decide, writes and commits.
type Locker interface {
	// Locked creates the signer when it does not exist. need is filled by the
	// caller before; plan sees a Snapshot and returns the change to write, with
	// Token 0 for its rows; a Change with Check set commits nothing. It returns
	// the store's clock of the write. The lease is neither taken nor renewed
	// nor looked at: the version, which it raises, tells the owner.
	// An error of plan rolls back and is returned as it is. A signer that the
	// performance engine serves is not shown to plan: ErrOtherEngine.
	Locked(ctx context.Context, need Need, plan func(Snapshot) (Change, error)) (time.Time, error)
}

// Reader answers the questions that change nothing.
type Reader interface {
	// Summary reads one signer in one statement. Overdue holds count as
	// released (or consumed, below the floor).
	Summary(ctx context.Context, signer string) (Summary, error)
	// Due finds signers that have an overdue hold, at most limit, earliest
	// deadline first, with the lease of each.
	Due(ctx context.Context, limit int) ([]DueSigner, time.Time, error)
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
	Pruned                   int64
	Held, Released, Consumed int64
	LowestHeld               int64 // -1: none
	// Overdue is how many holds at or above the floor are counted in Released because
	// their deadline has passed; Unknown, how many of Held have ReasonUnknown: these
	// are HELD whatever their deadline.
	Overdue, Unknown int64
	Lease            lease.Grant
	Performance      bool // the signer's shard has the performance engine
	Standing
	Now time.Time
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

// DueSigner is a signer with an overdue hold.
type DueSigner struct {
	Signer string
	Lease  lease.Grant
	// Overdue is how long ago, by the store's clock, the first of its overdue holds
	// ended. It is not below 0.
	Overdue time.Duration
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
	// Epoch changes when the store may have become another one (a new system
	// identifier or timeline). Who remembers signers compares them then.
	Epoch() uint64
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

// Store is everything a service needs. The stores below this package implement
// it, and nonce/storetest holds them to it.
type Store interface {
	Ledger
	Locker
	Reader
	Pruner
	Database
	lease.Registry
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

// ErrOtherEngine is the cause of an Aborted StoreError of Locker when the
// performance engine serves the signer. Nothing happened, and trying again at once
// will not help.
var ErrOtherEngine = errors.New("the performance engine serves the signer")
