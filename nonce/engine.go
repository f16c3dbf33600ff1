package nonce

import (
	"context"
	"errors"
	"time"

	"noncegate/lease"
)

// Engine says which engine serves a signer. The signer's row decides, and every
// write of either engine compares it there. The numbers are what stores write.
type Engine uint8

// The two engines.
const (
	Reliable    Engine = 0 // the store, and nothing else
	Performance Engine = 1 // Redis hands out first, the store follows
)

// String returns the word of the wire protocol.
func (e Engine) String() string {
	if e == Performance {
		return "performance"
	}
	return "reliable"
}

const (
	epochShift   = 32 // a version is epoch<<32 + n
	attemptShift = 20 // attempts under an epoch begin at epoch<<20
)

// EpochOf is the epoch of a version: how often the signer was lost with Redis.
func EpochOf(version int64) int64 { return version >> epochShift }

// NextEpoch is the first version of the epoch after that of version.
func NextEpoch(version int64) int64 { return (EpochOf(version) + 1) << epochShift }

// FirstAttempt is the least attempt that may be given out under a version's epoch:
// above all that may have been given out under the epochs before, by however many
// nodes, without the store knowing of it.
func FirstAttempt(version int64) int64 { return max(1, EpochOf(version)<<attemptShift) }

// Identity names one life of one Redis server: its run id, and the id of the history
// that it replicates. A restart, a failover and another server at the same address
// each show another one.
type Identity struct{ RunID, ReplID string }

// Standing is what a signer's row says about the engines.
type Standing struct {
	Engine Engine
	// Identity is the server that has the signer; zero in the reliable engine.
	Identity Identity
	// Ceiling: every nonce that Redis ever handed out is below it.
	Ceiling int64
	// GrantUntil is when hand-outs by Redis must have ended that nobody extended,
	// by the store's clock. It never falls.
	GrantUntil time.Time
	// LongestHold is the longest hold that any node may have given.
	LongestHold time.Duration
	// DoubtBelow and DoubtUntil are of the last loss: until then nothing below is
	// handed out or swept, for somebody may hold it of whom the store knows nothing.
	DoubtBelow int64
	DoubtUntil time.Time
}

// Doubtful reports whether nonce n may at now, a time of the store's clock, be held
// by somebody of whom the store knows nothing.
func (s *Standing) Doubtful(n int64, now time.Time) bool {
	return n < s.DoubtBelow && now.Before(s.DoubtUntil)
}

// FastVerdict says what Redis did with one signer's part of a batch.
type FastVerdict uint8

// The verdicts. Only FastUnknown leaves open whether something was written.
const (
	FastDone    FastVerdict = iota
	FastFenced              // a higher token is there: another node took over. Nothing was written
	FastKnown               // a request id is known already. Nothing was written
	FastLost                // keys are missing, the version is another under the own token, or the server is not the one of Identity. Nothing may be answered
	FastNotSent             // Redis was out of reach before anything was sent
	FastUnknown             // the connection broke, or time ran out
)

// FastBelief is what the caller believes of one signer in Redis.
type FastBelief struct {
	ID       int64
	Signer   string
	Token    int64
	Version  int64
	Identity Identity
}

// FastRead asks for what Redis has of one signer.
type FastRead struct {
	FastBelief
	// TakeOver puts Token into Redis, before anything is read, where a lower one, or
	// the same, is there. Version is then the least that must be there, of the same
	// epoch: what the store's row shows. Otherwise Token and Version must be there.
	TakeOver bool
	// Serve, without TakeOver, says that the signer is about to enter: its copy is marked
	// as what serves, and only that can be taken over. A piece of a copy that comes when
	// what served is lost makes a copy again, of a version before.
	Serve bool
	Need  Need
}

// FastSnapshot is the answer to a FastRead. Of the Snapshot, Lease and Pruned are
// left empty, and of the nonces asked for those are missing that are CONSUMED and
// flushed, or were never handed out. A request id that is missing is new.
type FastSnapshot struct {
	Verdict FastVerdict
	Err     error
	Snapshot
}

// FastResult is what became of one change. Err says why where it was not done.
type FastResult struct {
	Verdict FastVerdict
	Err     error
}

// FastChange is one change of one signer in Redis. Its Change names the believed
// token and version; Epoch of it is not looked at.
type FastChange struct {
	Change
	Identity Identity
}

// Fast is Redis as the performance engine uses it. Every call checks everything
// before it writes anything of a signer, in one script; scripts of several signers
// are pipelined. The server's identity is compared after each batch, in the same
// pipeline, so that what a wrong server said is never answered: FastLost.
// Methods may be called from many goroutines.
type Fast interface {
	// Read reads signers, one answer a read, in order. now is the store's clock and
	// tells which holds are due.
	Read(ctx context.Context, now time.Time, reads []FastRead) []FastSnapshot

	// Commit applies changes, one result each, in order: it raises the version by
	// one and appends the event to the flush stream of the signer's flush shard,
	// unless Check is set. Deadlines are now plus Hold.
	Commit(ctx context.Context, now time.Time, changes []FastChange) []FastResult

	// Mirror repeats changes that the store has committed, at the time now of that
	// commit: as Commit, but without an event.
	Mirror(ctx context.Context, now time.Time, changes []FastChange) []FastResult

	// Seed replaces what Redis has of one signer. It is called with the pieces of
	// one copy, in order: the last has Last set, and only then is there something that
	// Read, Commit and Mirror find. A higher token in Redis refuses it: FastFenced. It
	// returns the identity of the server that has it.
	Seed(ctx context.Context, piece SeedPiece) (Identity, FastResult)

	// Forget removes what Redis has of signers that the reliable engine serves and
	// nobody mirrors, if it is of the token given or a lower one.
	Forget(ctx context.Context, signers []FastBelief) error

	// Summary is the state of one signer in figures, whoever owns it; Pruned, Lease
	// and Now are left empty. identity is the one that the signer's row names.
	Summary(ctx context.Context, signer string, identity Identity, now time.Time) (Summary, FastResult)

	// Rows are the allocations from nonce from on, at most limit, lowest first, that
	// are in Redis: HELD, RELEASED, and CONSUMED as long as they are not flushed.
	Rows(ctx context.Context, signer string, identity Identity, from int64, limit int) ([]Row, FastResult)
}

// SeedPiece is a part of the copy of one signer.
type SeedPiece struct {
	Nth               int // from 0 on: which piece of its copy it is
	Last              bool
	FastBelief              // Version is what the copy is of; Identity is not looked at
	Next, Floor, Held int64 // with Last
	Rows              []Row // HELD and RELEASED ones
	Requests          []Remembered
	// Now is the store's clock of the copy: how much is left of the requests'
	// retention. Zero: they are kept for all of it once more.
	Now time.Time
}

// Remembered is a request id with the time from which its retention counts.
type Remembered struct {
	Request
	At time.Time
}

// FlushRow is the state of one allocation after an event, or after several merged.
type FlushRow struct {
	Nonce     int64
	Fresh     bool // the row was made by it
	Status    Status
	Attempt   int64
	Token     int64
	Holder    Principal
	TxHash    TxHash
	Replaced  TxHashes
	Reason    string
	HeldUntil time.Time
}

// FlushEvent is one committed change of Redis, or several of one signer in their
// order merged into one, as the store is to follow it.
type FlushEvent struct {
	ID                int64
	Signer            string
	Token             int64 // of the last
	From, To          int64 // versions before the first and after the last
	At                time.Time
	Next, Floor, Held int64
	BelowFloor        bool       // RELEASED rows below Floor become CONSUMED, after Rows were applied
	Rows              []FlushRow // each nonce once
	Requests          []Remembered
}

// FlushVerdict says what the store did with an event.
type FlushVerdict uint8

// The verdicts of a flush.
const (
	FlushApplied FlushVerdict = iota
	FlushAlready              // the row is at To or beyond it, of the same epoch
	FlushGap                  // the row is before From: events before it are missing, or are being applied by somebody else
	FlushPartly               // the row is between From and To: some of what was merged is applied
	FlushOver                 // the row is of a later epoch, or the reliable engine serves it: the event counts no more
	FlushLocked               // somebody else had the row locked
)

// ReserveTerm asks for a block of one signer: nonces below Ceiling.
type ReserveTerm struct {
	ID, Token int64
	Ceiling   int64
}

// Reserved is the answer. Applied is false when the lease is lost or the engine is
// another one.
type Reserved struct {
	Applied    bool
	Ceiling    int64
	GrantUntil time.Time
}

// MoveTerm names a signer that changes its engine, on the condition of owner, token,
// version and the engine it has.
type MoveTerm struct {
	ID, Token, Version int64
	Identity           Identity // to performance: the server that has the copy
	Ceiling            int64    // to performance: the first block
}

// RowVersion is the version of a signer's row and its engine.
type RowVersion struct {
	Version int64
	Engine  Engine
}

// SignerCopy is a page of what Redis must have of a signer, as one transaction sees
// it. Pages are asked for with the next page's After values until More is false;
// a Version that changed between pages means to begin again.
type SignerCopy struct {
	Snapshot       // the row only
	Rows     []Row // HELD and RELEASED
	Requests []Remembered
	NextRow  int64
	NextID   string
	More     bool
}

// EngineLedger is what a store does for the performance engine, beyond Store. Errors
// are *StoreError.
type EngineLedger interface {
	// Reserve raises ceilings and extends grants by grant from the store's now, and
	// renews the leases, on the condition of owner, token and the performance
	// engine. Neither ever falls, nor does LongestHold. The version stays.
	Reserve(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []ReserveTerm) ([]Reserved, time.Time, error)

	// Enter gives signers to the performance engine, with their first block and
	// grant, on the condition of MoveTerm, that no doubt is left, and that the
	// identity is one that was accepted for the cluster.
	Enter(ctx context.Context, h lease.Holder, ttl, grant, longestHold time.Duration, terms []MoveTerm) ([]Reserved, time.Time, error)

	// Return gives signers back to the reliable engine, on the condition of MoveTerm:
	// the row has reached the last version of Redis.
	Return(ctx context.Context, h lease.Holder, terms []MoveTerm) ([]bool, error)

	// Lose declares signers lost with Redis, on the condition of owner, token and the
	// performance engine: reliable again, the epoch risen, the cursor at the ceiling,
	// a RELEASED row of attempt 0 with ReasonInDoubt for each nonce below it that had
	// none, and all that is not CONSUMED below it in doubt until the grant's end plus
	// the longest hold plus margin. It returns which were lost by this call.
	Lose(ctx context.Context, h lease.Holder, margin time.Duration, terms []ReserveTerm) ([]bool, error)

	// Apply lets rows follow events of Redis, each on the condition that its signer's
	// version is From and the performance engine serves it, and not on its owner's
	// token; the lease is renewed by ttl where Token is the row's. An event never
	// overwrites a CONSUMED row. Where a row contradicts its event the whole call is
	// Aborted with ErrInvariant. Each signer at most once in a call.
	Apply(ctx context.Context, ttl time.Duration, events []FlushEvent) ([]FlushVerdict, error)

	// Versions reads rows by key; an unknown key has version -1.
	Versions(ctx context.Context, ids []int64) ([]RowVersion, error)

	// Copy reads a page of a signer for Fast.Seed, at most limit rows and limit ids.
	Copy(ctx context.Context, id int64, afterRow int64, afterID string, limit int) (SignerCopy, error)

	// Entered finds signers that the performance engine serves, in order of key, at
	// most limit, from after on.
	Entered(ctx context.Context, after int64, limit int) ([]EnteredSigner, time.Time, error)
}

// EnteredSigner is a signer that the performance engine serves.
type EnteredSigner struct {
	ID     int64
	Signer string
	Lease  lease.Grant
	Standing
	Version int64
}

// ReasonInDoubt is the reason of a RELEASED row that a loss of Redis made.
const ReasonInDoubt = "in_doubt"

// Goal is where signers are to go.
type Goal uint8

// The goals, by the states of the cluster.
const (
	GoalReliable    Goal = iota // RELIABLE: nothing is copied
	GoalMirror                  // DUAL_WRITE: every committed change goes to Redis too
	GoalPerformance             // PERFORMANCE: signers whose copy is equal enter
	GoalDrain                   // DRAIN_AND_SYNC, DEGRADED: signers leave
)

// EngineControl is what the service asks about the cluster. Calls must be cheap.
type EngineControl interface {
	Goal() Goal
	// RedisGone reports whether Redis is out of reach for so long that it counts as lost.
	RedisGone() bool
	// FlushLate reports whether hand-outs are to wait for their flush: the flush is
	// further behind than it may be, and the store can be reached.
	FlushLate(signer string) bool
	// Trouble is told of what may be a reason to leave the performance engine.
	Trouble(t Trouble, err error)
}

// Trouble is a reason to leave the performance engine, as a label.
type Trouble string

// The reasons.
const (
	TroubleLoss      Trouble = "loss"      // a signer was lost
	TroubleRedis     Trouble = "redis"     // Redis answered with errors, or not at all
	TroubleSlow      Trouble = "slow"      // scripts take too long
	TroubleLag       Trouble = "lag"       // the flush is too far behind
	TroubleRetries   Trouble = "retries"   // the flush repeats too often
	TroubleDifferent Trouble = "different" // a reconciliation found differences
)

// ErrLost is the cause where Redis does not have what it should.
var ErrLost = errors.New("what Redis acknowledged is not there any more")
