// Package postdb runs what follows a commit: publishing and pushing events.
// Never SQL, and never anything a reply waits for.
//
// Work is queued in lanes, one for each shard of signers. It promises: the work
// of one lane runs in the order it was submitted and never two at a time, so that
// the events of a signer keep the order of its commits; lanes run beside each
// other; Submit never blocks. A lane holds at most its share of the places, and
// work that never returns occupies one worker, not the other lanes, as long as
// fewer lanes are stuck than there are workers. What it does not promise: that
// what was committed is published; a process may die in between.
//
// A place is one piece of work that waits or runs. A full stage is noticed when
// the place is asked for: by the admission of a request, before its work
// (server_busy, stage postdb), or by events nobody reserved for, which are
// dropped and counted by their sender.
//
// The pool owns its workers; Stop runs what is queued and ends them.
package postdb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"noncegate/backpressure"
	"noncegate/internal/taskpool"
)

// Config is the size of the pool.
type Config struct {
	Workers int // lanes that run at the same time; with one, a stuck lane stops all
	Queue   int // places over all lanes
	Lanes   int // as many as there are shards
	// LaneShare is the most places one lane may hold. Below Queue, so that a
	// stuck lane leaves room for the others.
	LaneShare int
	// Queued observes how long each piece of work waited from its queuedAt until
	// it ran. It must not block. Nil: nobody wants to know.
	Queued func(time.Duration)
}

// validate checks what taskpool cannot know.
func (c Config) validate() error {
	if c.Lanes < 1 {
		return fmt.Errorf("post-DB pool: %d lanes, at least 1 is needed", c.Lanes)
	}
	if c.LaneShare < 1 || c.LaneShare > c.Queue {
		return fmt.Errorf("post-DB pool: a lane's share of %d must be between 1 and the queue of %d", c.LaneShare, c.Queue)
	}
	return nil
}

// Pool is the bounded pool for work after commits.
type Pool struct {
	tasks  *taskpool.Pool
	queued func(time.Duration)
	lanes  []Lane
}

// New starts the pool. An error names the setting that is wrong.
func New(cfg Config, log *slog.Logger) (*Pool, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	tasks, err := taskpool.New(taskpool.Config{Name: "postdb", Workers: cfg.Workers, Capacity: cfg.Queue}, log)
	if err != nil {
		return nil, err
	}
	p := &Pool{tasks: tasks, queued: cfg.Queued, lanes: make([]Lane, cfg.Lanes)}
	if p.queued == nil {
		p.queued = func(time.Duration) {}
	}
	for i := range p.lanes {
		p.lanes[i].pool = p
		p.lanes[i].share = backpressure.NewShare(cfg.LaneShare)
	}
	return p, nil
}

// Lane returns lane i, from 0. It lives as long as the pool.
func (p *Pool) Lane(i int) *Lane { return &p.lanes[i] }

// Stop refuses new places, runs what is queued and ends the workers. When ctx
// ends first it says how much was left. It may be called again.
func (p *Pool) Stop(ctx context.Context) error { return p.tasks.Stop(ctx) }

// Capacity is the number of places.
func (p *Pool) Capacity() int { return p.tasks.Capacity() }

// Reserved is the number of places taken by promised, waiting and running work.
func (p *Pool) Reserved() int { return p.tasks.Reserved() }

// Running is the number of workers that have a lane.
func (p *Pool) Running() int { return p.tasks.Running() }

// Panics is the number of pieces of work that panicked.
func (p *Pool) Panics() uint64 { return p.tasks.Panics() }

// turn is how many pieces of work a lane runs before the other lanes have a turn.
const turn = 16

// Lane is a chain of work. Safe for concurrent use; the order is that of the
// calls of Submit.
type Lane struct {
	pool  *Pool
	share *backpressure.Share

	mu     sync.Mutex // guards what follows; never held while work runs
	jobs   []job      // bounded by the share
	active bool       // a task of this lane is queued or runs; never two
}

// job is one piece of work.
type job struct {
	run      func()
	queuedAt time.Time
}

// TryReserve takes a place for one Submit, if lane and pool have one.
func (l *Lane) TryReserve() bool { return l.pool.tasks.TryReserve(l.share, 1) }

// Unreserve gives back a place that was not used.
func (l *Lane) Unreserve() { l.pool.tasks.Unreserve(l.share, 1) }

// Submit queues fn behind the lane's other work. The caller holds a place, which
// is given back when fn has returned or panicked. It does not block.
func (l *Lane) Submit(fn func(), queuedAt time.Time) {
	l.mu.Lock()
	l.jobs = append(l.jobs, job{fn, queuedAt})
	start := !l.active
	l.active = true
	l.mu.Unlock()
	if start {
		l.pool.tasks.Submit((*laneTask)(l))
	}
}

// laneTask is a lane as the pool sees it. Its place is that of any of its jobs.
type laneTask Lane

// Run has the lane's turn. Also after a panic the lane goes on.
func (t *laneTask) Run() {
	l := (*Lane)(t)
	defer l.endTurn()
	for range turn {
		j, ok := l.next()
		if !ok {
			return
		}
		l.runJob(j)
	}
}

// next removes the lane's oldest job.
func (l *Lane) next() (job, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		return job{}, false
	}
	j := l.jobs[0]
	l.jobs[0] = job{}
	l.jobs = l.jobs[1:]
	return j, true
}

// runJob runs one job and gives its place back.
func (l *Lane) runJob(j job) {
	defer l.Unreserve()
	l.pool.queued(time.Since(j.queuedAt))
	j.run()
}

// endTurn queues the lane again if it has work left.
func (l *Lane) endTurn() {
	l.mu.Lock()
	l.active = len(l.jobs) > 0
	again := l.active
	if !again {
		l.jobs = nil
	}
	l.mu.Unlock()
	if again {
		l.pool.tasks.Submit((*laneTask)(l))
	}
}
