package traffic

import (
	"maps"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"noncegate/scripts/loadtest/result"
)

// maxLatency is the longest that is told apart.
const maxLatency = 10 * time.Minute

// never is a time of the clock that no run reaches.
const never = time.Duration(math.MaxInt64)

// clock is the time since a run began.
type clock struct{ start time.Time }

func (c clock) now() time.Duration { return time.Since(c.start) }

// meter counts the requests that were due from begin on. The connections share
// its shards, few enough that five thousand of them need no histogram each.
type meter struct {
	shards []shard
	begin  atomic.Int64 // a time of the clock; never until the measured time begins

	// Of the goroutine that runs the load.
	total    [methodCount]figures
	timeline []result.Second
}

// shard counts for some of the connections.
type shard struct {
	meter *meter

	mu      sync.Mutex            // guards what follows
	now     [methodCount]*figures // since the last second ended; nil until there is one
	failed  int64                 // since then
	unsent  int64
	arrived arrivals
}

// figures are what requests of one method were answered.
type figures struct {
	latency *hdrhistogram.Histogram // microseconds, of the acknowledged
	refused map[string]int64        // by reason
}

func newFigures() *figures {
	return &figures{latency: newHistogram(), refused: make(map[string]int64)}
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

// arrivals are what subscribers received.
type arrivals struct {
	latency           *hdrhistogram.Histogram // microseconds; nil until there is one
	missed, unmatched int64
}

// newHistogram tells times apart that differ by a thousandth.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), 3)
}

func newMeter() *meter {
	m := &meter{shards: make([]shard, 2*runtime.GOMAXPROCS(0))}
	for i := range m.shards {
		m.shards[i].meter = m
	}
	m.begin.Store(int64(never))
	for i := range m.total {
		m.total[i] = *newFigures()
	}
	return m
}

// shard is where the i-th connection counts.
func (m *meter) shard(i int) *shard { return &m.shards[i%len(m.shards)] }

// counts reports whether what was due then belongs to the measured time.
func (m *meter) counts(due time.Duration) bool { return int64(due) >= m.begin.Load() }

func micros(d time.Duration) int64 {
	return min(max(d, time.Microsecond), maxLatency).Microseconds()
}

func (s *shard) figuresLocked(m Method) *figures {
	if s.now[m] == nil {
		s.now[m] = newFigures()
	}
	return s.now[m]
}

// inTime calls count, which the lock guards, if what was due then belongs to the measured
// time.
func (s *shard) inTime(due time.Duration, count func()) {
	if s.meter.counts(due) {
		s.mu.Lock()
		defer s.mu.Unlock()
		count()
	}
}

// acknowledge counts n results that came at the time now.
func (s *shard) acknowledge(m Method, due, now time.Duration, n int) {
	if n == 0 {
		return
	}
	// The value is within the histogram's range, the only error there is.
	s.inTime(due, func() { s.figuresLocked(m).latency.RecordValues(micros(now-due), int64(n)) })
}

func (s *shard) refuse(m Method, due time.Duration, reason string) {
	s.inTime(due, func() { s.figuresLocked(m).refused[reason]++ })
}

func (s *shard) fail(due time.Duration, n int) { s.inTime(due, func() { s.failed += int64(n) }) }

func (s *shard) leave(due time.Duration, n int) { s.inTime(due, func() { s.unsent += int64(n) }) }

// arrive counts an event whose request was due then.
func (s *shard) arrive(due, at time.Duration) {
	s.inTime(due, func() {
		if s.arrived.latency == nil {
			s.arrived.latency = newHistogram()
		}
		s.arrived.latency.RecordValue(micros(at - due))
	})
}

// unmatch counts an event whose request is not known.
func (s *shard) unmatch(at time.Duration) { s.inTime(at, func() { s.arrived.unmatched++ }) }

// miss counts events that a subscriber is told it missed.
func (s *shard) miss(at time.Duration, n int64) { s.inTime(at, func() { s.arrived.missed += n }) }

// endSecond takes what was counted since the last call, as the second that began
// at and was length long.
func (m *meter) endSecond(at, length time.Duration) result.Second {
	sum := newHistogram()
	second := result.Second{At: at.Seconds(), Seconds: length.Seconds()}
	for i := range m.shards {
		now, failed := m.shards[i].take()
		second.Failed += failed
		for method, f := range now {
			if f == nil {
				continue
			}
			sum.Merge(f.latency)
			m.total[method].add(f)
			for _, n := range f.refused {
				second.Refused += n
			}
		}
	}
	latency := summary(sum)
	second.Acknowledged = latency.Count
	second.P50, second.P99 = latency.P50, latency.P99
	m.timeline = append(m.timeline, second)
	return second
}

// take empties the shard's figures of the present second. What is failed is
// taken too, for the next second counts from 0.
func (s *shard) take() (now [methodCount]*figures, failed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, failed = s.now, s.failed
	s.now, s.failed = [methodCount]*figures{}, 0
	return now, failed
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
	ms := func(micros int64) float64 { return float64(micros) / 1000 }
	return result.Latency{
		Count: h.TotalCount(), Mean: h.Mean() / 1000,
		P50: ms(h.ValueAtQuantile(50)), P90: ms(h.ValueAtQuantile(90)), P95: ms(h.ValueAtQuantile(95)),
		P99: ms(h.ValueAtQuantile(99)), P999: ms(h.ValueAtQuantile(99.9)), Max: ms(h.Max()),
	}
}

// report fills in what was counted in all seconds together.
func (m *meter) report(r *result.Run) {
	all := newHistogram()
	r.Refused, r.Methods = make(map[string]int64), make(map[string]result.Method)
	for method := range m.total {
		f := &m.total[method]
		if f.latency.TotalCount() == 0 && len(f.refused) == 0 {
			continue
		}
		all.Merge(f.latency)
		for reason, n := range f.refused {
			r.Refused[reason] += n
		}
		r.Methods[Method(method).String()] = result.Method{Refused: f.refused, LatencyMs: summary(f.latency)}
	}
	r.LatencyMs = summary(all)
	r.Acknowledged = r.LatencyMs.Count
	if r.Seconds > 0 {
		r.PerSecond = float64(r.Acknowledged) / r.Seconds
	}
	r.Timeline = m.timeline
	for _, s := range m.timeline {
		r.Failed += s.Failed
	}
	for i := range m.shards {
		r.Unsent += m.shards[i].unsent
	}
}

func (m *meter) events() *result.Events {
	all := newHistogram()
	e := new(result.Events)
	for i := range m.shards {
		a := &m.shards[i].arrived
		if a.latency != nil {
			all.Merge(a.latency)
		}
		e.Missed += a.missed
		e.Unmatched += a.unmatched
	}
	e.LatencyMs = summary(all)
	e.Received = e.LatencyMs.Count + e.Unmatched
	return e
}
