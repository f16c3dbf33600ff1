package service

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// remoteSigner keeps the ops of one signer that this worker has forwarded: those still at the other
// node, and those that it sent back, to be routed again. At any time all of them are at one node: ops for
// another node wait, because two nodes could run them in either order. Ops that come back
// are kept until the last is answered or back, so that they go on in their order
// and before all later ones.
type remoteSigner struct {
	name, node string
	worker     *worker
	id         uint64 // the number of the path there
	waiting    *group // goes on when all that is under way has come back; of worker.batchMu

	mu     sync.Mutex // guards what follows
	sent   int        // tasks sent so far
	far    int        // the highest order of a task that was answered, or may have been done
	out    int        // tasks under way
	back   []*task    // tasks to be routed again, in the order in which they came back
	wanted bool       // a group waits until out is 0
}

// leave counts a task as under way, unless one has come back: then the path is
// broken, and the task has to wait.
func (st *remoteSigner) leave(t *task) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if len(st.back) > 0 {
		return false
	}
	st.sent++
	st.out++
	t.stream, t.order = st, st.sent
	return true
}

// arrive counts a task as no longer under way. order is its order, and the task is
// nil if it is not to be routed again. It returns true when that was the last, and the worker
// has to look.
func (st *remoteSigner) arrive(order int, v nonce.Verdict, back *task) (look bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.out--
	if back != nil {
		st.back = append(st.back, back)
	}
	if v != nonce.Bounced {
		st.far = max(st.far, order)
	}
	return st.out == 0 && (st.wanted || len(st.back) > 0)
}

// idle reports whether nothing is under way, and nothing came back.
func (st *remoteSigner) idle() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.out == 0 && len(st.back) == 0
}

// wait says that somebody waits for the last task under way, unless there is none.
func (st *remoteSigner) wait() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.wanted = st.out > 0
	return st.wanted
}

// takeDone returns the tasks that came back, and how far the path went, if none is under
// way any more.
func (st *remoteSigner) takeDone() (back []*task, far int, all bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.out > 0 {
		return nil, 0, false
	}
	return st.back, st.far, true
}

// errDoubt and errRouted are said of ops that another node has not done.
const (
	errDoubt  nonce.Told = "the node that owns the signer was asked and has not answered; ask again with the same request id"
	errRouted nonce.Told = "the signer moved between nodes again and again, or its node cannot be reached; ask again"
)

// Gone implements nonce.Forwarded.
func (t *task) Gone() bool { return t.gone() }

// Return implements nonce.Forwarded.
func (t *task) Return(r *nonce.Result, v nonce.Verdict) (k nonce.Waker) {
	st, order, back := t.stream, t.order, t
	t.stream, *t.res = nil, *r
	switch {
	case v == nonce.Answered && r.Err == nil:
		t.end(nil)
	case v == nonce.Answered, v == nonce.Bounced && r.Err == nonce.ErrGone:
		t.refuse(r.Err)
	case v == nonce.Expired, v == nonce.Doubtful && t.req.RequestID == "" && t.req.Kind.WithRequestID(): // a second hand-out would be another one
		t.become(uncertain)
		t.refuse(&nonce.UnavailableError{Outcome: nonce.Unknown, Err: errDoubt})
	case v == nonce.Doubtful:
		t.become(uncertain)
		t.res.Err = errDoubt
	}
	if t.over() {
		back, k = nil, st.worker.svc.tell(t)
	}
	if st.arrive(order, v, back) {
		st.worker.forwardsDone(st)
	}
	return k
}

// forwardsDone makes the worker look at a signer of which nothing is under way any
// more at another node.
func (w *worker) forwardsDone(st *remoteSigner) {
	w.mu.Lock()
	w.forwardsOver = append(w.forwardsOver, st)
	w.mu.Unlock()
	w.signal()
}

const (
	// maxTrips bounds how often an op is routed: to the node where the signer should be, to
	// the one that owns it, and again when it moved meanwhile. With the rests between them,
	// which are a third of a second together, it outlasts the move of a shard.
	maxTrips = 9
	// maxHops is after how many hops an op rests before each further one, for LockRetry
	// and then twice as long as before: while a shard moves, two nodes can send what they have
	// to one another faster than either learns who has it.
	maxHops = 2
)

// rest sets a group aside whose ops were routed again and again.
func (w *worker) rest(g *group) {
	trips := 0
	for _, t := range g.tasks {
		trips = max(trips, t.hops)
	}
	w.setAside(g, min(w.svc.cfg.LockRetry<<(trips-maxHops), maxLockRetry))
}

func tooManyHops(t *task) bool { return t.hops >= maxHops }

// depart takes from the head of the group what is not to be run here now: tasks whose path is
// broken, and those that go to another node. It returns true when the first task, if any, is
// to be run here, and false when the group was set aside or waits for what is under way.
//
// Each turn of the loop first takes in what has come back, so that it goes before the rest.
// Then, while something of the signer is under way elsewhere (st), the first task
//   - of another node is refused: that node could be waiting for this one;
//   - that only reads waits, to be answered after what is under way;
//   - of this node's client follows to the same node, or waits.
func (w *worker) depart(g *group) (here bool) {
	for {
		if w.collect(g) {
			w.rest(g)
			return false
		}
		w.dropBroken(g)
		if len(g.tasks) == 0 {
			return true
		}
		st, t := w.remote.get(g.name), g.tasks[0]
		switch {
		case st != nil && !t.local() && !t.reads():
			w.refuse(t, w.svc.atNode(st.node))
			g.pop(1)
			continue
		case st != nil && t.reads():
			if w.waitFor(st, g) {
				return false
			}
			continue
		case t.reads() || !t.local():
			return true
		}
		node, url := "", ""
		if !g.shard.Mine() && w.svc.haltedBy() == nil {
			node, url = w.svc.table.Destination(&g.shard.Term)
		}
		if node == "" && st == nil {
			return true
		}
		if st != nil && st.node != node || !w.send(g, node, url) {
			if st = w.remote.get(g.name); st != nil && w.waitFor(st, g) {
				return false
			}
		}
	}
}

// dropBroken sends back the tasks of the group whose path is broken.
func (w *worker) dropBroken(g *group) {
	for _, t := range g.tasks {
		if t.path != nil && t.path.Broken() {
			w.refuse(t, t.path.Reason())
		}
	}
	g.tasks = slices.DeleteFunc(g.tasks, (*task).over)
}

// remoteSigners are those of one worker, by name. The worker, and what forwards past it (forwardNow), look at them.
type remoteSigners struct {
	n   atomic.Int32 // of all, so that it costs one load while nothing is forwarded
	mu  sync.Mutex   // guards all; those of remoteSigner are taken behind it
	all map[string]*remoteSigner
}

func (r *remoteSigners) get(name string) *remoteSigner {
	if r.n.Load() == 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[name]
}

// drop forgets a signer of which nothing is under way; false: something is by now.
func (r *remoteSigners) drop(st *remoteSigner) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, _, all := st.takeDone(); !all {
		return false
	}
	delete(r.all, st.name)
	r.n.Add(-1)
	return true
}

// hand gives a task to the router, behind what is under way of its signer. left is false where it has to wait for
// that. With an error it is where it was.
func (w *worker) hand(t *task, node, url string) (left bool, err error) {
	name, r := t.req.Signer, &w.remote
	r.mu.Lock()
	st := r.all[name]
	if st == nil {
		st = &remoteSigner{name: name, node: node, worker: w, id: w.svc.streams.Add(1)}
		r.all[name] = st
		r.n.Add(1)
	}
	// What came back of the signer counts as at the worker before the signer is forgotten (collect).
	past := t.where == submitted
	left = st.node == node && !(past && t.shard.inside.Load() > 0) && st.leave(t)
	r.mu.Unlock()
	if !left {
		return false, nil
	}
	t.hops++
	was, placed, order, principal := t.where, t.placed, t.order, t.req.Principal // the task is the router's, once it takes it
	t.move(forwarded)
	t.placed = false
	if err = w.svc.cfg.Router.Forward(node, url, t.req, st.id, t); err == nil {
		if placed {
			w.slots.Leave(principal)
		}
		return true, nil
	}
	t.move(was)
	t.stream, t.placed = nil, placed
	if st.arrive(order, nonce.Bounced, nil) {
		w.forwardsDone(st)
	}
	return true, err
}

// direct is where the last request of a shard went that another node owns.
type direct struct {
	node, url string
	token     int64
}

// goesTo notes where the worker has sent a request, if the node has the shard by its row.
func (sh *shard) goesTo(node, url string) {
	row, d := sh.Row(), sh.direct.Load()
	if row.Owner.Node == node && (d == nil || *d != direct{node, url, row.Token}) {
		sh.direct.Store(&direct{node, url, row.Token})
	}
}

// forwardNow forwards a request past the worker, so that it does not wait for the commit under way: where the
// last one of the shard went, as long as that node has the shard, and while no other one of the shard is at
// the worker, which it could overtake.
func (w *worker) forwardNow(t *task) bool {
	sh := t.shard
	d := sh.direct.Load()
	if d == nil || sh.inside.Load() > 0 || sh.Mine() || !t.local() || t.reads() || w.svc.haltedBy() != nil {
		return false
	}
	row := sh.Row()
	if row.Token != d.token || row.Owner.Node != d.node || !w.svc.table.Fleet().Runs(row.Owner, w.svc.clock.now().Earliest) {
		return false
	}
	left, err := w.hand(t, d.node, d.url)
	return left && err == nil
}

// send hands the first task of the group to the router. Where nothing was sent the
// task has ended, or is to be routed in another way by the next try. It returns
// false when the task has to wait.
func (w *worker) send(g *group, node, url string) bool {
	t := g.tasks[0]
	g.shard.inside.Add(1) // until the router has it: what is forwarded past the worker must not overtake it
	left, err := w.hand(t, node, url)
	g.shard.inside.Add(-1)
	if !left {
		return false
	}
	if err == nil {
		g.shard.goesTo(node, url)
		g.pop(1)
		return true
	}
	switch { // whether what is under way has come back meanwhile does not matter: depart looks next
	case errors.Is(err, nonce.ErrForwardBusy):
	case errors.Is(err, nonce.ErrOtherVersion):
		err = &nonce.NotOwnerError{Node: node, URL: url}
	case t.hops < maxTrips && w.marked.Sub(g.shard.AskedAt) > askAgain: // perhaps the node has given the shard up
		g.shard.Doubt()
		return false
	default:
		err = &nonce.UnavailableError{Outcome: nonce.NotSent, Err: &nonce.PeerAwayError{Node: node, URL: url}}
	}
	w.refuse(t, err)
	g.pop(1)
	return true
}

// askAgain is how often the store is asked whether a node that cannot be reached still owns
// a shard. More often costs the store more while a node is away.
const askAgain = 250 * time.Millisecond

// dropIdle forgets signers of which nothing is under way, came back or waits.
func (w *worker) dropIdle() {
	w.remote.mu.Lock()
	defer w.remote.mu.Unlock()
	for name, st := range w.remote.all {
		if st.waiting == nil && st.idle() {
			delete(w.remote.all, name)
			w.remote.n.Add(-1)
		}
	}
}

// waitFor sets the group aside until all that is under way of its signer has come
// back, unless it has already. What came from another node does not wait: that
// could be waiting for this one.
func (w *worker) waitFor(st *remoteSigner, g *group) bool {
	if !st.wait() {
		return false
	}
	tasks := g.tasks
	g.tasks, g.refuseAt = make([]*task, 0, len(tasks)), time.Time{}
	st.waiting = g
	for _, t := range tasks {
		w.joinWaiting(st, t)
	}
	return true
}

// joinWaiting adds a task to a group that waits.
func (w *worker) joinWaiting(st *remoteSigner, t *task) {
	if t.local() || t.reads() {
		st.waiting.add(t)
		return
	}
	w.refuse(t, w.svc.atNode(st.node))
}

// collect puts what came back from another node before the rest of the group. It reports
// whether the group is to rest.
func (w *worker) collect(g *group) (rests bool) {
	st := w.remote.get(g.name)
	if st == nil {
		return false
	}
	back, far, all := st.takeDone()
	if !all {
		return false
	}
	// A refusal of the other node's reader may come before one of its worker that
	// came first.
	slices.SortFunc(back, func(a, b *task) int { return cmp.Compare(a.order, b.order) })
	for _, t := range back {
		t.move(inBatch)
		why := t.res.Err
		w.learn(g.shard, st.node, why)
		t.res.Err = nil
		// If one in doubt was not done, doing it now would put it behind one that came later.
		if why == errDoubt && far > t.order || t.hops >= maxTrips {
			w.refuse(t, routedTooOften(t))
		}
	}
	if !w.remote.drop(st) { // once what came back counts as at the worker again, so that nothing is forwarded before it
		return false
	}
	back = slices.DeleteFunc(back, (*task).over)
	g.tasks = append(back, g.tasks...)
	return slices.ContainsFunc(back, tooManyHops)
}

// routedTooOften refuses a task that found no owner. One that another node may have done
// has an unknown outcome.
func routedTooOften(t *task) error {
	if t.outcome == uncertain {
		return &nonce.UnavailableError{Outcome: nonce.Unknown, Err: errDoubt}
	}
	return &nonce.UnavailableError{Outcome: nonce.NotSent, Err: errRouted}
}

// learn takes in why a task came back: the node it was sent to does not have the shard, or
// not any more. Where it says who has, that node is tried; else the store is asked.
func (w *worker) learn(sh *shard, node string, why error) {
	sh.direct.Store(nil)
	if e, ok := errors.AsType[*nonce.NotOwnerError](why); ok && e.Node != node && e.Node != w.svc.holder.Node {
		sh.Learn(e.Node, e.URL)
		return
	}
	sh.Doubt()
}

// toOwner deals with a group whose shard is not this node's, for the reason
// given: with a router, what clients of this node asked for is routed again.
func (w *worker) toOwner(g *group, row *lease.Shard, why error) {
	g.shard.See(*row)
	g.unread()
	g.look = false
	if w.svc.cfg.Router == nil || w.svc.haltedBy() != nil {
		w.failGroup(g, why)
		return
	}
	for _, t := range g.tasks {
		t.hops++
		switch {
		case t.reads() || t.local() && t.hops < maxTrips:
		case t.local() && !errors.Is(why, nonce.ErrFenced):
			// Whose it is does not help the client: that node was tried for it.
			w.refuse(t, routedTooOften(t))
		default:
			w.refuse(t, why)
		}
	}
	g.tasks = slices.DeleteFunc(g.tasks, (*task).over)
	switch {
	case slices.ContainsFunc(g.tasks, tooManyHops):
		w.rest(g)
	case len(g.tasks) > 0:
		w.rerouted = append(w.rerouted, g)
	}
}

// releaseGroup deals with a group whose shard this node would have to acquire, although
// it is retired: what its clients asked for goes to another node, if there is one.
func (w *worker) releaseGroup(g *group) {
	g.shard.Believe()
	if node, _ := w.svc.table.Destination(&g.shard.Term); node != "" && w.svc.cfg.Router != nil {
		w.toOwner(g, g.shard.Row(), nonce.ErrDraining)
		return
	}
	w.failGroup(g, nonce.ErrDraining)
}
