// Package taskpool is a bounded queue before a bounded number of workers.
//
// It promises: slots are reserved without waiting, and a task whose submitter
// holds a slot is never refused and, until the pool has stopped, never blocks the
// submitter, however long the tasks before it take. Tasks start in the order they were submitted. A task
// that panics is logged and counted, and its worker goes on. Stop runs what is
// queued and waits.
//
// It does not promise that tasks *end* in order, that a slot is given back by itself
// (the caller that reserved it must do that), or that a task which never returns can be
// stopped.
//
// The workers are those of an ants pool. Ants has no queue of its own, so the
// queue is here and no caller waits for ants. The pool owns the workers; they
// exist while there is work, and Stop leaves none.
package taskpool

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/ants/v2"

	"noncegate/backpressure"
)

// Task is a piece of work. Run is called once per Submit, by a worker. A Run
// that panics must have finished its own accounting in its own defer.
type Task interface{ Run() }

// Config is the size of a pool.
type Config struct {
	Name     string // in logs and errors
	Workers  int    // tasks that run at the same time, at least 1
	Capacity int    // slots, at least 1; also bounds the waiting tasks
}

// validate also keeps ants from taking a size below one for "unlimited".
func (c Config) validate() error {
	if c.Workers < 1 {
		return fmt.Errorf("%s pool: %d workers, at least 1 is needed", c.Name, c.Workers)
	}
	if c.Capacity < 1 {
		return fmt.Errorf("%s pool: %d slots, at least 1 is needed", c.Name, c.Capacity)
	}
	return nil
}

// Pool runs tasks. Safe for concurrent use.
type Pool struct {
	cfg     Config
	log     *slog.Logger
	gate    *backpressure.Gate
	workers *ants.Pool
	release func() error // ends the idle workers of ants, once
	drain   func()       // p.drainQueue, made once so that Submit allocates nothing
	panics  atomic.Uint64
	closed  atomic.Bool // no more reservations

	mu       sync.Mutex // guards what follows; never held while a task runs
	queue    ring
	running  int  // workers that have a task or are about to look for one
	stopping bool // Stop was called
	stopped  bool // the workers are gone for good
	quiet    chan struct{}
}

// New starts a pool. Its workers start with the first task.
func New(cfg Config, log *slog.Logger) (*Pool, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// Twice the size: ants still counts a worker that has left drainQueue and is
	// on its way back to be idle. The bound on what runs is our own.
	workers, err := ants.NewPool(2*cfg.Workers, ants.WithNonblocking(true))
	if err != nil {
		return nil, fmt.Errorf("%s pool: %w", cfg.Name, err)
	}
	p := &Pool{
		cfg:     cfg,
		log:     log.With("component", cfg.Name+"_pool"),
		gate:    backpressure.NewGate(cfg.Capacity),
		workers: workers,
		quiet:   make(chan struct{}),
	}
	p.drain = p.drainQueue
	p.release = sync.OnceValue(func() error { return workers.ReleaseContext(context.Background()) })
	return p, nil
}

// TryReserve takes n slots, all or nothing, within the holder's share (nil: no
// bound but the pool's). It is false when there is no room, and after Stop.
func (p *Pool) TryReserve(share *backpressure.Share, n int) bool {
	return !p.closed.Load() && p.gate.TryTake(share, n)
}

// TryReserveSpare is TryReserve for what can be left out: it leaves half of the
// pool to others.
func (p *Pool) TryReserveSpare(share *backpressure.Share, n int) bool {
	return !p.closed.Load() && p.gate.TryTakeSpare(share, n)
}

// Unreserve gives back n slots that were reserved with the same share.
func (p *Pool) Unreserve(share *backpressure.Share, n int) { p.gate.Give(share, n) }

// Submit queues a task. The caller must hold a slot that is no other waiting
// task's, and keep it until the task runs; more tasks than slots is a mistake
// of the program and panics. Submit does not block; once a Stop found the pool quiet, the
// task runs in the caller's goroutine, so that nothing is lost.
func (p *Pool) Submit(t Task) {
	p.mu.Lock()
	if p.stopped {
		p.mu.Unlock()
		p.run(t)
		return
	}
	if p.queue.n == p.cfg.Capacity {
		p.mu.Unlock()
		panic("taskpool: " + p.cfg.Name + ": more tasks than slots")
	}
	p.queue.push(t, p.cfg.Capacity)
	start := p.running < p.cfg.Workers
	if start {
		p.running++
	}
	p.mu.Unlock()
	if start {
		p.startWorker()
	}
}

// startWorker lets a worker drain the queue; the caller has counted it. When
// ants has none to spare, because all its workers are on their way back, a plain
// goroutine stands in. Both are waited for by their count in running.
func (p *Pool) startWorker() {
	if err := p.workers.Submit(p.drain); err != nil {
		go p.drain()
	}
}

// drainQueue is the life of a worker: it runs tasks until none waits. A task that ends its
// goroutine ends the worker, and another one takes its place.
func (p *Pool) drainQueue() {
	ended := false
	defer func() {
		if !ended {
			p.startWorker()
		}
	}()
	for {
		p.mu.Lock()
		t, ok := p.queue.pop()
		if !ok {
			ended = true
			p.running--
			p.settleLocked()
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.run(t)
	}
}

// run runs one task and survives its panic.
func (p *Pool) run(t Task) {
	defer func() {
		if v := recover(); v != nil {
			p.panics.Add(1)
			p.log.Error("task panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	t.Run()
}

// settleLocked notices the end of a pool that is being stopped. While a task
// waits some worker runs, so the workers are all there is to look at.
func (p *Pool) settleLocked() {
	if p.stopping && !p.stopped && p.running == 0 {
		p.stopped = true
		close(p.quiet)
	}
}

// Stop refuses new reservations, waits until every queued task has run and ends
// the workers. Producers are stopped before it: it does not wait for slots that
// are reserved and not used. When ctx ends first, the tasks left go on, and the
// error says how many. It may be called again.
func (p *Pool) Stop(ctx context.Context) error {
	p.closed.Store(true)
	p.mu.Lock()
	p.stopping = true
	p.settleLocked()
	p.mu.Unlock()
	select {
	case <-p.quiet:
	case <-ctx.Done():
		if running, waiting, quiet := p.left(); !quiet {
			return fmt.Errorf("stop %s pool: %d tasks run, %d wait: %w", p.cfg.Name, running, waiting, context.Cause(ctx))
		}
	}
	if err := p.release(); err != nil { // no worker has a task, so it ends at once
		return fmt.Errorf("stop %s pool: %w", p.cfg.Name, err)
	}
	return nil
}

// left is what a Stop whose time is over finds.
func (p *Pool) left() (running, waiting int, quiet bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running, p.queue.n, p.stopped
}

// Capacity is the number of slots.
func (p *Pool) Capacity() int { return p.gate.Capacity() }

// Reserved is the number of slots taken, those of waiting and running tasks
// included.
func (p *Pool) Reserved() int { return p.gate.Used() }

// Waiting is the number of tasks that have not started.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.n
}

// Running is the number of workers that have a task, or are about to look for one.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Panics is the number of tasks that panicked.
func (p *Pool) Panics() uint64 { return p.panics.Load() }
