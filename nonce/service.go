// Package nonce holds the rules of handing out nonces, and the service that runs
// them: in mode worker-queue on shards of signers this node owns, in mode basic
// in a transaction per request. It knows no socket and no SQL.
//
// The rules (rules.go) are a state machine without I/O: a draft plans one commit
// against what is remembered of a signer. The service tries the plan in the
// store, on the condition of fencing token and version, and follows it in memory
// only when the store says that it happened. Whatever memory gets wrong costs a
// round trip, never a nonce.
//
// A write happened, did not happen, or is unknown; see StoreError and settle.go
// for how the third is turned into one of the others.
//
// Goroutines: New starts one per worker, one for sweeps and, where consumed
// allocations are not kept for ever, one that prunes them; Stop ends them and
// waits. In mode basic there are no workers.
package nonce

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/lease"
)

// Mode says how requests are run.
type Mode string

// The two modes.
const (
	WorkerQueue Mode = "worker-queue"
	Basic       Mode = "basic"
)

// Reject says what a full worker queue means.
type Reject string

// The two policies: refuse at once, or let the caller's goroutine take its turn
// at the shard.
const (
	FailFast   Reject = "fail-fast"
	CallerRuns Reject = "caller-runs"
)

// Config are the settings of a Service. All are required unless said otherwise.
type Config struct {
	Mode    Mode
	Workers int // shards; in mode basic only lanes for events
	// QueueCapacity is the places of one shard's queue, in ops. While several
	// principals have places there, none has more than an equal share: the capacity
	// divided by how many they are. So that who comes to a queue that others have filled
	// finds a place at once, an eighth of the capacity is kept beside it for those below
	// their share. A batch takes an op of each principal in turn.
	QueueCapacity int
	Reject        Reject // what a full queue means
	MaxBatch      int    // ops of one batch; 0: 1024. Larger commits less often and answers later. While several principals wait it is 256 at most

	LeaseTTL     time.Duration // at least a second
	StoreTimeout time.Duration // one call of the store; 0: 5s. Past it a commit is unknown
	LockWait     time.Duration // how long a row locked by others is retried; 0: 2s
	LockRetry    time.Duration // between two tries; 0: 5ms
	MaxSigners   int           // remembered signers, of all shards together; 0: 200,000
	IdleAfter    time.Duration // a signer unused for longer is forgotten; 0: 5m

	Rules
	MaxHold          time.Duration // the longest hold anybody may ask for
	SweepInterval    time.Duration
	RequestRetention time.Duration // 0 keeps request ids for ever

	// Fast is the performance engine; nil: there is none. Mode basic has none.
	Fast *FastConfig

	// Router carries ops to the nodes that own their signers. nil: what another
	// node owns is refused with NotOwnerError. Mode basic does not ask it.
	Router Router

	// ConsumedRetention is how long a CONSUMED allocation is kept, counted from
	// its last change. 0 keeps them for ever.
	ConsumedRetention time.Duration
	PrunePause        time.Duration // at least, between two prunings; 0: 20ms
	PruneRest         time.Duration // after a walk over all signers that found nothing to prune; 0: a 64th of ConsumedRetention, 1s to 10m
}

func (c *Config) defaults() {
	setDefault(&c.MaxBatch, 1024)
	setDefault(&c.StoreTimeout, 5*time.Second)
	setDefault(&c.LockWait, 2*time.Second)
	setDefault(&c.LockRetry, 5*time.Millisecond)
	setDefault(&c.MaxSigners, 200_000)
	setDefault(&c.IdleAfter, 5*time.Minute)
	setDefault(&c.PrunePause, 20*time.Millisecond)
	setDefault(&c.PruneRest, min(max(c.ConsumedRetention/64, time.Second), 10*time.Minute))
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

func (c *Config) validate() error {
	switch {
	case c.Mode != WorkerQueue && c.Mode != Basic:
		return fmt.Errorf("mode %q is neither %q nor %q", c.Mode, WorkerQueue, Basic)
	case c.Reject != FailFast && c.Reject != CallerRuns:
		return fmt.Errorf("reject policy %q is neither %q nor %q", c.Reject, FailFast, CallerRuns)
	case c.Workers < 1:
		return errors.New("workers must be at least 1")
	case c.QueueCapacity < 1:
		return errors.New("the worker queue's capacity must be at least 1")
	case c.LeaseTTL < time.Second:
		return errors.New("the lease ttl must be at least 1s")
	case c.DefaultHold <= 0 || c.DefaultHold > c.MaxHold:
		return errors.New("the default hold must be above 0 and not above the longest hold")
	case c.NewSigners != "" && c.NewSigners != AllowNew && c.NewSigners != RefuseNew:
		return fmt.Errorf("new signers %q is neither %q nor %q", c.NewSigners, AllowNew, RefuseNew)
	case c.SweepInterval <= 0:
		return errors.New("the sweep interval must be above 0")
	case c.ConsumedRetention < 0:
		return errors.New("the retention of consumed allocations must not be below 0")
	case c.Fast != nil && c.Mode == Basic:
		return errors.New("mode basic has no performance engine")
	case c.Fast != nil:
		return c.Fast.validate()
	}
	return nil
}

// Figures receives what is measured. Its calls come from the hot path.
type Figures interface {
	WorkerQueue(d time.Duration)       // queued to taken by a worker
	Commit(d time.Duration, ops int)   // one round trip, and the ops it carried
	LeaseAcquire(result AcquireResult) // one signer
	LeaseRenew(result RenewResult)     // one signer, by writing to it
	FenceReject(op Kind)               // one op told fenced
	WentBack()                         // a signer, or the node, stopped because the store went back
	Invariant()                        // a commit aborted by ErrInvariant: an alarm
	Swept(expired int)                 // holds whose client did not mark in time, each once
	SweepsPaused(paused bool)          // by a jump of the store's clock
}

// AcquireResult is the label of a lease acquisition.
type AcquireResult string

// The results of an acquire.
const (
	AcquireNew      AcquireResult = "acquired"
	AcquireTakeover AcquireResult = "takeover" // of another node's expired lease
	AcquireHeld     AcquireResult = "held"     // by another node
	AcquireError    AcquireResult = "error"
)

// RenewResult is the label of a renewal.
type RenewResult string

// The results of a renewal. Late: the write renewed a lease this node could no
// longer trust, which nobody had taken meanwhile.
const (
	RenewInTime RenewResult = "renewed"
	RenewLate   RenewResult = "late"
)

// Service runs ops. Its methods may be called from many goroutines.
type Service struct {
	store  Store
	holder lease.Holder
	cfg    Config
	fig    Figures
	sink   EventSink // nil: nobody wants events
	log    *slog.Logger

	seed            maphash.Seed
	shards          []*shard
	basic           *basic
	signersPerShard int
	clock           *storeClock
	halt            atomic.Pointer[error]
	retired         atomic.Bool // no signer is acquired any more
	trails          atomic.Uint64
	answers         *answers
	ahead           ahead
	began           time.Time
	tally           tally
	fatal           func(error)
	saidWhy         atomic.Int64 // when sayWhy said something last, Unix nanoseconds

	gate    sync.RWMutex // guards closed; nobody enters once Stop has set it
	closed  bool
	inside  sync.WaitGroup // callers that entered
	stop    chan struct{}
	workers sync.WaitGroup
	said    chan struct{} // closed when everything is answered
	talkers sync.WaitGroup
	quiet   sync.Once // Stop
}

// New starts a service of one node. fatal is called, once at most and from any
// goroutine, when the process must end because a later start of the same node id
// exists. sink may be nil.
func New(store Store, h lease.Holder, fig Figures, sink EventSink, log *slog.Logger, fatal func(error), cfg Config) (*Service, error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		store: store, holder: h, cfg: cfg, fig: fig, sink: sink, log: log.With("component", "nonce"), fatal: fatal,
		began: time.Now(), seed: maphash.MakeSeed(), stop: make(chan struct{}), said: make(chan struct{}),
		signersPerShard: max(1, cfg.MaxSigners/cfg.Workers),
	}
	s.answers, s.ahead.wake = newAnswers(s), make(chan struct{}, 1)
	s.clock = &storeClock{longestHold: cfg.MaxHold, jumped: s.clockJumped}
	s.cfg.open = newOpenHolds(func() time.Time {
		now, known := s.clock.estimate(time.Now())
		if !known {
			return time.Time{}
		}
		return now
	})
	if cfg.Mode == Basic {
		s.basic = &basic{svc: s}
	} else {
		for i := range cfg.Workers {
			s.shards = append(s.shards, newShard(s, i))
		}
	}
	for _, sh := range s.shards {
		s.workers.Go(func() { sh.loop(s.stop) })
	}
	s.workers.Go(s.sweep)
	s.talkers.Go(func() { s.answers.run(s.said) })
	if cfg.Fast != nil {
		s.workers.Go(s.refill)
		for _, sh := range s.shards {
			s.workers.Go(sh.mirrorLoop)
		}
	}
	if cfg.ConsumedRetention > 0 {
		s.workers.Go(s.pruneConsumed)
	}
	return s, nil
}

func (s *Service) clockJumped(by time.Duration) {
	s.fig.SweepsPaused(true)
	s.log.Warn("the store's clock jumped; sweeps pause for the longest hold", "by", by, "pause", s.cfg.MaxHold)
}

// Halt refuses everything from now on: the node was superseded or the store went
// back as a whole. Only a new start of the process helps.
func (s *Service) Halt(reason error) {
	if !s.halt.CompareAndSwap(nil, &reason) {
		return
	}
	s.log.Error("this node stopped serving", "error", reason)
	if errors.Is(reason, lease.ErrWentBack) {
		s.fig.WentBack()
	}
	if errors.Is(reason, lease.ErrSuperseded) && s.fatal != nil {
		s.fatal(reason)
	}
}

func (s *Service) haltedBy() error {
	if p := s.halt.Load(); p != nil {
		return *p
	}
	return nil
}

// Ready reports why the service cannot serve, or nil.
func (s *Service) Ready(ctx context.Context) error {
	if err := s.haltedBy(); err != nil {
		return err
	}
	s.gate.RLock()
	closed := s.closed
	s.gate.RUnlock()
	if closed {
		return ErrDraining
	}
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

func (s *Service) hash(signer string) uint64 { return maphash.String(s.seed, signer) }

// Lane is the shard of a signer, from 0 to Lanes()-1.
func (s *Service) Lane(signer string) int { return int(s.hash(signer) % uint64(s.cfg.Workers)) }

// Lanes is the number of shards.
func (s *Service) Lanes() int { return s.cfg.Workers }

// Queued is the number of places taken in all worker queues, and their capacity. It
// may be exceeded by an eighth; see Config.QueueCapacity.
func (s *Service) Queued() (used, capacity int) {
	for _, sh := range s.shards {
		used += int(sh.shares.places.Load())
	}
	return used, len(s.shards) * s.cfg.QueueCapacity
}

// Reserve takes a place for one request of signer and principal, which must be the
// op's, without blocking. False means that the queue is full, or the principal's share
// of it: ErrBusy. With caller-runs, and in mode basic, it always succeeds.
func (s *Service) Reserve(signer string, p Principal) (Place, bool) {
	if s.basic != nil {
		return Place{}, true
	}
	sh := s.shards[s.Lane(signer)]
	if sh.shares.reserve(p) {
		return Place{Queue: sh, Of: p, Held: true}, true
	}
	return Place{Queue: sh}, s.cfg.Reject == CallerRuns
}

// Submit runs op in its place and tells op.Completion when it has ended. Ops of
// one caller for one signer run in the order in which it submits them. It may do
// work in the caller's goroutine: all of it in mode basic, and with caller-runs
// when the queue was full.
func (s *Service) Submit(p Place, op *Op) {
	if !s.enter() {
		s.refuse(p, op, ErrDraining)
		return
	}
	defer s.inside.Done()
	op.queuedAt, op.askedFloor = time.Now(), op.Floor
	op.inShard, op.wrote, op.recovered, op.made = p.Held, false, false, false
	op.trail, op.trips, op.doubt, op.late = nil, 0, false, false
	switch {
	case s.basic != nil && s.haltedBy() != nil:
		s.refuse(p, op, &UnavailableError{Outcome: NotSent, Err: s.haltedBy()})
	case s.basic != nil:
		s.basic.run(op)
	case p.Held:
		p.Queue.(*shard).push(op)
	default:
		p.Queue.(*shard).callerRuns(op)
	}
}

// sayEvery is how often the log tells why the store does not do what it is asked.
const sayEvery = 10 * time.Second

// sayWhy logs why an op was refused where its caller is not told: a store that
// answers, and refuses, looks well from everywhere else.
func (s *Service) sayWhy(op *Op) {
	e, ok := errors.AsType[*UnavailableError](op.Err)
	if !ok || e.Outcome == Unknown {
		return
	}
	if _, general := e.words(); !general {
		return
	}
	last, now := s.saidWhy.Load(), time.Now().UnixNano()
	if (last == 0 || now-last >= int64(sayEvery)) && s.saidWhy.CompareAndSwap(last, now) {
		s.log.Warn("the store does not do what requests need; they are told unavailable", "op", op.Kind.String(), "signer", op.Signer, "error", e.Err)
	}
}

func (s *Service) refuse(p Place, op *Op, err error) {
	p.Cancel()
	op.reset()
	op.Err = err
	if op.Completion != nil {
		if w := op.Completion.Done(op); w != nil {
			w.Wake()
		}
	}
}

// Stop takes no more ops, finishes those queued, gives the leases back and
// returns when all is quiet. It may be called twice.
func (s *Service) Stop() {
	s.quiet.Do(func() {
		s.gate.Lock()
		s.closed = true
		s.gate.Unlock()
		s.inside.Wait()
		close(s.stop)
		s.workers.Wait()
		s.answers.close()
		close(s.said)
		s.talkers.Wait()
		for _, sh := range s.shards {
			sh.releaseAll()
		}
	})
}

// publish hands the events of a committed op to the sink.
func (s *Service) publish(lane int, op *Op, chain ChainSigner, version int64, now time.Time) {
	if op.Err != nil || !(op.wrote || op.recovered) {
		return
	}
	if n := op.expired(); n > 0 {
		s.fig.Swept(n)
	}
	wanted := s.sink != nil && (op.EventPlace || s.sink.Watched(op.Signer))
	if !wanted && chain == nil {
		return
	}
	if !wanted { // the chain does not keep them
		buf := eventBuffers.Get().(*[]Event)
		*buf = op.events((*buf)[:0], version, now)
		chain.Committed(*buf)
		eventBuffers.Put(buf)
		return
	}
	events := op.events(nil, version, now)
	if chain != nil {
		chain.Committed(events)
	}
	if len(events) == 0 {
		return
	}
	s.sink.Publish(lane, op.EventPlace, events)
	op.EventPlace = false
}

// eventBuffers are of events that nobody keeps.
var eventBuffers = sync.Pool{New: func() any { return new([]Event) }}

// events appends what the op changed.
func (op *Op) events(to []Event, version int64, at time.Time) []Event {
	e := Event{Signer: op.Signer, Version: version, At: at, Nonce: op.Nonce, Attempt: op.Attempt}
	switch op.Kind {
	case KindMarkUsed:
		if e.Type, e.TxHash = EventUsed, op.TxHash; op.Replaced != (TxHash{}) {
			e.Type = EventReplaced
		}
	case KindMarkSigned:
		if e.Type, e.TxHash = EventSigned, op.TxHash; op.Replaced != (TxHash{}) {
			e.Type = EventReplaced
		}
		if op.tookNonce {
			taken := e
			taken.Type, taken.TxHash = EventAllocated, TxHash{}
			return append(to, taken, e)
		}
	case KindExtend:
		e.Type = EventExtended
	case KindRepair:
		e.Type, e.Nonce, e.Attempt, e.Reason = EventAllocated, op.Nonces[0], op.Attempts[0], ReasonRepair
	case KindMarkRecyclable:
		switch e.Type = EventReleased; {
		case op.Status == Consumed && op.Hashes == "":
			e.Reason = ReasonBelowFloor
		case op.Status == Consumed:
			e.Type, e.TxHash = EventUsed, op.Hashes.At(0)
		default:
			e.Reason = op.Reason
		}
	case KindSetFloor:
		e.Type, e.Nonce, e.Attempt = EventFloor, op.Floor, 0
	case KindAllocate:
		e.Type = EventAllocated
		for i := range op.Nonces {
			e.Nonce, e.Attempt = op.Nonces[i], op.Attempts[i]
			to = append(to, e)
		}
		return to
	case kindSweep, kindAlign:
		for i := range op.told {
			t := &op.told[i]
			t.Signer, t.Version, t.At = op.Signer, version, at
		}
		return append(to, op.told...)
	}
	return append(to, e)
}
