package nonce

import (
	"container/list"
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// shard is one worker's share of the signers. Its turn is a lock: whoever holds
// it, the worker or with caller-runs a connection's read goroutine, runs one
// batch, so the operations of a signer never interleave inside a node. While a
// commit is under way the next batch gathers in the queue by itself.
type shard struct {
	svc    *Service
	index  int
	shares shares        // of the places of the queue
	wake   chan struct{} // capacity 1: the queue is not empty, or a parked group is due

	mirrors chan mirrorTask // to the mirror goroutine; nil without a performance engine
	copying atomic.Int32    // copies among them, the one under way included

	remembered atomic.Int64 // len(states), for whoever does not hold the turn
	owned      atomic.Int64 // how many of them are owned
	restUntil  atomic.Int64 // nanoseconds after the service's begin: before it the worker takes no batch; see pace

	mu     sync.Mutex // guards queue, home and blocks; no I/O under it
	queue  turns
	home   []*state // signers whose ops have all come back from another node
	blocks []refill // given ahead; each signer is in it once at most

	turn   sync.Mutex // guards all below; held for a whole batch
	states map[string]*state
	recent *list.List // of *state, most recently used first
	parked map[string]*group
	// waiting are the groups that go on when what is under way at another node has
	// come back. They have no bound of their own: each op has a place of the queue,
	// or had one of the router's.
	waiting map[string]*group
	anew    []*group // to be routed anew in the next round
	epoch   uint64
	wakers  []Waker
	marked  time.Time // when the batch under way was taken
}

func newShard(s *Service, index int) *shard {
	var mirrors chan mirrorTask
	if s.cfg.Fast != nil {
		mirrors = make(chan mirrorTask, s.cfg.Fast.MirrorQueue)
	}
	return &shard{
		mirrors: mirrors, shares: shares{most: int64(s.cfg.QueueCapacity)},
		svc: s, index: index, wake: make(chan struct{}, 1), epoch: s.store.Epoch(),
		states: make(map[string]*state), recent: list.New(),
		parked: make(map[string]*group), waiting: make(map[string]*group),
	}
}

// Leave implements Queue.
func (sh *shard) Leave(of Principal) { sh.shares.leave(of) }

// push queues an op.
func (sh *shard) push(op *Op) {
	sh.mu.Lock()
	sh.queue.push(op)
	first := len(sh.queue.ops) == 1
	sh.mu.Unlock()
	if first {
		sh.signal()
	}
}

func (sh *shard) signal() {
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}

// loop is the worker. It ends when stop is closed and the queue is empty.
func (sh *shard) loop(stop <-chan struct{}) {
	for {
		select {
		case <-sh.wake:
			time.Sleep(time.Duration(sh.restUntil.Load()) - time.Since(sh.svc.began))
			sh.workerRuns()
		case <-stop:
			sh.workerRuns()
			sh.failParked()
			return
		}
	}
}

// fastPace is how far apart the batches of a shard begin that go to Redis. Redis answers
// in a fraction of it, and a batch of its own for every other request costs everybody on
// the machine more than the wait: 10,000 requests a second kept two cores busy for
// about 81 % without it and 75 % with it.
const fastPace = time.Millisecond

// pace says that a batch goes to Redis now. The worker waits before the next one; a
// shard that was at rest for as long does not.
func (sh *shard) pace() {
	sh.restUntil.Store(int64(time.Since(sh.svc.began) + fastPace))
}

// workerRuns runs everything that is queued. It gives up the turn between two
// batches, so that callers who wait for it get it.
func (sh *shard) workerRuns() {
	for sh.runNext() {
	}
}

func (sh *shard) runNext() bool {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	sh.takeBlocks()
	batch, home := sh.take()
	if len(batch) == 0 && len(home) == 0 && !sh.parkedDue() {
		return false
	}
	sh.run(batch, home)
	return true
}

// callerRuns queues op beyond the queue's capacity, or its principal's share of it,
// and runs what has its turn before it and itself in the goroutine that brings it, as
// far as the worker has not. What comes after it is left to the worker.
func (sh *shard) callerRuns(op *Op) {
	taken := false // by whoever has the turn
	op.taken = &taken
	sh.push(op)
	sh.turn.Lock()
	defer sh.turn.Unlock()
	defer endProcess()
	for !taken {
		sh.takeBlocks()
		batch, home := sh.take()
		sh.run(batch, home)
	}
}

// endProcess makes a panic of a turn in a caller's goroutine what it is in a
// worker's: the end of the process. Who brought the op may recover, but the batch
// has ops of others, and nobody knows what became of them.
func endProcess() {
	if r := recover(); r != nil {
		stack := debug.Stack()
		go panic(fmt.Sprintf("%v\n\n%s", r, stack))
		select {}
	}
}

// take takes a batch from the queue, and the signers whose ops have come back.
func (sh *shard) take() (batch []*Op, home []*state) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	home, sh.home = sh.home, nil
	return sh.queue.take(sh.svc.cfg.MaxBatch), home
}

// run executes one batch to its end.
func (sh *shard) run(batch []*Op, home []*state) {
	sh.marked = time.Now()
	for _, op := range batch {
		sh.svc.fig.WorkerQueue(sh.marked.Sub(op.queuedAt))
		if op.taken != nil {
			*op.taken, op.taken = true, nil
		}
	}
	if e := sh.svc.store.Epoch(); e != sh.epoch {
		sh.epoch = e
		sh.disown()
	}
	groups := sh.group(batch, home)
	clear(batch)
	for len(groups) > 0 {
		groups = sh.round(groups)
		sh.wakeAll()
	}
	sh.wakeAll()
	if sh.svc.retired.Load() {
		sh.giveUp()
	}
	sh.evict()
	sh.remembered.Store(int64(len(sh.states)))
}

// disown makes every signer be acquired, and thereby compared with what was
// seen, before its next use: the store may have become another one.
func (sh *shard) disown() {
	for _, st := range sh.states {
		st.setOwned(sh, false)
	}
}

// group sorts ops by signer, in order of arrival, behind those parked and those
// that waited for what has come home now.
func (sh *shard) group(batch []*Op, home []*state) []*group {
	groups := make([]*group, 0, min(len(batch), 256)+len(sh.parked)+len(home))
	for _, st := range home {
		if st.active != nil || sh.parked[st.signer] != nil {
			continue // it is looked at anyway
		}
		g := sh.waiting[st.signer]
		if g == nil {
			g = &group{st: st}
		}
		delete(sh.waiting, st.signer)
		st.active = g
		groups = append(groups, g)
	}
	for signer, g := range sh.parked {
		if g.retryAt.After(sh.marked) {
			continue
		}
		delete(sh.parked, signer)
		g.st.active = g
		groups = append(groups, g)
	}
	for _, op := range batch {
		if g, ok := sh.parked[op.Signer]; ok {
			g.ops = append(g.ops, op)
			continue
		}
		if g, ok := sh.waiting[op.Signer]; ok {
			sh.joinWaiting(g, op)
			continue
		}
		st := sh.state(op.Signer)
		if st.active == nil {
			st.active = &group{st: st}
			groups = append(groups, st.active)
		}
		st.active.ops = append(st.active.ops, op)
	}
	for _, g := range groups {
		g.st.active = nil
	}
	return groups
}

// state finds or begins what is remembered of a signer.
func (sh *shard) state(signer string) *state {
	st, ok := sh.states[signer]
	if !ok {
		st = &state{signer: signer}
		st.place = sh.recent.PushFront(st)
		sh.states[signer] = st
	} else {
		sh.recent.MoveToFront(st.place)
	}
	st.lastUsed = sh.marked
	return st
}

// finish ends an op. Its place is free before the caller hears of it.
func (sh *shard) finish(op *Op) {
	if op.inShard {
		sh.shares.leave(op.Principal)
	}
	if op.Err != nil {
		op.refused()
		sh.svc.sayWhy(op)
	}
	if op.Path != nil && sentBack(op.Err) {
		op.Path.Break(op.Err)
	}
	if w := op.tell(); w != nil && (len(sh.wakers) == 0 || sh.wakers[len(sh.wakers)-1] != w) {
		sh.wakers = append(sh.wakers, w)
	}
}

func (sh *shard) wakeAll() {
	for _, w := range sh.wakers {
		w.Wake()
	}
	clear(sh.wakers)
	sh.wakers = sh.wakers[:0]
}

// park sets a group aside whose row somebody else has locked, so that the shard
// does not wait for an outsider, and comes back to it after a while. After LockWait
// it is refused: nothing happened.
func (sh *shard) park(g *group, after time.Duration, cause error) {
	now := time.Now()
	if g.giveUpAt.IsZero() {
		g.giveUpAt = now.Add(sh.svc.cfg.LockWait)
	}
	if now.After(g.giveUpAt) {
		g.fail(sh, &UnavailableError{Outcome: Aborted, Err: cause})
		return
	}
	g.tries = 0 // giveUpAt bounds these
	// What was read for the group is not what those need that join it meanwhile, and
	// what it says of the time is over.
	g.st.dropLoaded()
	g.loaded, g.idsRead = false, false
	g.retryAt = now.Add(after)
	sh.parked[g.st.signer] = g
	time.AfterFunc(after, sh.signal)
}

func (sh *shard) parkedDue() bool {
	now := time.Now()
	for _, g := range sh.parked {
		if !g.retryAt.After(now) {
			return true
		}
	}
	return false
}

// failParked refuses what is still parked, or waits for another node, when the
// service stops.
func (sh *shard) failParked() {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	for _, groups := range []map[string]*group{sh.parked, sh.waiting} {
		for signer, g := range groups {
			delete(groups, signer)
			g.fail(sh, ErrDraining)
		}
	}
	sh.wakeAll()
}

// evict forgets the least recently used signers beyond the bound and gives back
// the leases among them that still run.
func (sh *shard) evict() {
	if sh.recent.Len() <= sh.svc.signersPerShard {
		return
	}
	var terms []ReleaseTerm
	for over := sh.recent.Len() - sh.svc.signersPerShard; over > 0; over-- {
		st := sh.recent.Back().Value.(*state)
		if sh.keeps(st) {
			sh.recent.MoveToFront(st.place)
			continue
		}
		terms = sh.forget(st, terms)
	}
	sh.release(terms)
}

// forgetIdle forgets signers that were not used since before. It does not wait
// for the turn: a shard at work evicts by itself.
func (sh *shard) forgetIdle(before time.Time) {
	if !sh.turn.TryLock() {
		return
	}
	defer sh.turn.Unlock()
	var terms []ReleaseTerm
	for e := sh.recent.Back(); e != nil; {
		st, prev := e.Value.(*state), e.Prev()
		if st.lastUsed.After(before) {
			break
		}
		if !sh.keeps(st) {
			terms = sh.forget(st, terms)
		}
		e = prev
	}
	sh.remembered.Store(int64(len(sh.states)))
	sh.release(terms)
}

// keeps reports whether a state must not be forgotten now.
func (sh *shard) keeps(st *state) bool {
	return st.halted || st.away != nil && !st.away.idle() ||
		sh.parked[st.signer] != nil || sh.waiting[st.signer] != nil
}

// forget drops a state and adds its lease to those to give back, when it still
// runs; one that ended by itself costs no write.
func (sh *shard) forget(st *state, terms []ReleaseTerm) []ReleaseTerm {
	terms = sh.letGo(st, 0, terms)
	sh.recent.Remove(st.place)
	delete(sh.states, st.signer)
	return terms
}

// letGo ends the ownership of a signer and adds its lease to those to give back,
// unless it was last trusted longer ago than that.
func (sh *shard) letGo(st *state, ago time.Duration, terms []ReleaseTerm) []ReleaseTerm {
	if st.owned && st.term.Trusted(time.Now().Add(-ago)) {
		terms = append(terms, ReleaseTerm{ID: st.id, Token: st.term.Token})
	}
	st.setOwned(sh, false)
	return terms
}

// releaseAll gives back every lease: the shard's last write for each signer. Leases
// that this node stopped to trust are among them, because in the store they may still
// run: for the margin, and for as long as their renewal was on its way.
func (sh *shard) releaseAll() {
	sh.turn.Lock()
	defer sh.turn.Unlock()
	var terms []ReleaseTerm
	for _, st := range sh.states {
		terms = sh.letGo(st, sh.svc.cfg.LeaseTTL, terms)
		terms = sh.forget(st, terms)
	}
	sh.release(terms)
}

// maxRelease bounds the leases given back by one statement.
const maxRelease = 1000

// release is best effort: a lease that is not given back ends by itself.
func (sh *shard) release(terms []ReleaseTerm) {
	for len(terms) > 0 {
		n := min(len(terms), maxRelease)
		ctx, cancel := context.WithTimeout(context.Background(), sh.svc.cfg.StoreTimeout)
		released, err := sh.svc.store.Release(ctx, sh.svc.holder, terms[:n])
		cancel()
		if err != nil {
			sh.svc.log.Warn("leases were not given back; they end by themselves", "signers", len(terms), "error", err)
			return
		}
		for range n - released { // somebody took them over
			sh.svc.fig.FenceReject(kindRelease)
		}
		terms = terms[n:]
	}
}
