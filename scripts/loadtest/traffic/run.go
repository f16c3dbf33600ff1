package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/wait"
)

const (
	dialers = 64 // connections being opened at a time
	// drainGrace is how long the answers still under way at the end are waited
	// for, and interruptGrace the same when somebody waits for the load to end.
	drainGrace     = 10 * time.Second
	interruptGrace = time.Second
	// eventGrace is how long events are waited for after the last answer.
	eventGrace = 2 * time.Second
	eventPoll  = 10 * time.Millisecond
)

// ErrAllLost says that no connection was left before the load was over.
var ErrAllLost = errors.New("every connection was lost")

var (
	errInterrupted = errors.New("interrupted")
	errNoAnswer    = errors.New("no answer when the load was over")
)

type runner struct {
	load   Load
	clock  clock
	meter  *meter
	causes *causes // nil without subscribers

	clients []atomic.Pointer[client] // nil inside until the connection is open
	subs    []*subscriber
	quit    chan struct{} // closed: what is due from now on does not leave
	endedAt atomic.Int64  // when that was, by the clock; set before
	nobody  chan struct{} // closed: every connection has ended

	opened    atomic.Int64   // connections
	ended     atomic.Int64   // clients
	listening atomic.Int64   // subscribers that have not ended
	reading   sync.WaitGroup // clients
	receiving sync.WaitGroup // subscribers
	sending   sync.WaitGroup // schedulers

	measuring bool // the measured time has begun
	measured  time.Duration
	lastAt    time.Duration // begin of the second that has not ended, since the measured time began
}

// Run makes the load and measures it; see the package for what it promises. When
// ctx ends, the result is what was measured until then, Interrupted, without an
// error. When every connection is lost, the result comes with an error that is
// ErrAllLost. A load that is not valid, and one whose connections cannot be
// opened, has no result.
func (l Load) Run(ctx context.Context) (*result.Run, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	started := time.Now()
	r := &runner{
		load: l, clock: clock{started}, meter: newMeter(), clients: make([]atomic.Pointer[client], l.Connections),
		quit: make(chan struct{}), nobody: make(chan struct{}),
	}
	if l.Subscribers > 0 {
		r.causes = newCauses(l.Subscribers, l.Signers)
	}
	err := r.run(ctx)
	r.stop(err)
	if err != nil && !errors.Is(err, errInterrupted) && !errors.Is(err, ErrAllLost) {
		return nil, err
	}
	res := r.result(started)
	if errors.Is(err, errInterrupted) {
		res.Interrupted, err = true, nil
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, maxOften(res.Lost))
	}
	return res, err
}

// run opens everything, and returns when the measured time is over or cannot be.
func (r *runner) run(ctx context.Context) error {
	err := r.openSubscribers(ctx)
	if err == nil {
		err = r.open(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	if err := r.wait(ctx, r.clock.now()+r.load.Warmup); err != nil {
		return err
	}
	return r.measure(ctx)
}

func (r *runner) openSubscribers(ctx context.Context) error {
	for i := range r.load.Subscribers {
		s, err := subscribe(ctx, r, r.url(i), i)
		if err != nil {
			return err
		}
		r.opened.Add(1)
		r.subs = append(r.subs, s)
		r.listening.Add(1)
		r.receiving.Go(func() {
			defer r.listening.Add(-1)
			s.loop()
		})
	}
	return nil
}

func (r *runner) url(i int) string { return r.load.URLs[i%len(r.load.URLs)] }

// open opens all connections and starts what sends. With a ramp-up each begins
// as soon as it is open, else all together.
func (r *runner) open(ctx context.Context) error {
	begin := r.clock.now()
	if r.load.RampUp > 0 {
		r.startSchedulers(begin)
	}
	dialing, dialCtx := errgroup.WithContext(ctx)
	dialing.SetLimit(dialers)
	for i := range r.clients {
		at := begin + time.Duration(float64(r.load.RampUp)*float64(i)/float64(len(r.clients)))
		if !r.sleepUntil(dialCtx, at) {
			break
		}
		dialing.Go(func() error { return r.openOne(dialCtx, i) })
	}
	if err := dialing.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r.load.RampUp == 0 {
		for i := range r.clients {
			r.start(r.clients[i].Load())
		}
		r.startSchedulers(r.clock.now())
	}
	return nil
}

func (r *runner) openOne(ctx context.Context, i int) error {
	s, err := dial(ctx, r.url(i), r.load.Access, r.load.burstBytes())
	if err != nil {
		return err
	}
	c := newClient(r, s, i)
	r.opened.Add(1)
	r.clients[i].Store(c)
	if r.load.RampUp > 0 {
		r.start(c)
	}
	return nil
}

func (r *runner) start(c *client) {
	r.reading.Go(func() {
		c.loop()
		if r.ended.Add(1) == int64(len(r.clients)) {
			close(r.nobody)
		}
	})
}

func (r *runner) startSchedulers(begin time.Duration) {
	if r.load.Rate == 0 {
		return
	}
	for _, s := range r.schedulers(begin) {
		r.sending.Go(s.loop)
	}
}

// sleepUntil returns true at a time of the clock, and false when ctx ends.
func (r *runner) sleepUntil(ctx context.Context, at time.Duration) bool {
	return ctx.Err() == nil && (at <= r.clock.now() || r.wait(ctx, at) == nil)
}

// wait returns at a time of the clock, or with an error when nobody is left or
// ctx ends.
func (r *runner) wait(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(at - r.clock.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.nobody:
		return ErrAllLost
	case <-ctx.Done():
		return errInterrupted
	}
}

func (r *runner) measure(ctx context.Context) (err error) {
	begin := r.clock.now()
	r.meter.begin.Store(int64(begin))
	r.measuring = true
	call(r.load.BeginMeasure)
	for {
		next := min(r.lastAt+time.Second, r.load.Duration)
		err = r.wait(ctx, begin+next)
		r.measured = r.clock.now() - begin
		if err != nil || next == r.load.Duration {
			return err
		}
		second := r.meter.endSecond(r.lastAt, next-r.lastAt)
		r.lastAt = next
		if r.load.Progress != nil {
			r.load.Progress(second)
		}
	}
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// stop ends the load: nothing leaves any more, what is unanswered is waited for,
// and then everything is closed and every goroutine has ended. why is how the
// run ended.
func (r *runner) stop(why error) {
	grace := drainGrace
	if why != nil {
		grace = interruptGrace
	}
	grace = cmp.Or(r.load.grace, grace)
	r.endedAt.Store(int64(r.clock.now()))
	close(r.quit)
	r.each(func(c *client) { c.conn.SetWriteDeadline(time.Now().Add(grace)) })
	r.sending.Wait()
	r.each((*client).stop)
	abandon := time.AfterFunc(grace, func() {
		r.each(func(c *client) { c.abandon(errNoAnswer) })
	})
	if r.measuring {
		call(r.load.EndMeasure)
	}
	r.reading.Wait()
	abandon.Stop()
	r.each(func(c *client) { c.conn.Close() }) // those that never started
	if why == nil {
		r.awaitEvents()
	}
	for _, s := range r.subs {
		s.stop()
	}
	r.receiving.Wait()
	if r.causes != nil {
		r.causes.end()
	}
	if r.measuring {
		r.meter.endSecond(r.lastAt, r.measured-r.lastAt)
	}
}

func (r *runner) each(f func(*client)) {
	for i := range r.clients {
		if c := r.clients[i].Load(); c != nil {
			f(c)
		}
	}
}

// awaitEvents returns when every event that is known to come has come, or has
// taken too long.
func (r *runner) awaitEvents() {
	if r.causes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), eventGrace)
	defer cancel()
	_ = wait.Until(ctx, eventPoll, func() (bool, error) { return r.listening.Load() == 0 || !r.causes.pending(), nil })
}

// result sums up after stop.
func (r *runner) result(started time.Time) *result.Run {
	res := &result.Run{
		Command: "run", Started: started.UTC(), Targets: r.load.URLs, Load: r.load.describe(),
		Seconds: r.measured.Seconds(), Opened: r.opened.Load(), Lost: make(map[string]int64),
	}
	r.meter.report(res)
	if r.causes != nil {
		res.Events = r.meter.events()
	}
	r.each(func(c *client) {
		if err := c.lostFor(); err != nil {
			res.Lost[reason(err)]++
		}
	})
	for _, s := range r.subs {
		if err := s.lostFor(); err != nil {
			res.Lost[err.Error()]++
		}
	}
	return res
}

func maxOften(reasons map[string]int64) (most string) {
	for reason, n := range reasons {
		if n > reasons[most] {
			most = reason
		}
	}
	return most
}
