package traffic

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/result"
)

// Connect is the name under which a churn's result has opening a connection
// among its methods: acknowledged by the upgrade, refused by an HTTP status.
const Connect = "connect"

// Churn says how visitors come and go: each opens a connection, allocates a few
// times, one after the other, and leaves. They come at even times whatever
// became of those before, and latency counts from when each should have come.
type Churn struct {
	// URLs are the targets, as in Load.
	URLs []string
	// Access is how connections are let in.
	Access access.Access
	// Rate is how many visitors come a second, above 0.
	Rate float64
	// Requests is how many each makes, 1 to 1,000.
	Requests int
	// Abrupt is the share, 0 to 1, that leaves without a close: by a reset.
	Abrupt float64
	// MaxOpen is how many may be there at a time; one that comes while they are
	// is turned away and counted as unsent. 1 to 1,000,000.
	MaxOpen int
	// Signers are the accounts they allocate of.
	Signers Signers
	// Duration is how long visitors come, all of it measured.
	Duration time.Duration

	// Progress, BeginMeasure and EndMeasure are as in Load.
	Progress                 func(result.Second)
	BeginMeasure, EndMeasure func()
}

// Validate returns a *FieldError for the first field that breaks its rule.
func (c *Churn) Validate() error {
	return validate(c.URLs, []rule{
		{"Rate", !(c.Rate > 0 && c.Rate <= 1e6), "must be above 0 and at most 1000000 connections a second"},
		{"Requests", outside(c.Requests, 1, 1000), "must be 1 to 1000"},
		{"Abrupt", !(c.Abrupt >= 0 && c.Abrupt <= 1), "must be 0 to 1"},
		{"MaxOpen", outside(c.MaxOpen, 1, maxConnections), "must be 1 to 1000000"},
		{"Signers", outside(c.Signers.Count, 1, maxSigners), "must be 1 to 1000000000"},
		{"Duration", c.Duration <= 0, "must be above 0"},
	})
}

type churner struct {
	Churn
	clock    clock
	meter    *meter
	slots    chan struct{}
	opened   atomic.Int64
	visitors sync.WaitGroup
	seconds  seconds

	lost tallies

	mu      sync.Mutex // guards connect
	connect *figures
}

// Run lets visitors come and go, and returns once the last has left. When ctx
// ends the result is what was measured until then, Interrupted, without an error.
// The first visitor must be let in: an error of its connection is the run's.
func (c Churn) Run(ctx context.Context) (*result.Run, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	first, err := dial(ctx, c.URLs[0], c.Access, 0)
	if err != nil {
		return nil, err
	}
	first.goodbye()
	first.conn.Close()
	started := time.Now()
	r := &churner{
		Churn: c, clock: clock{started}, meter: newMeter(), slots: make(chan struct{}, c.MaxOpen),
		connect: newFigures(),
	}
	r.seconds = seconds{meter: r.meter, clock: r.clock, tell: c.Progress}
	visits, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	r.meter.begin.Store(0)
	call(c.BeginMeasure)
	r.clock.pace(ctx, c.Rate, c.Duration, r.seconds.end, func(k int, due time.Duration) { r.letIn(visits, k, due) })
	measured := r.clock.now()
	r.leave(ctx.Err() != nil, stop)
	call(c.EndMeasure)
	res := r.result(started, measured)
	res.Interrupted = ctx.Err() != nil
	return res, nil
}

// leave waits until all visitors have left. After a while stop ends their
// visits.
func (r *churner) leave(interrupted bool, stop func()) {
	grace := drainGrace
	if interrupted {
		grace = interruptGrace
	}
	abandon := time.AfterFunc(grace, stop)
	defer abandon.Stop()
	r.visitors.Wait()
	r.seconds.end()
}

// letIn starts the k-th visitor, if there is a free slot.
func (r *churner) letIn(ctx context.Context, k int, due time.Duration) {
	select {
	case r.slots <- struct{}{}:
	default:
		r.meter.shard(k).leave(due, r.Requests)
		return
	}
	r.visitors.Go(func() {
		defer func() { <-r.slots }()
		if err := r.visit(ctx, k, due); err != nil {
			r.lost.add(reason(err))
		}
	})
}

// visit is one visitor, who should have come at due. The error is how its
// connection ended before it left.
func (r *churner) visit(ctx context.Context, k int, due time.Duration) error {
	s, err := dial(ctx, r.URLs[k%len(r.URLs)], r.Access, 0)
	r.connected(due, err)
	if err != nil {
		r.meter.shard(k).fail(due, r.Requests) // nobody will answer them
		return nil
	}
	defer s.conn.Close()
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	rng := rand.New(rand.NewPCG(uint64(r.Signers.Base), uint64(k)))
	for i := range r.Requests {
		if err := r.request(s, r.meter.shard(k), r.Signers.Name(rng.IntN(r.Signers.Count))); err != nil {
			r.meter.shard(k).fail(r.clock.now(), r.Requests-i)
			return err
		}
	}
	if rng.Float64() < r.Abrupt {
		s.reset()
		return nil
	}
	s.goodbye()
	return nil
}

func (r *churner) connected(due time.Duration, err error) {
	took := r.clock.now() - due
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.connect.refused[refusedUpgrade(err)]++
		return
	}
	r.opened.Add(1)
	// The value is within the histogram's range, the only error there is.
	r.connect.latency.RecordValue(micros(took))
}

// refusedUpgrade is the HTTP status that came instead of an upgrade, or why
// nothing came.
func refusedUpgrade(err error) string {
	_, status, ok := strings.Cut(err.Error(), websocket.ErrBadHandshake.Error()+": ")
	if ok && errors.Is(err, websocket.ErrBadHandshake) {
		return status
	}
	return reason(err)
}

func (r *churner) request(s *socket, shard *shard, signer string) error {
	due := r.clock.now()
	s.conn.SetDeadline(time.Now().Add(drainGrace))
	rep, err := s.ask(allocation(signer))
	switch {
	case err != nil:
		return err
	case rep.failed:
		shard.refuse(Allocate, due, rep.refusal())
	default:
		shard.acknowledge(Allocate, due, r.clock.now(), 1)
	}
	return nil
}

func (r *churner) result(started time.Time, measured time.Duration) *result.Run {
	res := &result.Run{
		Command: "churn", Started: started.UTC(), Targets: r.URLs,
		Load: result.Load{
			MaxOpen: r.MaxOpen, Inflight: 1, Rate: r.Rate * float64(r.Requests),
			Signers: r.Signers.Count, SignerBase: r.Signers.Base, Distribution: r.Signers.String(),
			Duration: r.Duration.Seconds(),
		},
		Seconds: measured.Seconds(), Opened: r.opened.Load(), Lost: r.lost.all(),
	}
	r.meter.report(res)
	res.Methods[Connect] = result.Method{
		Acknowledged: r.connect.latency.TotalCount(), Refused: r.connect.refused, LatencyMs: summary(r.connect.latency),
	}
	return res
}

// seconds tells of each second of a measured time. It belongs to one goroutine.
type seconds struct {
	meter *meter
	clock clock
	tell  func(result.Second) // nil: nobody is told
	at    time.Duration       // when the one began that has not ended
}

func (s *seconds) end() {
	now := s.clock.now()
	second := s.meter.endSecond(s.at, now-s.at)
	s.at = now
	if s.tell != nil {
		s.tell(second)
	}
}

// pace calls next for each of the events that come at a rate a second, with its
// number from 0 and the time of the clock when it is due, and second after each
// second. It returns at the time end, or when ctx ends. An event that it comes
// too late for is called at once, with the time when it was due.
func (c clock) pace(ctx context.Context, rate float64, end time.Duration, second func(), next func(k int, due time.Duration)) {
	seconds := time.NewTicker(time.Second)
	defer seconds.Stop()
	wake := time.NewTimer(0)
	defer wake.Stop()
	for k := 0; ; {
		due := time.Duration(float64(k) / rate * float64(time.Second))
		wake.Reset(max(0, min(due, end)-c.now()))
		select {
		case <-ctx.Done():
			return
		case <-seconds.C:
			second()
		case <-wake.C:
			if due >= end {
				return
			}
			next(k, due)
			k++
		}
	}
}
