package nonce

import (
	"context"
	"errors"
	"time"
)

// EngineState is where the cluster is on its way between the engines. The words are
// what stores write.
type EngineState string

// The states.
const (
	StateReliable    EngineState = "RELIABLE"       // no signer is in the performance engine
	StateDualWrite   EngineState = "DUAL_WRITE"     // Redis is made equal
	StatePerformance EngineState = "PERFORMANCE"    // signers whose copy is equal enter
	StateDrain       EngineState = "DRAIN_AND_SYNC" // signers return
	StateDegraded    EngineState = "DEGRADED"       // signers return, because of a trouble
)

// Goal is where signers are to go in this state.
func (s EngineState) Goal() Goal {
	switch s {
	case StateDualWrite:
		return GoalMirror
	case StatePerformance:
		return GoalPerformance
	case StateDrain, StateDegraded:
		return GoalDrain
	}
	return GoalReliable
}

// EngineCluster is the state of the cluster as the store keeps it.
type EngineCluster struct {
	State EngineState
	// Goal is the state that the cluster is on its way to, as whoever switched said.
	Goal EngineState
	// Generation rises with every change of State.
	Generation   int64
	Reason, By   string
	ChangedAt    time.Time
	ObserveUntil time.Time // zero: never asked for
	// FlushShards is how many flush shards there are; 0: not fixed yet.
	FlushShards int
	// Accepted are the servers that signers may enter while State is PERFORMANCE, and
	// those that flushed events may be of until signers have returned.
	Accepted []Identity
	Now      time.Time // store clock
}

// SwitchTerm asks for a change of the cluster's state.
type SwitchTerm struct {
	FromGeneration int64 // believed
	To             EngineState
	Goal           EngineState // "": To
	Reason, By     string
	Observe        time.Duration // ObserveUntil is set to the store's now plus this; 0: it stays
}

// EngineCounts tells of the signers that the engines have to care for.
type EngineCounts struct {
	Entered  int // served by the performance engine
	Unowned  int // of those, with no live lease
	Doubtful int // with nonces in doubt
	// DoubtUntil is when the last doubt ends; zero: there is none.
	DoubtUntil time.Time
	// GrantUntil is when the first grant ends; zero: no signer is entered.
	GrantUntil time.Time
	Now        time.Time // store clock
}

// Errors of the cluster's state. Nothing happened.
var (
	// ErrGeneration: the cluster's state has changed since it was read.
	ErrGeneration = errors.New("the state of the cluster has changed meanwhile")
	// ErrEntered: the cluster cannot be RELIABLE while the performance engine serves
	// signers.
	ErrEntered = errors.New("the performance engine still serves signers")
	// ErrOldNodes: a live node does not know of the performance engine, and would
	// write to its signers.
	ErrOldNodes = errors.New("a live node is of a version that does not know the performance engine")
)

// EngineCatalog is the cluster's state in a store. Errors of its writes are
// *StoreError, but for those named.
type EngineCatalog interface {
	// EngineState reads the state. It is cheap.
	EngineState(ctx context.Context) (EngineCluster, error)

	// SwitchEngine changes the state if its generation is FromGeneration, and returns
	// the state there is then. Else nothing happened: ErrGeneration, ErrEntered or
	// ErrOldNodes. Where the outcome is unknown the generation tells.
	SwitchEngine(ctx context.Context, t SwitchTerm) (EngineCluster, error)

	// AcceptIdentities makes these the servers that signers may enter, and no others,
	// if the state's generation is the given one. It leaves the generation.
	AcceptIdentities(ctx context.Context, generation int64, ids []Identity) error

	// FlushShards is how many flush shards there are. The first call fixes it as
	// wanted, for good.
	FlushShards(ctx context.Context, wanted int) (int, error)

	// EngineCounts counts signers. Its cost grows with the entered ones.
	EngineCounts(ctx context.Context) (EngineCounts, error)

	// FlushLock opens a session of its own that can hold the locks of flush shards.
	FlushLock(ctx context.Context) (FlushLock, error)
}

// FlushLock elects who flushes a shard: at most one session holds its lock. The
// locks end with the session, and nothing is correct because of them: a session can
// be over without its holder knowing yet. Its methods must not be called at once.
// After an error the session is over: nothing is held, and it is to be closed.
type FlushLock interface {
	// TryShard takes the lock of a shard if nobody has it. One that is held already
	// stays so.
	TryShard(ctx context.Context, shard int) (bool, error)
	// ReleaseShard gives it back.
	ReleaseShard(ctx context.Context, shard int) error
	// Alive returns an error when the session is over.
	Alive(ctx context.Context) error
	// Close ends the session. It may be called twice.
	Close() error
}
