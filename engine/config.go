package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"noncegate/flush"
	"noncegate/nonce"
	"noncegate/nonce/redisstore"
)

// Config are the limits beyond which the performance engine is left.
type Config struct {
	Node             string
	RequestRetention time.Duration // of request ids; 0: for ever

	FlushSLA   time.Duration // beyond it hand-outs wait for their flush
	LostAfter  time.Duration // Redis out of reach for longer counts as lost
	RedisLimit time.Duration // longest run of errors of Redis
	// ScriptLimit bounds the 99th percentile of a batch of Redis over windowPolls.
	ScriptLimit time.Duration
	LagLimit    time.Duration // longest that the flush may be late while the store can be reached
	RetryLimit  int           // most retries of the flush in a minute
	Observe     time.Duration // after a degradation, before anybody goes up again
	AutoUp      bool          // go up again by itself after it

	Poll  time.Duration // 500ms: how often the state, and Redis, are looked at
	Dwell time.Duration // 2s: in DUAL_WRITE at least, so that every node knows of it
}

func (c *Config) defaults() {
	if c.Poll == 0 {
		c.Poll = 500 * time.Millisecond
	}
	if c.Dwell == 0 {
		c.Dwell = 2 * time.Second
	}
}

func (c *Config) validate() error {
	switch {
	case c.Node == "":
		return errors.New("engine: the node must have a name")
	case min(c.FlushSLA, c.LostAfter, c.RedisLimit, c.ScriptLimit, c.LagLimit, c.Poll, c.Dwell) <= 0:
		return errors.New("engine: limits must be above 0")
	case c.RetryLimit < 1:
		return errors.New("engine: the limit of retries must be at least 1")
	case c.Observe < 0:
		return errors.New("engine: the time of observation must not be negative")
	case c.RedisLimit >= c.LostAfter:
		return errors.New("engine: Redis must count as lost later than its errors are a trouble")
	}
	return nil
}

// Redis is what the manager asks of Redis; redisstore.Store is one.
type Redis interface {
	nonce.Fast
	Lag(ctx context.Context, shards []int) ([]redisstore.Lag, error)
	Probe(ctx context.Context) ([]redisstore.Server, error)
	Signers(ctx context.Context, f func(signer string) error) error
	Shard(signer string) int
	Shards() int
}

// Store is what the manager asks of the store.
type Store interface {
	nonce.EngineCatalog
	nonce.EngineLedger
	Load(ctx context.Context, needs []nonce.Need) ([]nonce.Snapshot, error)
	// WalkSigners finds signers of either engine, in order of key, at most limit, from
	// after on.
	WalkSigners(ctx context.Context, after int64, limit int) ([]nonce.EnteredSigner, time.Time, error)
}

var _ Redis = (*redisstore.Store)(nil)

// Deps are what a manager works with. All are required.
type Deps struct {
	Store Store
	Redis Redis
	// Check looks whether Redis is what it must be. An error is a sentence; notes are
	// what an operator should know of it.
	Check   func(ctx context.Context) (notes []string, err error)
	Figures Figures
	Log     *slog.Logger
}

// Hooks are the parts of the node that are made after the manager. All are required.
type Hooks struct {
	// Settle makes a signer's worker look at it; false: there was no room.
	Settle func(signer string) bool
	// Prefers reports whether a signer that nobody owns should settle here.
	Prefers func(signer string) bool
	// Leads reports whether this node takes the steps that nobody asks for.
	Leads func() bool
	// Replay applies what was not flushed.
	Replay func(ctx context.Context) (flush.DrainReport, error)
}

// Figures is where the manager counts. Its methods must not block.
type Figures interface {
	State(c nonce.EngineCluster)
	Counts(c nonce.EngineCounts)
	// Lag: events that wait in all shards, the age of the oldest, dead letters.
	Lag(events int64, oldest time.Duration, dead int64)
	Trouble(t nonce.Trouble)
	Degraded(t nonce.Trouble)
	Reconciled(r ReconcileReport)
}
