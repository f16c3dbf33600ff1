// Package service runs requests on signers that a node owns shard by shard.
//
// A worker is a goroutine that runs some of this node's shards, one batch at a time: it takes the
// queued requests, at most Config.MaxBatch, plans them with nonce/rules on its memory of the signers,
// commits everything in one statement, and only then updates its memory and answers. While a commit is
// under way the next batch collects. In mode basic no worker runs, and there is no memory: each
// request is one transaction in the caller's goroutine.
//
// It promises: a request ends exactly once; an answer ok leaves after its commit; a refusal means that
// nothing happened; requests of one caller for one signer run in the order in which they were
// submitted, also across other nodes.
//
// It does not promise that a node may write. The store decides that, in the writing statement, by the
// token of the shard and the version of the signer, and never by comparing the times of leases.
//
// Its goroutines are the workers, the watcher of shard ownership, the sweeper of overdue holds, the
// pruner, the heartbeat (package lease) and those of the performance engine. Stop ends them all and
// waits, or returns ErrCutShort when its time is over.
//
// Locks, in the order in which they are taken: worker.batchMu, or in mode basic a stripe of basic, held
// for a whole batch or transaction, calls of the store included; that of lease.Table, held while the
// store is asked for the fleet; then worker.mu, remoteSigner.mu, clock.mu and those of package fairness.
// No goroutine holds two of these last ones, or waits while it holds one. Only
// releaseAll holds several batchMu, those of all workers in order. Service.gate is separate: it is held
// briefly, and no other lock is taken under it.
//
// Files in reading order: service.go and task.go (a request from Submit to its end), worker.go and
// batch.go (a batch), round.go (one step of it), then the steps: forward.go, acquire.go, load.go and
// read.go, commit.go (limit.go bounds it), settle.go, events.go. memory.go is what a worker remembers, config.go has the
// settings and the Router, clock.go what is known of the store's clock. sweep.go ends overdue holds,
// compare.go handles a store that went back. Package lease knows who owns what; shards.go and
// ownership.go ask it. committer.go is the seam to the performance engine (package performance), which
// commits the plans of shards that have it; doubt.go and later.go are what a loss of it leaves behind.
// basic.go is the other mode, call.go is for programs that embed the service.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

// Service runs ops. Its methods may be called from many goroutines.
type Service struct {
	store  nonce.Store
	holder lease.Holder
	cfg    Config
	fig    nonce.Figures
	sink   nonce.EventSink // nil: nobody wants events
	log    *slog.Logger
	fatal  func(error)

	shards  []*shard
	workers []*worker
	basic   *basic // nil: mode worker-queue
	clock   *clock
	open    *fairness.Holds
	table   *lease.Table // of the shards
	keeper  *lease.Keeper
	heard   atomic.Pointer[time.Time] // when the store answered last
	// leasedUntil is the end of the lease, by the last heartbeat, whose goroutine has it.
	leasedUntil time.Time

	halted  atomic.Pointer[error]
	behind  atomic.Uint64 // how often the store went back as a whole, and this node went on with what it remembers
	history history
	streams atomic.Uint64 // the id of the latest remoteSigner
	tally   tally
	saidWhy rate.Sometimes

	gate   sync.RWMutex // guards closed; nobody enters once Stop has set it
	closed bool
	inside sync.WaitGroup // callers that entered
	stop   chan struct{}
	runs   sync.WaitGroup
	quiet  sync.Once     // Stop
	ended  chan struct{} // closed when all is quiet
	// calls is what calls of the store are bound to, beside their own time-outs; cutShort ends it.
	calls    context.Context
	cutShort context.CancelFunc
}

// New starts the service of one run of a node, which is registered. It returns once the
// node has its lease and knows the others. fatal is called, once at most and from any
// goroutine, when the process must end because a later start of the same node id exists.
// sink may be nil. The error is a sentence that names the setting or what the store said.
func New(ctx context.Context, store nonce.Store, h lease.Holder, cfg Config, fig nonce.Figures, sink nonce.EventSink,
	fatal func(error), log *slog.Logger) (*Service, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		store: store, holder: h, cfg: cfg, fig: fig, sink: sink, log: log.With("component", "nonce"), fatal: fatal,
		history: history{generation: store.Generation()}, stop: make(chan struct{}), ended: make(chan struct{}), saidWhy: rate.Sometimes{Interval: sayEvery},
	}
	s.calls, s.cutShort = context.WithCancel(context.Background())
	s.clock = &clock{longestHold: cfg.MaxHold, jumped: s.clockJumped}
	s.open = fairness.NewHolds(func() int64 { return s.clock.now().Earliest })
	if cfg.Mode == nonce.Basic {
		s.basic = &basic{svc: s}
	}
	for i := range cfg.Workers {
		s.workers = append(s.workers, newWorker(s, i))
	}
	for i := range store.Shards() {
		s.shards = append(s.shards, &shard{worker: s.workers[i%cfg.Workers]})
	}
	s.table = s.newTable()
	if s.basic == nil && cfg.Engine != nil {
		s.attach()
	}
	if err := s.begin(ctx); err != nil {
		s.cutShort()
		return nil, err
	}
	return s, nil
}

// firstLook is for how long a service that starts asks who owns which shard: a connection that
// breaks is no reason to end.
const firstLook = 10 * time.Second

// begin takes the lease, looks who owns what, and starts the goroutines.
func (s *Service) begin(ctx context.Context) (err error) {
	if s.keeper, err = lease.Keep(ctx, s.store, s.holder, s.cfg.LeaseTTL, s.renewed, s.heartbeatLost, s.log); err != nil {
		return err
	}
	_, err = backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, s.table.Look(ctx) }, backoff.WithMaxElapsedTime(firstLook))
	if err != nil {
		s.keeper.Stop()
		return err
	}
	if s.basic == nil {
		for _, w := range s.workers {
			s.runs.Go(func() { w.loop(s.stop) })
		}
		if s.cfg.Engine != nil {
			for _, run := range s.cfg.Engine.Goroutines() {
				s.runs.Go(func() { run(s.stop) })
			}
		}
	}
	watch := &watch{svc: s}
	s.balance()
	s.runs.Go(func() { s.every(s.cfg.WatchEvery, watch.look) })
	s.runs.Go(func() { s.every(s.cfg.SweepInterval, s.sweep) })
	// Not at once: a node that starts is busy.
	s.runs.Go(func() { s.every(s.pruneEvery(), func(tick *time.Ticker) { tick.Reset(s.pruneOnce()) }) })
	return nil
}

// every calls do again and again until Stop. do may give the ticker another period.
func (s *Service) every(d time.Duration, do func(*time.Ticker)) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		do(tick)
	}
}

func (s *Service) clockJumped(by time.Duration) {
	s.log.Warn("the store's clock jumped; sweeps pause for the longest hold", "by", by, "pause", s.cfg.MaxHold)
}

// heartbeatLost follows a store that shows fewer heartbeats than it confirmed: it lost what was committed last.
// This node cannot tell what other nodes did with signers, so from now on it serves a signer if it remembers it
// and the row is the same, or once it was given a floor. A node without memory, and one with the performance
// engine, stops as a whole.
func (s *Service) heartbeatLost(err error, renewed bool) (goesOn bool) {
	if !renewed || s.basic != nil || s.cfg.Engine != nil || s.haltedBy() != nil {
		s.halt(err)
		return false
	}
	s.log.Error("the store went back: every signer that this node does not remember as its row is, "+
		"is stopped until nonce_setFloor gives it a safe floor", "error", err)
	s.fig.WentBack()
	s.table.Still.Store(true)
	s.behind.Add(1)
	return true
}

// halt refuses everything from now on: the node was superseded or the store went
// back as a whole. Only a new start of the process helps.
func (s *Service) halt(reason error) {
	if !s.halted.CompareAndSwap(nil, &reason) {
		return
	}
	s.log.Error("this node stopped serving", "error", reason)
	if s.cfg.OnHalt != nil {
		s.cfg.OnHalt(reason)
	}
	if errors.Is(reason, lease.ErrWentBack) {
		s.fig.WentBack()
	}
	if errors.Is(reason, lease.ErrSuperseded) && s.fatal != nil {
		s.fatal(reason)
	}
}

func (s *Service) haltedBy() error {
	if p := s.halted.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready reports why the service cannot serve, or nil.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.haltedBy(); err != nil {
		return err
	}
	if !s.enter() {
		return nonce.ErrDraining
	}
	defer s.inside.Done()
	return s.store.Ping(ctx)
}

// enter lets a caller in, whom Stop then waits for, unless the service is closed.
func (s *Service) enter() bool {
	s.gate.RLock()
	defer s.gate.RUnlock()
	if s.closed {
		return false
	}
	s.inside.Add(1)
	return true
}

func (s *Service) shardOf(signer string) *shard {
	return s.shards[nonce.ShardOf(signer, len(s.shards))]
}

// WorkerIndex is the worker of a signer's shard, from 0 to WorkerCount()-1.
func (s *Service) WorkerIndex(signer string) int { return s.shardOf(signer).worker.index }

// WorkerCount is the number of workers.
func (s *Service) WorkerCount() int { return len(s.workers) }

// Queued is the number of slots taken in all worker queues, and their capacity. It
// may be exceeded by an eighth; see Config.QueueCapacity.
func (s *Service) Queued() (used, capacity int) {
	if s.basic != nil {
		return 0, 0
	}
	for _, w := range s.workers {
		used += w.slots.Taken()
	}
	return used, len(s.workers) * s.cfg.QueueCapacity
}

// Reserve takes a slot for one request of signer and principal, which must be the
// request's, without blocking. False means that the queue is full, or the principal's share
// of it: nonce.ErrBusy. With caller-runs, and in mode basic, it always succeeds.
func (s *Service) Reserve(signer string, p nonce.Principal) (nonce.Slot, bool) {
	if s.basic != nil {
		return nonce.Slot{}, true
	}
	w := s.shardOf(signer).worker
	if w.slots.Reserve(p) {
		return nonce.Slot{Queue: w, Of: p, Held: true}, true
	}
	return nonce.Slot{Queue: w}, s.cfg.Reject == nonce.CallerRuns
}

// Submit runs a request in its slot, and tells done when it has ended, with the result that is
// written to r. Neither of the two is touched by the caller meanwhile. Requests of one caller for
// one signer run in the order in which it submits them. It may do work in the caller's goroutine:
// all of it in mode basic, and with caller-runs when the queue was full. What the slot has is the
// service's from the call on; the slot is empty then.
func (s *Service) Submit(slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion) {
	s.SubmitOf(nil, slot, q, r, done)
}

// SubmitOf is Submit for what another node sent on a path.
func (s *Service) SubmitOf(path *nonce.Path, slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion) {
	p := *slot
	*slot = nonce.Slot{}
	t := &task{req: q, res: r, done: done, path: path, queuedAt: time.Now(), placed: p.Held, events: p.Events}
	if !s.enter() {
		p.Cancel()
		t.refuse(nonce.ErrDraining)
		if k := s.tell(t); k != nil {
			k.Wake()
		}
		return
	}
	defer s.inside.Done()
	switch {
	case s.basic != nil:
		s.basic.run(t)
	case p.Held:
		w := p.Queue.(*worker)
		t.shard = s.shardOf(q.Signer)
		if s.cfg.Router == nil || !w.forwardNow(t) {
			t.move(queued)
			w.push(t)
		}
	default:
		t.shard = s.shardOf(q.Signer)
		t.move(queued)
		p.Queue.(*worker).callerRuns(t)
	}
}

// sayEvery is how often the log tells why the store does not do what it is asked.
const sayEvery = 10 * time.Second

// sayWhy logs why a request was refused where its caller is not told: a store that
// answers, and refuses, looks well from everywhere else.
func (s *Service) sayWhy(t *task) {
	e, ok := errors.AsType[*nonce.UnavailableError](t.res.Err)
	if !ok || e.Outcome == nonce.Unknown || e.Told() {
		return
	}
	s.saidWhy.Do(func() {
		s.log.Warn("the store does not do what requests need; they are told unavailable",
			"op", t.req.Kind.String(), "signer", t.req.Signer, "error", e.Err)
	})
}

// ErrCutShort is what Stop returns when its time was over before all was quiet: calls of the
// store were given up. What was queued was refused, what was being committed was told as unknown,
// and the shards are free when the lease of this node is over.
var ErrCutShort = errors.New("the store did not answer in time: what was queued was refused, and what was being committed is unknown")

// cutWait is for how long Stop waits for what ends when calls of the store were given up.
const cutWait = time.Second

// Stop takes no more ops, finishes those queued, gives the shards back and
// returns when all is quiet. When ctx ends before, calls of the store are given up, and it returns
// ErrCutShort, at most a second later: also where a call does not end by that, as of a file on
// a disk that hangs. The Router must have returned every op that it took
// before Stop is called: one that comes back later to be routed again has no worker
// and never ends. It may be called twice.
func (s *Service) Stop(ctx context.Context) error {
	s.quiet.Do(func() {
		go func() {
			defer close(s.ended)
			s.end()
		}()
	})
	select {
	case <-s.ended:
	case <-ctx.Done():
	}
	if isClosed(s.ended) { // both: what is known is said
		return nil
	}
	s.cutShort()
	enough := time.NewTimer(cutWait)
	defer enough.Stop()
	select {
	case <-s.ended:
		return ErrCutShort
	case <-enough.C:
		return fmt.Errorf("%w; some calls of it have not ended", ErrCutShort)
	}
}

// end is Stop without its bound.
func (s *Service) end() {
	s.gate.Lock()
	s.closed = true
	s.gate.Unlock()
	s.inside.Wait()
	close(s.stop)
	s.runs.Wait()
	if s.basic == nil {
		s.releaseAll()
		for _, w := range s.workers {
			w.failParked()
		}
	}
	s.keeper.Stop()
}

// stopping reports whether Stop waits for the workers to end.
func (s *Service) stopping() bool { return isClosed(s.stop) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// timeout bounds one call of the store.
func (s *Service) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.calls, s.cfg.StoreTimeout)
}
