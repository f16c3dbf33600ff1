package traffic

import (
	"math"
	"runtime"
	"sync/atomic"
	"time"
)

const (
	// minPause is the shortest time a scheduler sleeps: what falls due meanwhile
	// leaves together, late by no more than that. Waking for every request would
	// cost more than the requests.
	minPause = 200 * time.Microsecond
	// maxPause is the longest, after which it hears that the load has ended.
	maxPause = 5 * time.Millisecond
	// catchUp is how long a scheduler that is late when the load ends may still
	// send what was due before.
	catchUp = 100 * time.Millisecond
)

// scheduler sends every step-th burst of an open loop, from one on, at even times.
// All bursts together take the connections in turn. Its goroutine runs loop.
type scheduler struct {
	clients  []atomic.Pointer[client] // of the load; nil inside until the connection is open
	from     int
	step     int
	inflight int
	shard    *shard
	first    time.Duration // when the first burst of the load is due
	interval float64       // nanoseconds between two bursts of the load
	clock    clock
	quit     <-chan struct{}     // closed: the load has ended
	ended    *atomic.Int64       // when, by the clock; set before
	pause    func(time.Duration) // loop's own if nil
}

// pauser sleeps for short times, exactly. It belongs to one goroutine, which
// closes it.
type pauser struct {
	sleep func(time.Duration)
	close func()
}

// schedulers divides the load among one for each processor, whose first burst is
// due at begin.
func (r *runner) schedulers(begin time.Duration) []*scheduler {
	n := min(runtime.GOMAXPROCS(0), len(r.clients))
	interval := float64(r.load.Inflight) / r.load.Rate * float64(time.Second) // of the whole load
	all := make([]*scheduler, n)
	for i := range all {
		all[i] = &scheduler{
			clients: r.clients, from: i, step: n, inflight: r.load.Inflight, shard: r.meter.shard(i),
			first: begin, interval: interval,
			clock: r.clock, quit: r.quit, ended: &r.endedAt,
		}
	}
	return all
}

func (s *scheduler) loop() {
	if s.pause == nil {
		p := newPauser()
		defer p.close()
		s.pause = p.sleep
	}
	for j := s.from; ; j += s.step {
		due := s.due(j)
		if !s.sleepUntil(due) {
			s.finish(j, time.Duration(s.ended.Load()))
			return
		}
		s.offer(j, due)
	}
}

// due is when the j-th burst of the load is.
func (s *scheduler) due(j int) time.Duration {
	return s.first + time.Duration(s.interval*float64(j))
}

// finish sends what was due before the end, from the j-th burst on, and counts
// as unsent what it has no time for.
func (s *scheduler) finish(j int, end time.Duration) {
	for ; s.due(j) < end; j += s.step {
		if s.clock.now() > end+catchUp {
			left := math.Ceil(float64(end-s.due(j)) / (s.interval * float64(s.step)))
			s.shard.leave(s.due(j), int(left)*s.inflight)
			return
		}
		s.offer(j, s.due(j))
	}
}

// offer gives the j-th burst to the connection whose turn it is. While that is
// not open yet its share is not part of the load; when it has ended the next one
// takes it over, so that the rate stays.
func (s *scheduler) offer(j int, due time.Duration) {
	for i := range s.clients {
		c := s.clients[(j+i)%len(s.clients)].Load()
		if c == nil || c.offer(due) {
			return
		}
	}
	s.shard.leave(due, s.inflight)
}

// sleepUntil returns true at the time due, or as soon as it can after that, and
// false when quit is closed.
func (s *scheduler) sleepUntil(due time.Duration) bool {
	for {
		select {
		case <-s.quit:
			return false
		default:
		}
		left := due - s.clock.now()
		if left <= 0 {
			return true
		}
		s.pause(min(max(left, minPause), maxPause))
	}
}

// queue gives out its oldest first. It uses its room again.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(item T) {
	if q.head > len(q.items)/2 {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) pop() (oldest T, ok bool) {
	if q.len() == 0 {
		return oldest, false
	}
	oldest = q.items[q.head]
	q.head++
	return oldest, true
}

// backlog is the times of bursts that are due and wait.
type backlog struct{ queue[time.Duration] }

// push reports false, and does nothing, when there are too many.
func (b *backlog) push(due time.Duration) bool {
	if b.len() >= maxBacklog {
		return false
	}
	b.queue.push(due)
	return true
}

// holds are the last nonces handed out to a connection.
type holds struct {
	limit int // that are remembered
	queue[hold]
}

// push forgets the oldest where there is no room.
func (h *holds) push(held hold) {
	if h.len() == h.limit {
		h.queue.pop()
	}
	h.queue.push(held)
}

// pop returns the oldest that is still held at the time now.
func (h *holds) pop(now time.Duration) (hold, bool) {
	for {
		if oldest, ok := h.queue.pop(); !ok || now < oldest.until {
			return oldest, ok
		}
	}
}
