package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// payment is what a worker has to execute exactly once. The queue guards its fields.
type payment struct {
	id      uint64
	account int
	// generation grows when its nonce is known to be another's, so that the next request
	// for one has another request id.
	generation int
	runs       int // how often a worker has begun with it
	owner      int // the worker that has it; nobody: it waits
	notBefore  time.Time
	done       bool
	came       time.Time
}

const nobody = -1

// queue is the relayer's database of payments: what it says survives every worker. Its
// methods may be called from any goroutine.
type queue struct {
	mu      sync.Mutex // guards what follows, and the payments
	all     []*payment
	waiting []*payment
	open    int           // payments that are not done
	changed chan struct{} // closed and replaced when a payment comes to wait
}

func newQueue() *queue { return &queue{changed: make(chan struct{})} }

// add puts a new payment into the queue.
func (q *queue) add(account int) *payment {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := &payment{id: uint64(len(q.all) + 1), account: account, owner: nobody, came: time.Now()}
	q.all = append(q.all, p)
	q.open++
	q.waitLocked(p)
	return p
}

func (q *queue) waitLocked(p *payment) {
	q.waiting = append(q.waiting, p)
	close(q.changed)
	q.changed = make(chan struct{})
}

// take gives a payment to a worker and counts its runs; nil when the context has ended.
func (q *queue) take(ctx context.Context, worker int) *payment {
	for ctx.Err() == nil {
		p, wait, changed := q.next(worker)
		if p != nil {
			return p
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// next is a payment that may begin, or how long none will.
func (q *queue) next(worker int) (*payment, time.Duration, <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, wait := time.Now(), time.Second
	for i, p := range q.waiting {
		if until := p.notBefore.Sub(now); until > 0 {
			wait = min(wait, until)
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		p.owner = worker
		p.runs++
		return p, 0, q.changed
	}
	return nil, wait, q.changed
}

// back puts a payment that has no transaction which may still be mined into the queue
// again. newID: with another request id.
func (q *queue) back(p *payment, newID bool, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.done || p.owner == nobody {
		return
	}
	if newID {
		p.generation++
	}
	p.owner, p.notBefore = nobody, time.Now().Add(after)
	q.waitLocked(p)
}

// finish says that a payment is on the chain for good.
func (q *queue) finish(p *payment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !p.done {
		p.done = true
		q.open--
	}
}

// claimed are the payments that a worker had when it crashed.
func (q *queue) claimed(worker int) (ps []*payment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.all {
		if p.owner == worker && !p.done {
			ps = append(ps, p)
		}
	}
	return ps
}

// size is how many payments there are, how many of them are not done, and how many wait.
func (q *queue) size() (all, open, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.all), q.open, len(q.waiting)
}

// isDone says whether a payment is on the chain for good.
func (q *queue) isDone(p *payment) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return p.done
}
