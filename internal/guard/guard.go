package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"noncegate/internal/metrics"
	"noncegate/nonce"
)

// Config are the settings of a Guard. All are required.
type Config struct {
	// Slots bounds the calls that are guarded at a time, from Reserve until the
	// lock was given back. It bounds every queue of the Guard: a call waits in one
	// of them at most. More let more calls wait for a Redis that hangs.
	Slots int
	// Workers is how many goroutines talk to the Locks, each with as many steps at a
	// time as have gathered. A key belongs to one of them.
	Workers int
	// KeptEach bounds the locks that one principal may have kept by this node, beside a few
	// that are taken at the same moment. More let one principal fill the Locks for the others.
	KeptEach int
	// Timeout bounds how long a step waits until it is asked, and again the asking.
	// Shorter refuses more calls when Redis is slow, longer keeps them waiting.
	Timeout time.Duration
}

func (c *Config) validate() error {
	if c.Slots < 1 || c.Workers < 1 || c.KeptEach < 1 || c.Timeout < time.Millisecond {
		return fmt.Errorf("%d slots, %d workers, %d kept locks of one principal and a timeout of %v: at least 1, 1, 1 and 1ms are needed", c.Slots, c.Workers, c.KeptEach, c.Timeout)
	}
	return nil
}

// Failure is why a lock was not given back.
type Failure string

// The failures.
const (
	// ValueMismatch: it is not the caller's any more. It lasted shorter than the
	// call.
	ValueMismatch Failure = "value_mismatch"
	// Away: the Locks did not answer. The lock ends by itself.
	Away Failure = "away"
)

// Verdict says what became of a Take.
type Verdict uint8

// The verdicts. Only with Granted there is a lock, and End must be called.
const (
	Granted Verdict = iota + 1
	// Taken: another caller has the lock, for Lock.Left at most.
	Taken
	// Unanswered: whether it was taken is unknown, see Lock.Err. If it was, it is
	// given back.
	Unanswered
	// Full: as many locks are kept as may be, by all or by the principal.
	Full
	// Gone: the caller was, before the lock was asked for.
	Gone
)

// Caller is told what becomes of its lock, from a goroutine of the Guard. Its
// methods must not block.
type Caller interface {
	// Decided is called once for each Take. The Verdict and what goes with it are
	// in the lock now.
	Decided(l *Lock)
	// Ended is called once for each End that has said so.
	Ended(l *Lock)
	// Gone reports that the client does not wait for the call any more.
	Gone() bool
}

// Lock is one call's. The caller fills the first part, and touches nothing of it
// between Take and Decided, nor between End and Ended.
type Lock struct {
	Key      string
	By       nonce.Principal // that asks
	Interval time.Duration   // after which it ends by itself
	Keep     bool            // it is left until then when the call has ended
	Caller   Caller

	Verdict Verdict
	Left    time.Duration // with Taken
	Err     error         // with Unanswered

	value   string
	at      time.Time // since when it waits
	since   time.Time // when it was granted
	release bool      // it waits to be given back
	cleanup bool      // it may have been taken, and no caller is to be told
}

// Guard is a stage that calls pass before they begin, and after they have ended.
// Its methods may be called from any goroutine.
type Guard struct {
	cfg      Config
	locks    Locks
	counters *counters
	log      *slog.Logger
	seed     maphash.Seed
	workers  []*worker
	away     rate.Sometimes // the log says that the Locks do not answer
	late     rate.Sometimes // the log says that a lock has ended before its call, which a client may cause at will

	mu      sync.Mutex // guards what follows
	used    int
	kept    map[nonce.Principal]int // locks that are kept
	closed  bool                    // Reserve refuses all
	stopped bool                    // the queues are closed
	idle    chan struct{}           // closed when closed and used is 0
	running sync.WaitGroup
}

// New makes a guard, registers its metrics with reg, and starts its workers.
func New(locks Locks, cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Guard, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	g := &Guard{
		cfg: cfg, locks: locks, counters: newCounters(reg), log: log.With("component", "guard"), seed: maphash.MakeSeed(),
		idle: make(chan struct{}),
		away: rate.Sometimes{Interval: time.Second}, late: rate.Sometimes{Interval: time.Second}, kept: make(map[nonce.Principal]int),
	}
	metrics.Slots(reg, "guard", "Guarded calls under way", g.slots)
	for range cfg.Workers {
		w := &worker{g: g, queue: make(chan *Lock, cfg.Slots)}
		g.workers = append(g.workers, w)
		g.running.Go(w.loop)
	}
	return g, nil
}

// Reserve takes the slot of one call, without blocking. False: all are taken, or
// Stop was called. The slot is used by Take, or given back by Cancel.
func (g *Guard) Reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.used == g.cfg.Slots {
		return false
	}
	g.used++
	return true
}

// Cancel gives an unused slot back.
func (g *Guard) Cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used--
	g.closeIdleLocked()
}

func (g *Guard) closeIdleLocked() {
	if g.closed && g.used == 0 {
		close(g.idle)
	}
}

// slots is the number of slots taken, and of those there are.
func (g *Guard) slots() (used, capacity int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.used, g.cfg.Slots
}

// Take asks for the lock of a call that has a slot.
func (g *Guard) Take(l *Lock) {
	l.value = rand.Text() // of this call alone, so that no other can give the lock back
	if l.Keep && g.keptBy(l.By) >= g.cfg.KeptEach {
		l.Verdict = Full
		g.decide(l)
		return
	}
	if !g.workerOf(l.Key).push(l) {
		l.Verdict, l.Err = Unanswered, errStopped
		g.decide(l)
	}
}

// End says that the call of a granted lock has ended. later: Ended will be called
// when the lock was given back, or could not be; else there is nothing to wait for.
// keep leaves the lock until it ends by itself, if it was to be kept.
func (g *Guard) End(l *Lock, keep bool) (later bool) {
	if keep && l.Keep {
		g.counters.kept.Inc()
		g.count(l.By, 1)
		time.AfterFunc(l.Interval-time.Since(l.since), func() { g.count(l.By, -1) })
		g.Cancel()
		return false
	}
	l.release = true
	if !g.workerOf(l.Key).push(l) {
		g.Cancel()
		return false
	}
	return true
}

func (g *Guard) keptBy(p nonce.Principal) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept[p]
}

// count counts a lock that is kept, or has ended.
func (g *Guard) count(p nonce.Principal, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.kept[p] += n; g.kept[p] == 0 {
		delete(g.kept, p)
	}
}

func (g *Guard) workerOf(key string) *worker {
	return g.workers[maphash.String(g.seed, key)%uint64(len(g.workers))]
}

var errStopped = errors.New("the guard has stopped")

// Stop has Reserve refuse all, waits until every lock was given back, and ends the workers.
// When ctx ends first it says so; locks that are left end by themselves. It may be
// called twice.
func (g *Guard) Stop(ctx context.Context) (err error) {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		g.closeIdleLocked()
	}
	g.mu.Unlock()
	select {
	case <-g.idle:
	case <-ctx.Done():
		used, _ := g.slots()
		err = fmt.Errorf("guard: %d calls have not ended: %w", used, context.Cause(ctx))
	}
	g.closeQueues()
	g.running.Wait()
	return err
}

func (g *Guard) closeQueues() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped {
		return
	}
	g.stopped = true
	for _, w := range g.workers {
		close(w.queue)
	}
}

// decide tells a caller what became of its take. Without a lock its slot is free.
func (g *Guard) decide(l *Lock) {
	if l.Verdict != Granted {
		g.Cancel()
	}
	l.Caller.Decided(l)
}
