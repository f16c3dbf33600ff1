package flush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// Ledger is what the worker needs of the store.
type Ledger interface {
	Apply(ctx context.Context, ttl time.Duration, events []nonce.FlushEvent) ([]nonce.FlushVerdict, error)
	Versions(ctx context.Context, ids []int64) ([]nonce.RowVersion, error)
}

// Hooks are told of what the worker did. None may be nil. All but OpenLock and
// Conflict, which may take as long as a call of the store, must not block.
type Hooks struct {
	// OpenLock opens the connection for the locks.
	OpenLock func(ctx context.Context) (nonce.FlushLock, error)
	// Accepted are the servers whose events count. While there is none nothing is
	// read.
	Accepted func() []nonce.Identity
	// Nodes is how many nodes share the work, this one included.
	Nodes func() int
	// Hurry reports whether somebody waits for hand-outs too, to be flushed soon: of
	// the marks that other nodes commit nobody wakes this one.
	Hurry func() bool
	// Flushed is told that the store has a signer up to version.
	Flushed func(signer string, version int64)
	// Conflict is told of a signer whose events the store cannot take. Its owner
	// has to look at it: Redis does not fit what the store has.
	Conflict func(signer string, err error)
	Figures  Figures
}

// RetryReason says why something is tried again, as a label.
type RetryReason string

// The reasons.
const (
	RetryRedis   RetryReason = "redis"   // the stream could not be read or acknowledged
	RetryLost    RetryReason = "lost"    // the server is none that was accepted
	RetryAway    RetryReason = "away"    // the store was out of reach, nothing was sent
	RetryUnknown RetryReason = "unknown" // the store did not confirm; asking again settles it
	RetryRefused RetryReason = "refused" // the store refused, and may take it later
	RetryLocked  RetryReason = "locked"  // somebody had the signer's row locked
	RetryGap     RetryReason = "gap"     // events before it are missing
)

// RetryReasons are all of them.
var RetryReasons = []RetryReason{RetryRedis, RetryLost, RetryAway, RetryUnknown, RetryRefused, RetryLocked, RetryGap}

// Figures is where the worker counts. Its methods must not block.
type Figures interface {
	// Applied: one transaction was committed, with so many rows and events.
	Applied(took time.Duration, rows, events int)
	// Settled: the store has, or will never want, so many events.
	Settled(v nonce.FlushVerdict, events int)
	// Retry: a shard waits, and is then tried again.
	Retry(r RetryReason)
	// Buried: events became dead letters.
	Buried(events int)
}

// Config are the settings of a Worker. Zero values stand for the defaults.
type Config struct {
	Shards       int           // flush shards of the cluster; required
	LeaseTTL     time.Duration // for the leases that a flush renews; required
	Lanes        int           // one for two processors, 1 to 4; shards are dealt out to them, each lane commits on its own
	Batch        int           // 1024; entries read of one shard at a time
	MaxRows      int           // 8192; rows of one transaction
	Gather       time.Duration // 2ms; wait after a transaction that somebody awaited, for what shares the next one
	Share        time.Duration // 250ms; how long, by a half more or less, the hand-outs of a shard gather, for which nobody waits
	HurriedShare time.Duration // 20ms; the same while Hooks.Hurry says so; not above Share
	Poll         time.Duration // 10ms; longest wait before an empty stream is read again
	Elect        time.Duration // 500ms; how often free shards are looked for
	Timeout      time.Duration // 5s; one call of the store or of Redis
	RetryMax     time.Duration // 2s; longest wait between two tries
	HandOver     time.Duration // 2s; a shard that cannot be read for so long is left to other nodes
	GapPatience  time.Duration // 2s; a gap that stays for longer cannot be closed
	RefusedLimit int           // 10; tries of an event that the store refuses while it takes others
}

func (c *Config) defaults() {
	setDefault(&c.Lanes, min(max(runtime.GOMAXPROCS(0)/2, 1), 4))
	setDefault(&c.Batch, 1024)
	setDefault(&c.MaxRows, 2*maxGroupRows)
	setDefault(&c.Gather, 2*time.Millisecond)
	setDefault(&c.Share, 250*time.Millisecond)
	setDefault(&c.HurriedShare, min(c.Share, 20*time.Millisecond))
	setDefault(&c.Poll, 10*time.Millisecond)
	setDefault(&c.Elect, 500*time.Millisecond)
	setDefault(&c.Timeout, 5*time.Second)
	setDefault(&c.RetryMax, 2*time.Second)
	setDefault(&c.HandOver, 2*time.Second)
	setDefault(&c.GapPatience, 2*time.Second)
	setDefault(&c.RefusedLimit, 10)
	c.Lanes = min(c.Lanes, c.Shards)
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func (c *Config) validate() error {
	switch {
	case c.Shards < 1:
		return errors.New("flush: there must be at least 1 shard")
	case c.LeaseTTL <= 0:
		return errors.New("flush: the lease ttl must be above 0")
	case c.Lanes < 1, c.Batch < 1, c.MaxRows < 1:
		return errors.New("flush: lanes, batch and rows must be at least 1")
	case min(c.Gather, c.Share, c.HurriedShare, c.Poll, c.Elect, c.Timeout, c.RetryMax, c.HandOver, c.GapPatience) <= 0:
		return errors.New("flush: times must be above 0")
	}
	return nil
}

// Worker flushes the shards it was elected for.
type Worker struct {
	queue  Queue
	ledger Ledger
	hooks  Hooks
	log    *slog.Logger
	cfg    Config

	held  []atomic.Bool // by shard: this node has its lock
	blind []atomic.Bool // by shard: this node cannot read it
	asked []atomic.Bool // by shard: Wake was called since it was read last
	leads atomic.Bool
	lanes []*lane
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Start begins to flush. The caller must Stop.
func Start(ctx context.Context, q Queue, l Ledger, hooks Hooks, log *slog.Logger, cfg Config) (*Worker, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &Worker{queue: q, ledger: l, hooks: hooks, log: log.With("component", "flush"), cfg: cfg,
		held: make([]atomic.Bool, cfg.Shards), blind: make([]atomic.Bool, cfg.Shards), asked: make([]atomic.Bool, cfg.Shards)}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	for range cfg.Lanes {
		w.lanes = append(w.lanes, w.newLane())
	}
	for i, l := range w.lanes {
		w.done.Go(func() { l.run(ctx, i) })
	}
	w.done.Go(func() { w.elect(ctx) })
	return w, nil
}

// Stop ends the work, after the transaction that is under way, and gives back the
// shards. It may be called twice.
func (w *Worker) Stop() {
	w.stop()
	w.done.Wait()
}

// Held is how many shards this node flushes.
func (w *Worker) Held() int { return count(w.held) }

func count(of []atomic.Bool) (n int) {
	for i := range of {
		if of[i].Load() {
			n++
		}
	}
	return n
}

// Leads reports whether this node, of all that flush, is the one that acts for the
// cluster. For a moment there may be two, or none.
func (w *Worker) Leads() bool { return w.leads.Load() }

// Unreadable is how many shards this node leaves to others because it could not read
// them.
func (w *Worker) Unreadable() int { return count(w.blind) }

// flushes reports whether this node flushes the shard, as far as its lane is concerned.
func (w *Worker) flushes(shard int) bool { return w.held[shard].Load() && !w.blind[shard].Load() }

// Wake says that a shard has something to flush for which somebody waits, so that it
// is read at once where this node flushes it. It never blocks; without it the stream
// is found by polling, with more to share its transaction.
func (w *Worker) Wake(shard int) {
	if shard >= 0 && shard < len(w.held) && w.held[shard].Load() {
		w.asked[shard].Store(true)
		select {
		case w.lanes[shard%len(w.lanes)].wake <- struct{}{}:
		default: // it is awake
		}
	}
}

// share is how long hand-outs gather now.
func (w *Worker) share() time.Duration {
	if w.hooks.Hurry() {
		return w.cfg.HurriedShare
	}
	return w.cfg.Share
}

// Drain reads and applies everything there is, of all shards and whoever flushes
// them, dead letters first, until nothing is left or nothing more can be done. A
// shard that fails does not keep it from the others.
func (w *Worker) Drain(ctx context.Context) (DrainReport, error) {
	var total DrainReport
	var errs []error
	l := w.newLane()
	for shard := range w.cfg.Shards {
		err := l.drainDead(ctx, shard, &total)
		if err == nil {
			err = l.drain(ctx, shard, &total)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("replay flush shard %d: %w", shard, err))
		}
	}
	return total, errors.Join(errs...)
}
