package traffic

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	goclient "noncegate/client"
	"noncegate/scripts/loadtest/result"
	"noncegate/wire"
)

// maxLatency is the longest that is told apart.
const maxLatency = 10 * time.Minute

// meter counts the requests that were due in the measured time, second by second. Times are those since its start.
type meter struct {
	start time.Time

	mu       sync.Mutex            // guards what follows
	begin    time.Duration         // of the measured time
	second   [methodCount]*figures // since the last second ended; nil until there is one
	failed   int64                 // since then
	unsent   int64                 // since the begin, as all that follows
	total    [methodCount]*figures
	timeline []result.Second
	arrived  *hdrhistogram.Histogram // at subscribers
	missed   int64
	unknown  int64 // arrivals whose request is not known
}

// figures are what requests of one method were answered.
type figures struct {
	latency *hdrhistogram.Histogram // microseconds, of the acknowledged
	refused map[string]int64        // by reason
}

func newFigures() *figures { return &figures{newHistogram(), make(map[string]int64)} }

// newHistogram tells times apart that differ by a thousandth.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency.Microseconds(), 3) }

// record counts a time that lies within the histogram's range, so that there is no error.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	h.RecordValue(min(max(d, time.Microsecond), maxLatency).Microseconds())
}

func newMeter() *meter {
	m := &meter{start: time.Now(), begin: math.MaxInt64, arrived: newHistogram()}
	for i := range m.total {
		m.total[i] = newFigures()
	}
	return m
}

func (m *meter) now() time.Duration { return time.Since(m.start) }

func (m *meter) measure(from time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin = from
}

// count calls one, under the lock, if what was due then belongs to the measured time.
func (m *meter) count(due time.Duration, one func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if due >= m.begin {
		one()
	}
}

func (m *meter) figuresLocked(method Method) *figures {
	if m.second[method] == nil {
		m.second[method] = newFigures()
	}
	return m.second[method]
}

func (m *meter) acknowledge(method Method, due, at time.Duration) {
	m.count(due, func() { record(m.figuresLocked(method).latency, at-due) })
}

func (m *meter) refuse(method Method, due time.Duration, reason string) {
	m.count(due, func() { m.figuresLocked(method).refused[reason]++ })
}

func (m *meter) fail(due time.Duration, n int)  { m.count(due, func() { m.failed += int64(n) }) }
func (m *meter) leave(due time.Duration, n int) { m.count(due, func() { m.unsent += int64(n) }) }
func (m *meter) arrive(due, at time.Duration)   { m.count(due, func() { record(m.arrived, at-due) }) } // an event of a request due then
func (m *meter) unmatch(at time.Duration)       { m.count(at, func() { m.unknown++ }) }
func (m *meter) miss(at time.Duration, n int64) { m.count(at, func() { m.missed += n }) } // events that a subscriber is told it missed

// endSecond takes what was counted since the last call, as the second that lasted until then.
func (m *meter) endSecond(until time.Duration) result.Second {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := result.Second{Failed: m.failed}
	if n := len(m.timeline); n > 0 {
		s.At = m.timeline[n-1].At + m.timeline[n-1].Seconds
	}
	s.Seconds = (until - m.begin).Seconds() - s.At
	sum := newHistogram()
	for method, f := range m.second {
		if f != nil {
			sum.Merge(f.latency)
			m.total[method].add(f)
			s.Refused += result.Sum(f.refused)
		}
	}
	m.second, m.failed = [methodCount]*figures{}, 0
	latency := summary(sum)
	s.Acknowledged, s.P50, s.P99 = latency.Count, latency.P50, latency.P99
	m.timeline = append(m.timeline, s)
	return s
}

func (f *figures) add(other *figures) {
	f.latency.Merge(other.latency)
	for reason, n := range other.refused {
		f.refused[reason] += n
	}
}

// summary is a histogram as results show it, in milliseconds.
func summary(h *hdrhistogram.Histogram) result.Latency {
	if h.TotalCount() == 0 {
		return result.Latency{}
	}
	at := func(quantile float64) float64 { return float64(h.ValueAtQuantile(quantile)) / 1000 }
	return result.Latency{
		Count: h.TotalCount(), Mean: h.Mean() / 1000, P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9),
		Max: float64(h.Max()) / 1000,
	}
}

func (m *meter) report(r *result.Run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Methods, r.Timeline, r.Unsent = make(map[string]result.Method), m.timeline, m.unsent
	all := newFigures()
	for method, f := range m.total {
		if f.latency.TotalCount() > 0 || len(f.refused) > 0 {
			all.add(f)
			r.Methods[Method(method).String()] = result.Method{Refused: f.refused, LatencyMs: summary(f.latency)}
		}
	}
	r.Refused, r.LatencyMs = all.refused, summary(all.latency)
	r.Acknowledged = r.LatencyMs.Count
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Acknowledged) / r.Seconds
	}
	for _, s := range m.timeline {
		r.Failed += s.Failed
	}
	if r.Load.Subscribers > 0 {
		latency := summary(m.arrived)
		r.Events = &result.Events{Received: latency.Count + m.unknown, Missed: m.missed, Unmatched: m.unknown, LatencyMs: latency}
	}
}

// tallies are counts by reason. Any goroutine may add to them.
type tallies struct {
	mu     sync.Mutex // guards counts
	counts map[string]int64
}

func (t *tallies) add(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]int64)
	}
	t.counts[why]++
}

func (t *tallies) all() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// eventBuffer is how many events wait for a subscriber's goroutine before some are dropped.
const eventBuffer = 1 << 14

// subscribe opens a client that receives all events, in a goroutine that ends with it.
func (r *runner) subscribe(ctx context.Context, i int) (*goclient.Client, error) {
	url := r.load.URLs[i%len(r.load.URLs)]
	c, err := goclient.Dial(ctx, url, r.load.Access.client(goclient.Config{EventBuffer: eventBuffer, Logger: r.noticed.logger()}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	sub, err := c.Subscribe(ctx)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("subscribe at %s: %w", url, err)
	}
	r.receiving.Go(func() {
		for e := range sub.Events() {
			r.receive(e)
		}
	})
	return c, nil
}

// eventTypes are the types that requests of a load cause.
var eventTypes = map[string]Method{wire.EventAllocated: Allocate, wire.EventUsed: MarkUsed, wire.EventReleased: MarkRecyclable}

func (r *runner) receive(e goclient.Event) {
	now := r.meter.now()
	if e.Missed > 0 {
		r.meter.miss(now, e.Missed)
	}
	account, ours := r.load.Signers.accountOf(e.Signer)
	if method, caused := eventTypes[e.Type]; ours && caused {
		r.causes.arrived(event{nonceOf{account, e.Nonce, e.Attempt}, method}, now)
	}
}

// event is what a request causes and a subscriber is told.
type event struct {
	nonceOf
	method Method
}

// causes brings events together with their requests, whichever is told of first. An arrival that is forgotten has no known request.
type causes struct {
	meter       *meter
	subscribers int

	mu    sync.Mutex // guards what follows
	known *simplelru.LRU[event, *cause]
}

// maxCauses bounds what is remembered; each has an arrival a subscriber at most.
const maxCauses = 1 << 19

// cause is an event that is awaited, or whose request is.
type cause struct {
	due   time.Duration // of the request
	known bool          // due is
	seen  int           // arrivals so far
	early []time.Duration
}

func newCauses(m *meter, subscribers int) *causes {
	c := &causes{meter: m, subscribers: subscribers}
	c.known, _ = simplelru.NewLRU(maxCauses, func(_ event, entry *cause) { // fails for a size below 1
		for _, at := range entry.early {
			m.unmatch(at)
		}
	})
	return c
}

// caused says when the request that caused e was due.
func (c *causes) caused(e event, due time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entryLocked(e)
	entry.due, entry.known = due, true
	for _, at := range entry.early {
		c.meter.arrive(due, at)
	}
	entry.early = nil
	c.forgetLocked(e, entry)
}

func (c *causes) arrived(e event, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entryLocked(e)
	entry.seen++
	if entry.known {
		c.meter.arrive(entry.due, at)
	} else {
		entry.early = append(entry.early, at)
	}
	c.forgetLocked(e, entry)
}

func (c *causes) entryLocked(e event) *cause {
	entry, ok := c.known.Peek(e)
	if !ok {
		entry = new(cause)
		c.known.Add(e, entry)
	}
	return entry
}

// forgetLocked forgets a cause that every subscriber has seen.
func (c *causes) forgetLocked(e event, entry *cause) {
	if entry.known && entry.seen >= c.subscribers {
		c.known.Remove(e)
	}
}

// pending reports whether a request is known whose event has not come to all.
func (c *causes) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.known.Values(), func(entry *cause) bool { return entry.known })
}

// end counts the events whose request was never found.
func (c *causes) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Purge()
}
