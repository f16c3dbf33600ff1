package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/result"
)

const (
	drainGrace     = 10 * time.Second // for the answers still under way at the end
	interruptGrace = time.Second      // the same of a load that ends before its time
	eventGrace     = 2 * time.Second  // for events after the last answer
	eventPoll      = 10 * time.Millisecond
)

// ErrAllLost says that no connection was left before the load was over.
var ErrAllLost = errors.New("every connection was lost")

type runner struct {
	load    Load
	meter   *meter
	causes  *causes // nil without subscribers
	clients []*client
	subs    []*goclient.Client
	noticed noticed       // by subscribers
	slow    *slowClients  // nil: there are none
	pacer   *pacer        // nil in a closed loop
	nobody  chan struct{} // closed: every client has ended

	reading   sync.WaitGroup // clients
	sending   sync.WaitGroup // the pacer
	receiving sync.WaitGroup // subscribers
	measured  time.Duration
	lost      map[string]int64 // connections, by why
}

// Run makes the load and measures it. When ctx ends, the result is what was measured until then, Interrupted, without an error; when every
// connection is lost, it comes with ErrAllLost. A load whose connections cannot be opened has no result.
func (l Load) Run(ctx context.Context) (*result.Run, error) {
	r := &runner{load: l, meter: newMeter(), nobody: make(chan struct{}), lost: make(map[string]int64)}
	err := r.open(ctx)
	if err == nil {
		r.start()
		err = r.measure(ctx)
	}
	interrupted := ctx.Err() != nil
	r.stop(interrupted || err != nil)
	if !interrupted && err != nil && !errors.Is(err, ErrAllLost) {
		return nil, err
	}
	res := r.result()
	if res.Interrupted = interrupted; interrupted || err == nil {
		return res, nil
	}
	return res, fmt.Errorf("%w: %v", err, res.Lost)
}

func (r *runner) open(ctx context.Context) (err error) {
	if r.load.Slow.Clients > 0 {
		if r.slow, err = startSlow(ctx, r.load); err != nil {
			return err
		}
	}
	if r.load.Subscribers > 0 {
		r.causes = newCauses(r.meter, r.load.Subscribers)
		if r.subs, err = openAll(ctx, r.load.Subscribers, r.subscribe); err != nil {
			return err
		}
	}
	begin := r.meter.now()
	r.clients, err = openAll(ctx, r.load.Connections, func(ctx context.Context, i int) (*client, error) {
		at := begin + time.Duration(float64(r.load.RampUp)*float64(i)/float64(r.load.Connections))
		if err := r.wait(ctx, at); err != nil {
			return nil, err
		}
		return r.openClient(ctx, i)
	})
	return err
}

// start has all connections begin together.
func (r *runner) start() {
	for _, c := range r.clients {
		r.reading.Go(c.loop)
	}
	go func() {
		r.reading.Wait()
		close(r.nobody)
	}()
	if r.load.Rate > 0 {
		r.pacer = &pacer{
			meter: r.meter, first: r.meter.now(), interval: float64(r.load.Inflight) / r.load.Rate * float64(time.Second),
			next: r.offer, left: func(due time.Duration, n int) { r.meter.leave(due, n*r.load.Inflight) },
		}
		r.sending.Go(r.pacer.loop)
	}
}

// offer gives the k-th burst to the connection whose turn it is. When that has ended the next one takes it over, so that the rate stays.
func (r *runner) offer(k int, due time.Duration) {
	for i := range r.clients {
		if r.clients[(k+i)%len(r.clients)].offer(due) {
			return
		}
	}
	r.meter.leave(due, r.load.Inflight)
}

// wait returns at a time of the meter, or with an error when no connection is left or ctx ends.
func (r *runner) wait(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(at - r.meter.now())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-r.nobody:
		return ErrAllLost
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// measure returns when the measured time is over or cannot be.
func (r *runner) measure(ctx context.Context) error {
	if err := r.wait(ctx, r.meter.now()+r.load.Warmup); err != nil {
		return err
	}
	begin := r.meter.now()
	r.meter.measure(begin)
	if r.load.BeginMeasure != nil {
		r.load.BeginMeasure()
	}
	if r.load.Slow.Misbehave {
		close(r.slow.begun)
	}
	if r.load.EndMeasure != nil {
		defer r.load.EndMeasure()
	}
	for next := time.Second; ; next += time.Second {
		err := r.wait(ctx, begin+min(next, r.load.Duration))
		r.measured = r.meter.now() - begin
		if err != nil || next >= r.load.Duration {
			return err
		}
		second := r.meter.endSecond(begin + next)
		if r.load.Progress != nil {
			r.load.Progress(second)
		}
	}
}

// stop lets nothing leave any more, waits for what is unanswered, closes everything, and waits for every goroutine.
func (r *runner) stop(early bool) {
	grace := drainGrace
	if early {
		grace = interruptGrace
	}
	until := time.Now().Add(cmp.Or(r.load.grace, grace))
	if r.pacer != nil {
		r.pacer.end()
		r.sending.Wait()
	}
	for _, c := range r.clients {
		c.stop(until)
	}
	if r.clients != nil {
		<-r.nobody
	}
	if r.causes != nil && !early {
		for begin := time.Now(); r.causes.pending() && time.Since(begin) < eventGrace; {
			time.Sleep(eventPoll)
		}
	}
	for why, n := range r.noticed.lost.all() { // before they are closed
		r.lost["subscriber: "+why] = n
	}
	for _, s := range r.subs {
		s.Close() // it returns nil
	}
	r.receiving.Wait()
	if r.causes != nil {
		r.causes.end()
	}
	if r.slow != nil {
		r.slow.stop()
	}
	if r.measured > 0 {
		r.meter.endSecond(r.meter.begin + r.measured)
	}
}

func (r *runner) result() *result.Run {
	res := &result.Run{
		Command: "run", Started: r.meter.start.UTC(), Targets: r.load.URLs, Load: r.load.describe(),
		Seconds: r.measured.Seconds(), Opened: int64(len(r.clients) + len(r.subs)), Lost: r.lost,
	}
	r.meter.report(res)
	if r.load.Slow.Misbehave {
		res.Slow = &r.slow.counts
	}
	for _, c := range r.clients {
		if c.lost != nil {
			res.Lost[reason(c.lost)]++
		}
	}
	return res
}

const (
	// minPause is the shortest time a pacer sleeps. Waking for every request would cost more than the requests.
	minPause = 200 * time.Microsecond
	// maxPause is the longest, after which it hears that the load has ended.
	maxPause = 5 * time.Millisecond
	// catchUp is how long a pacer that is late when the load ends may still send what was due before.
	catchUp = 100 * time.Millisecond
)

// pacer tells of what comes at even times. Its goroutine runs loop.
type pacer struct {
	meter    *meter
	first    time.Duration // when the first is due
	interval float64       // nanoseconds between two
	next     func(k int, due time.Duration)
	left     func(due time.Duration, n int) // so many from then on came too late
	ended    atomic.Int64                   // when the load ended; 0: it has not
	pause    func(time.Duration)            // nil: the system's
}

func (p *pacer) end() { p.ended.CompareAndSwap(0, max(1, int64(p.meter.now()))) }

func (p *pacer) loop() {
	if p.pause == nil {
		sleep, done := newPauser()
		defer done()
		p.pause = sleep
	}
	for k := 0; ; k++ {
		due := p.first + time.Duration(p.interval*float64(k))
		if end := p.sleepUntil(due); end > 0 {
			if due >= end {
				return
			}
			if p.meter.now() > end+catchUp {
				p.left(due, int(math.Ceil(float64(end-due)/p.interval)))
				return
			}
		}
		p.next(k, due)
	}
}

// sleepUntil returns 0 at the time due, or as soon as it can after that, and when the load ended if it has.
func (p *pacer) sleepUntil(due time.Duration) (end time.Duration) {
	for {
		left := due - p.meter.now()
		if end := p.ended.Load(); end > 0 || left <= 0 {
			return time.Duration(end)
		}
		p.pause(min(max(left, minPause), maxPause))
	}
}
