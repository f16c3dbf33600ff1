package service

import (
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/nonce/rules"
)

// worker runs the batches of some of the node's shards. Its lock is batchMu: whoever holds
// it, the worker's goroutine or with caller-runs a connection's, runs one batch, so the ops
// of a signer never interleave inside a node.
type worker struct {
	svc   *Service
	index int
	slots *fairness.Slots // reserved, queued, running or parked ops have one
	wake  chan struct{}   // capacity 1: there is something to do

	remembered, rememberedBytes atomic.Int64 // of memory at the end of the last batch, for readers without batchMu

	mu           sync.Mutex // guards what follows; no I/O under it
	queue        *fairness.Queue[*task]
	forwardsOver []*remoteSigner // signers with nothing under way at another node any more
	orders       []lease.Order
	due          []nonce.DueEntry // that the store has listed and that were not looked at yet
	tick         bool             // it is time to look at deadlines, and to forget who is idle

	remote remoteSigners

	batchMu    sync.Mutex // guards all below; held for a whole batch
	memory     *memory
	pace       pace
	ended      int               // overdue holds, by the batch under way
	more       bool              // signers that are remembered have overdue holds that the last batch had no room for
	parked     map[string]*group // groups that wait for a lock, or rest, by signer
	open       map[string]*group // the memory of group
	rerouted   []*group          // groups that begin the next round at its first step again
	generation uint64            // of the store, as of which memory is; noGeneration: memory must be compared first
	behind     uint64            // Service.behind, as of which memory is; above 0, what is not remembered is stopped
	had        map[*shard]bool   // the shards that were this node's when the store became that of hadAt
	hadAt      uint64
	wakers     []nonce.Waker
	marked     time.Time        // when the batch under way was taken
	requests   []*nonce.Request // the memory of plan
	input      rules.Input      // the same
	claim      func(req *nonce.Request, count int) bool
	writes     []nonce.Write // the memory of tryCommit
	groups     []*group      // of the batch under way; see recycle
	limit      limit         // of commits
	spare      []*group
	noReads    error       // why no more is read in this batch
	engine     Committer   // of the performance engine; nil: this node does not have it
	later      []Answer    // that wait for a time
	laterTimer *time.Timer // wakes the worker for the first of them
}

func newWorker(s *Service, index int) *worker {
	w := &worker{
		svc: s, index: index, wake: make(chan struct{}, 1), generation: s.store.Generation(), hadAt: noGeneration,
		slots: fairness.NewSlots(s.cfg.QueueCapacity), queue: fairness.NewQueue((*task).principal),
		claim:  s.open.Reserve,
		memory: newMemory(s.cfg.MaxSigners/s.cfg.Workers, s.cfg.MaxSignerBytes/int64(s.cfg.Workers)),
		remote: remoteSigners{all: make(map[string]*remoteSigner)},
		parked: make(map[string]*group), open: make(map[string]*group),
	}
	w.laterTimer = stoppedTimer(w.signal)
	w.pace = newPace(s.cfg.Workers, w.signal)
	return w
}

// Leave implements nonce.Queue.
func (w *worker) Leave(of nonce.Principal) { w.slots.Leave(of) }

// push queues a task.
func (w *worker) push(t *task) {
	w.mu.Lock()
	w.queue.Push(t)
	first := w.queue.Len() == 1
	w.mu.Unlock()
	if first {
		w.signal()
	}
}

func (w *worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// order queues an order, unless the same is waiting already.
func (w *worker) order(o lease.Order) {
	w.mu.Lock()
	if !slices.Contains(w.orders, o) {
		w.orders = append(w.orders, o)
	}
	w.mu.Unlock()
	w.signal()
}

// loop is the worker. It ends when stop is closed and the queue is empty.
func (w *worker) loop(stop <-chan struct{}) {
	defer w.pace.again.Stop()
	defer w.laterTimer.Stop()
	for stopped := false; !stopped; {
		select {
		case <-w.wake:
		case <-stop:
			stopped = true
		}
		for w.runNext() { // it gives up batchMu between two batches, so that callers who wait for it get it
		}
	}
}

func (w *worker) runNext() bool {
	w.batchMu.Lock()
	defer w.batchMu.Unlock()
	b := w.take()
	if b.empty() && (!w.more || b.signers == 0) && !w.parkedDue() && !w.laterDue() && (w.engine == nil || !w.engine.Due()) {
		w.wakeLater()
		return false
	}
	w.run(b)
	return true
}

// callerRuns queues a task beyond the queue's capacity, or its principal's share of it, and
// runs batches in the caller's goroutine until one has had the task, unless the worker was
// faster. What is queued behind it is left to the worker.
func (w *worker) callerRuns(t *task) {
	taken := false // by whoever holds batchMu
	t.taken = &taken
	w.push(t)
	w.batchMu.Lock()
	defer w.batchMu.Unlock()
	defer endProcess()
	for !taken {
		w.run(w.take())
	}
}

// endProcess makes a panic of a batch in a caller's goroutine what it is in a
// worker's: the end of the process. Who brought the op may recover, but the batch
// has ops of others, and nobody knows what became of them.
func endProcess() {
	if r := recover(); r != nil {
		stack := debug.Stack()
		go panic(fmt.Sprintf("%v\n\n%s", r, stack))
		select {}
	}
}

// run executes one batch to its end.
func (w *worker) run(b batch) {
	w.marked, w.noReads, w.ended = time.Now(), nil, 0
	for _, t := range b.tasks {
		w.svc.fig.WorkerQueue(w.marked.Sub(t.queuedAt))
		t.move(inBatch)
		if t.taken != nil {
			*t.taken, t.taken = true, nil
		}
	}
	if e, behind := w.svc.store.Generation(), w.svc.behind.Load(); e != w.generation || behind != w.behind {
		w.generation, w.behind = e, behind
		w.compareAll()
	}
	if w.engine != nil {
		w.engine.Begin()
	}
	w.tellDue()
	w.svc.table.Follow(b.orders, w.marked)
	if w.engine != nil {
		w.engine.Tend()
	}
	if b.tick {
		w.dropIdle()
	}
	groups := w.group(&b)
	clear(b.tasks)
	for len(groups) > 0 {
		groups = w.round(groups)
		w.wakeAll()
	}
	if w.svc.table.Retired() {
		w.svc.table.GiveUp(w.owned())
	}
	w.pace.ended(w.ended, w.more || b.waiting, w.marked)
	if w.engine != nil {
		w.engine.End()
	}
	w.wakeLater()
	w.wakeAll()
	w.recycle()
	w.memory.evict()
	w.remembered.Store(int64(len(w.memory.signers)))
	w.rememberedBytes.Store(w.memory.bytes)
}

// finish ends a task that has its outcome. Its slot is free before the caller hears of it.
func (w *worker) finish(t *task) {
	if t.placed {
		w.slots.Leave(t.req.Principal)
		t.placed = false
	}
	w.svc.sayWhy(t)
	if t.path != nil && sentBack(t.res.Err) {
		t.path.Break(t.res.Err)
	}
	if k := w.svc.tell(t); k != nil && (len(w.wakers) == 0 || w.wakers[len(w.wakers)-1] != k) {
		w.wakers = append(w.wakers, k)
	}
}

// refuse ends a task without a result.
func (w *worker) refuse(t *task, err error) {
	t.refuse(err)
	w.finish(t)
}

func (w *worker) wakeAll() {
	for _, k := range w.wakers {
		k.Wake()
	}
	clear(w.wakers)
	w.wakers = w.wakers[:0]
}

// maxLockRetry bounds the pause between two tries at a lock, each of which is twice as long
// as the one before.
const maxLockRetry = 100 * time.Millisecond

// park sets a group aside whose row, or shard, somebody else has locked, so that the worker
// does not wait for an outsider, and comes back to it after a while. After LockWait
// it is refused: nothing happened.
func (w *worker) park(g *group, cause error) {
	now := time.Now()
	if g.refuseAt.IsZero() {
		g.refuseAt = now.Add(w.svc.cfg.LockWait)
	}
	if now.After(g.refuseAt) {
		w.failGroup(g, &nonce.UnavailableError{Outcome: nonce.Aborted, Err: cause})
		return
	}
	g.tries = 0 // refuseAt bounds these
	g.pause = min(max(2*g.pause, w.svc.cfg.LockRetry), maxLockRetry)
	w.setAside(g, g.pause)
}

// setAside parks a group for a pause. Tasks that come meanwhile for its signer join it. The
// timer only wakes the worker, which then looks for groups whose pause is over.
func (w *worker) setAside(g *group, pause time.Duration) {
	g.unread()
	g.retryAt = time.Now().Add(pause)
	for _, t := range g.tasks {
		t.move(waiting)
	}
	w.parked[g.name] = g
	time.AfterFunc(pause, w.signal)
}

func (w *worker) parkedDue() bool {
	now := time.Now()
	for _, g := range w.parked {
		if !g.retryAt.After(now) {
			return true
		}
	}
	return false
}

// failParked ends what is still parked, waits for another node or for a time, when the service
// has stopped and given its shards back: what had an unknown outcome has ended by that.
func (w *worker) failParked() {
	w.batchMu.Lock()
	defer w.batchMu.Unlock()
	for name, g := range w.parked {
		delete(w.parked, name)
		w.failGroup(g, nonce.ErrDraining)
	}
	for _, st := range w.remote.all {
		back, _, _ := st.takeDone() // all that is under way has come back before Stop
		for _, t := range back {
			w.refuse(t, nonce.ErrDraining)
		}
		if g := st.waiting; g != nil {
			st.waiting = nil
			w.failGroup(g, nonce.ErrDraining)
		}
	}
	for _, a := range w.later {
		a.Unknown(errTooSoon)
	}
	w.later = nil
	w.wakeAll()
}

// owned are the worker's shards that are this node's.
func (w *worker) owned() (all []*lease.Term) {
	for _, sh := range w.svc.shards {
		if sh.worker == w && sh.Mine() {
			all = append(all, &sh.Term)
		}
	}
	return all
}

// lose makes a shard not this node's. What is remembered of its signers stays, to be compared
// with what is read of them later, but is not planned on any more (see lease.Term.Stay).
func (w *worker) lose(sh *shard) { w.svc.table.Lose(&sh.Term) }

// StepDown gives up every shard, in one statement and between two batches of each worker, and
// acquires none any more: requests of clients go to other nodes, those of other nodes are
// told nonce.ErrDraining. It may be called twice, and before Stop. In mode basic it does
// nothing.
func (s *Service) StepDown() {
	if s.basic != nil {
		return
	}
	s.table.Retire()
	if err := s.table.Look(s.calls); err != nil {
		s.log.Warn("it is not known who else is there to serve this node's shards", "error", err)
	}
	if s.StoppedSigners() > 0 {
		s.log.Error("this node leaves, and with it what it knows of signers that it stopped because the store went back: "+
			"other nodes hand out of them again; raise their floors above every nonce that was handed out",
			"stopped", s.StoppedSigners(), "signers", s.Stopped(maxNamed))
	}
	s.releaseAll()
}

// maxNamed bounds the signers that a line of the log names.
const maxNamed = 20

func (s *Service) releaseAll() {
	for _, w := range s.workers {
		w.batchMu.Lock()
		defer w.batchMu.Unlock()
	}
	s.table.GiveUpAll()
	for _, w := range s.workers {
		w.wakeLater()
		w.wakeAll()
	}
}
