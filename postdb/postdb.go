// Package postdb is the post-commit pool: it publishes and pushes events.
// It never runs SQL, nor anything that a reply waits for.
//
// Work is queued in queues, one for each worker of the service; a signer always uses
// the same one. It promises: the work of one queue runs in the order it was submitted
// and never two at a time, so that the events of a signer keep the order of its
// commits; queues run beside each other; Submit never blocks. A queue holds at most
// its share of the slots, and
// work that never returns occupies one worker, not the other queues, as long as
// fewer queues are stuck than there are workers. It does not promise that every
// commit's events are published; a process may die in between.
//
// A slot is one piece of work that waits or runs. A caller learns that the stage is
// full when it asks for a slot: the admission of a request, before its work
// (server_busy, stage postdb), or the sender of events without a reservation, which
// drops and counts them.
//
// The pool owns its workers; Stop runs what is queued and ends them. A queue has a lock, which is
// not held while its work runs.
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
	Workers int // queues that run at the same time; with one, a stuck queue stops all
	Queue   int // slots over all queues
	Queues  int // as many as the service has workers
	// QueueShare is the most slots one queue may hold. Below Queue, so that a
	// stuck queue leaves room for the others.
	QueueShare int
	// Queued observes how long each piece of work waited from its queuedAt until
	// it ran. It must not block. It may be nil.
	Queued func(time.Duration)
}

// validate checks what taskpool cannot know.
func (c Config) validate() error {
	if c.Queues < 1 {
		return fmt.Errorf("post-DB pool: %d queues, at least 1 is needed", c.Queues)
	}
	if c.QueueShare < 1 || c.QueueShare > c.Queue {
		return fmt.Errorf("post-DB pool: a queue's share of %d must be between 1 and the queue of %d", c.QueueShare, c.Queue)
	}
	return nil
}

// Pool is the bounded pool for work after commits.
type Pool struct {
	tasks  *taskpool.Pool
	queued func(time.Duration)
	queues []SerialQueue
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
	p := &Pool{tasks: tasks, queued: cfg.Queued, queues: make([]SerialQueue, cfg.Queues)}
	if p.queued == nil {
		p.queued = func(time.Duration) {}
	}
	for i := range p.queues {
		p.queues[i].pool = p
		p.queues[i].share = backpressure.NewShare(cfg.QueueShare)
	}
	return p, nil
}

// Queue returns queue i, from 0. It lives as long as the pool.
func (p *Pool) Queue(i int) *SerialQueue { return &p.queues[i] }

// Stop refuses new slots, runs what is queued and ends the workers. When ctx
// ends first it says how much was left. It may be called again.
func (p *Pool) Stop(ctx context.Context) error { return p.tasks.Stop(ctx) }

// Capacity is the number of slots.
func (p *Pool) Capacity() int { return p.tasks.Capacity() }

// Reserved is the number of slots taken by promised, waiting and running work.
func (p *Pool) Reserved() int { return p.tasks.Reserved() }

// Running is the number of workers that have a queue.
func (p *Pool) Running() int { return p.tasks.Running() }

// Panics is the number of pieces of work that panicked.
func (p *Pool) Panics() uint64 { return p.tasks.Panics() }

// maxRun is how many pieces of work a queue runs before the other queues are served.
const maxRun = 16

// SerialQueue is a chain of work. Safe for concurrent use; the order is that of the
// calls of Submit.
type SerialQueue struct {
	pool  *Pool
	share *backpressure.Share

	mu     sync.Mutex // guards what follows; never held while work runs
	jobs   []job      // bounded by the share
	active bool       // a task of this queue is queued or runs; never two
}

// job is one piece of work.
type job struct {
	run      func()
	queuedAt time.Time
}

// TryReserve takes a slot for one Submit, if queue and pool have one.
func (l *SerialQueue) TryReserve() bool { return l.pool.tasks.TryReserve(l.share, 1) }

// Unreserve gives back a slot that was not used.
func (l *SerialQueue) Unreserve() { l.pool.tasks.Unreserve(l.share, 1) }

// Submit queues fn behind the queue's other work. The caller holds a slot, which
// is given back when fn has returned or panicked. It does not block.
func (l *SerialQueue) Submit(fn func(), queuedAt time.Time) {
	l.mu.Lock()
	l.jobs = append(l.jobs, job{fn, queuedAt})
	start := !l.active
	l.active = true
	l.mu.Unlock()
	if start {
		l.pool.tasks.Submit((*queueTask)(l))
	}
}

// queueTask is a queue as the pool sees it. Its slot is that of any of its jobs.
type queueTask SerialQueue

// Run runs some of the queue's work. Also after a panic the queue goes on.
func (t *queueTask) Run() {
	l := (*SerialQueue)(t)
	defer l.endRun()
	for range maxRun {
		j, ok := l.next()
		if !ok {
			return
		}
		l.runJob(j)
	}
}

// next removes the queue's oldest job.
func (l *SerialQueue) next() (job, bool) {
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

// runJob runs one job and gives its slot back.
func (l *SerialQueue) runJob(j job) {
	defer l.Unreserve()
	l.pool.queued(time.Since(j.queuedAt))
	j.run()
}

// endRun queues the queue again if it has work left.
func (l *SerialQueue) endRun() {
	l.mu.Lock()
	l.active = len(l.jobs) > 0
	again := l.active
	if !again {
		l.jobs = nil
	}
	l.mu.Unlock()
	if again {
		l.pool.tasks.Submit((*queueTask)(l))
	}
}
