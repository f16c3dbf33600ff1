package nonce

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/lease"
)

// Router carries ops to the nodes that own their signers, and says where the lease
// of a signer settles that nobody owns. A Service without one answers NotOwnerError.
// Its methods are called from workers: they must not block, nor call the Service.
type Router interface {
	// Prefer names the node at which the signer should settle: "" is this one.
	Prefer(signer string) (node string)

	// Forward takes op over and sends it to the node. url is where the store says
	// the node is, "" when it is not known. Ops of one signer sent to one node
	// reach it in the order of the calls. With an error nothing was sent and op is
	// still the caller's: ErrPeerAway or ErrForwardBusy. Without one the router
	// calls Service.Return once, from a goroutine of its own.
	Forward(node, url string, op *Op) error
}

// Verdict says what became of an op that was forwarded.
type Verdict uint8

// The verdicts.
const (
	// Answered: the other node has answered; the result part of the op, Err
	// included, is its answer.
	Answered Verdict = iota
	// Bounced: the other node did not do it, or never got it, and says in Op.Err
	// why: *NotOwnerError, ErrFenced, ErrDraining or ErrPeerAway. It is routed again.
	Bounced
	// Doubtful: it was sent and not answered, so it may have happened. It is
	// asked again; only an answer settles it.
	Doubtful
	// Expired: as Doubtful, but the time for it is over.
	Expired
)

// Errors of forwarding. Both mean that nothing was sent.
var (
	// ErrPeerAway: the other node cannot be reached.
	ErrPeerAway = errors.New("the node that serves the signer is not reached from here")
	// ErrForwardBusy: as many requests wait for the other node as may.
	ErrForwardBusy = errors.New("too many requests wait for the node that owns the signer")
)

// Path is the way of one signer's ops from one other node, those with one
// Op.PathID there. When one of them is not done here but sent back, those behind
// it are sent back too, so that they cannot overtake it: also those that the other
// node had sent before it knew. It begins anew only when all have come back, under
// another number. Whoever takes ops from a node makes a Path for each number, and
// forgets a broken one only when nothing of it can be on its way any more.
type Path struct {
	back atomic.Pointer[error] // why an op was sent back
}

// Broken reports whether an op was sent back.
func (p *Path) Broken() bool { return p.back.Load() != nil }

// Reason is why an op was sent back; nil: none was.
func (p *Path) Reason() error {
	if why := p.back.Load(); why != nil {
		return *why
	}
	return nil
}

// Break says that an op of the path was sent back, and why. The service does so for
// its own refusals. The first reason stays.
func (p *Path) Break(why error) { p.back.CompareAndSwap(nil, &why) }

// sentBack reports whether an op of another node ended in an error with which that
// node routes it again.
func sentBack(err error) bool {
	_, elsewhere := errors.AsType[*NotOwnerError](err)
	return elsewhere || err == ErrFenced || err == ErrDraining
}

// trail is what is under way of one signer at one other node. Ops that come back
// are kept until the last is answered or back, so that they go on in their order
// and before all later ones.
type trail struct {
	st   *state
	node string
	id   uint64

	mu     sync.Mutex // guards what follows
	sent   int        // ops sent so far
	far    int        // the order of the latest op that was answered, or may have been done
	out    int        // ops under way
	back   []*Op      // ops to be routed again, as they came
	wanted bool       // a group waits for the last
}

// leave counts an op as under way, unless one has come back: then the path is
// broken, and the op has to wait.
func (t *trail) leave(op *Op) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.back) > 0 {
		return false
	}
	t.sent++
	t.out++
	op.trail, op.order = t, t.sent
	return true
}

// arrive counts an op as no longer under way. order is its order, and the op is
// nil if it is not to be routed again. It returns true when that was the last, and
// somebody has to look.
func (t *trail) arrive(order int, v Verdict, op *Op) (look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out--; op != nil {
		t.back = append(t.back, op)
	}
	if v != Bounced {
		t.far = max(t.far, order)
	}
	return t.out == 0 && (t.wanted || len(t.back) > 0)
}

// wait says that somebody waits for the last op under way, unless there is none.
func (t *trail) wait() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = t.out > 0
	return t.wanted
}

// idle reports whether nothing is under way, and nothing came back.
func (t *trail) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out == 0 && len(t.back) == 0
}

// home returns the ops that came back, and how far the path went, if none is under
// way any more.
func (t *trail) home() (back []*Op, far int, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.out > 0 {
		return nil, 0, false
	}
	return t.back, t.far, true
}

// Return gives an op back that a Router took over; see Verdict. The Waker, which
// may be nil, is for the caller to wake, after other ops that it returns at the
// same time.
func (s *Service) Return(op *Op, v Verdict) Waker {
	sh, t, order := s.shards[s.Lane(op.Signer)], op.trail, op.order
	op.trail = nil
	var w Waker
	var back *Op
	switch {
	case v == Answered && op.Err == nil:
		atomic.StoreInt64(&t.st.servedAt, int64(time.Since(s.began))) // what it wrote renewed the lease
		w = op.tell()
	case v == Answered, v == Bounced && op.Err == ErrGone:
		op.refused()
		w = op.tell()
	case v == Expired:
		op.doubt, op.Err = true, &UnavailableError{Outcome: Unknown, Err: errDoubt}
		op.refused()
		w = op.tell()
	case v == Doubtful:
		op.doubt, op.Err, back = true, errDoubt, op
	default:
		back = op
	}
	if t.arrive(order, v, back) {
		sh.welcome(t.st)
	}
	return w
}

func (op *Op) tell() Waker {
	if op.Completion == nil {
		return nil
	}
	return op.Completion.Done(op)
}

// welcome makes the worker look at a signer of which nothing is under way any
// more at another node.
func (sh *shard) welcome(st *state) {
	sh.mu.Lock()
	sh.home = append(sh.home, st)
	sh.mu.Unlock()
	sh.signal()
}

// maxTrips bounds how often an op is routed: to the node where the signer should
// be, to the one that owns it, and again when it moved meanwhile.
const maxTrips = 5

// own reports whether this op is a client's of this node, which may be sent to
// another; those of other nodes and the service's own may not.
func (op *Op) own() bool {
	return op.Path == nil && op.Kind != kindSweep && op.Kind != kindAlign && op.Kind != kindPrune && op.Completion != nil
}

// depart takes from the head of the group what is not to be run here now: ops
// whose path is broken, and those that go to another node. It returns false when
// the rest has to wait for what is under way there.
func (sh *shard) depart(g *group) (here bool) {
	st := g.st
	for {
		sh.collect(g)
		sh.dropBroken(g)
		if len(g.ops) == 0 {
			return true
		}
		op := g.ops[0]
		switch {
		case st.away != nil && !op.own() && !op.Kind.reads():
			op.Err = &NotOwnerError{Node: st.away.node, URL: st.ownerURL}
			g.pop(sh, 1)
			continue
		case st.away != nil && op.Kind.reads():
			if sh.wait(g) {
				return false
			}
			continue
		case op.Kind.reads() || !op.own():
			return true
		}
		node := sh.target(st)
		if node == "" && st.away == nil {
			return !sh.namedAfterwards(g)
		}
		if (st.away != nil && st.away.node != node || !sh.send(g, node)) && sh.wait(g) {
			return false
		}
	}
}

// dropBroken sends back the ops of the group whose path is broken.
func (sh *shard) dropBroken(g *group) {
	left := g.ops[:0]
	for _, op := range g.ops {
		if op.Path == nil || !op.Path.Broken() {
			left = append(left, op)
			continue
		}
		op.Err = *op.Path.back.Load()
		sh.finish(op)
	}
	g.ops = left
}

// target is the node to which the next op of a signer goes: "" is this one. Where
// a lease that this node held has ended, or nobody has one, the signer goes to the
// node it prefers; while it is in use it stays where it is.
func (sh *shard) target(st *state) string {
	now := sh.marked
	switch {
	case st.halted, st.owned && (st.term.Trusted(now) || st.fast() && st.granted(now)), sh.svc.haltedBy() != nil:
		return ""
	case st.owner != "" && (now.Before(st.ownerUntil) || now.Sub(sh.svc.began)-time.Duration(atomic.LoadInt64(&st.servedAt)) < sh.svc.cfg.LeaseTTL):
		if st.owner == sh.svc.holder.Node {
			return ""
		}
		return st.owner
	}
	st.owner = "" // what another node answers now says nothing about that one
	node := sh.svc.cfg.Router.Prefer(st.signer)
	if node != "" {
		st.setOwned(sh, false)
	}
	return node
}

// namedAfterwards reports whether another node has named this one as the owner
// although it is retired, and then sets the group aside for a moment, each time a
// longer one. That node does so for as long as requests of its own are under way
// here, which are being sent back; then it serves the signer.
func (sh *shard) namedAfterwards(g *group) bool {
	if !sh.svc.retired.Load() || g.st.owner != sh.svc.holder.Node {
		return false
	}
	g.st.owner = ""
	sh.park(g, sh.svc.cfg.LockRetry<<g.ops[0].trips, errRouted)
	return true
}

// giveAway deals with a group whose signer this node would have to acquire, although
// it is retired: what its clients asked for goes to another node, if there is one.
func (sh *shard) giveAway(g *group) {
	if r := sh.svc.cfg.Router; r == nil || r.Prefer(g.st.signer) == "" {
		g.fail(sh, ErrDraining)
		return
	}
	sh.elsewhere(g, lease.Grant{}, time.Time{}, ErrDraining)
}

// send hands the first op of the group to the router. Where nothing was sent the
// op has ended, or is to be routed in another way by the next try. It returns
// false when the op has to wait.
func (sh *shard) send(g *group, node string) bool {
	st, op := g.st, g.ops[0]
	if st.away == nil {
		st.away = &trail{st: st, node: node, id: sh.svc.trails.Add(1)}
	}
	t := st.away
	if !t.leave(op) {
		return false
	}
	url := ""
	if st.owner == node {
		url = st.ownerURL
	}
	op.doubt, op.recovered, op.made = op.doubt || op.recovered, false, false
	op.trips++
	inShard, principal := op.inShard, op.Principal // the op is the router's, once it takes it
	op.inShard, op.PathID = false, t.id
	err := sh.svc.cfg.Router.Forward(node, url, op)
	if err == nil {
		if inShard {
			sh.shares.leave(principal)
		}
		g.ops = g.ops[1:]
		return true
	}
	op.trail, op.inShard = nil, inShard
	t.arrive(op.order, Bounced, nil)
	switch {
	case errors.Is(err, ErrForwardBusy):
		op.Err = err
	case op.trips < maxTrips && (st.owner != node || sh.disbelieve(st)):
		return false // the router prefers another one now
	case st.owner == node:
		op.Err = &UnavailableError{Outcome: NotSent, Err: &PeerAwayError{Node: node, URL: st.ownerURL}}
	default:
		op.Err = &UnavailableError{Outcome: NotSent, Err: err}
	}
	g.pop(sh, 1)
	return true
}

// lookAgain is how often it is looked whether a node that cannot be reached still
// owns a signer. More often costs the store more reads while a node is away.
const lookAgain = 250 * time.Millisecond

// disbelieve forgets who owns the signer, unless that was done just now, and returns
// whether it did. The next op then goes where the signer would settle, and the store
// says whose it is: a node that cannot be reached may have given it back before it
// went, and if it did not, whoever named it did not say for how long it owns it.
func (sh *shard) disbelieve(st *state) bool {
	if sh.marked.Sub(st.disbelievedAt) < lookAgain {
		return false
	}
	st.owner, st.disbelievedAt = "", sh.marked
	return true
}

// wait sets the group aside until all that is under way of its signer has come
// back, unless it has already. What came from another node does not wait: that
// could be waiting for this one.
func (sh *shard) wait(g *group) bool {
	if !g.st.away.wait() {
		return false
	}
	ops := g.ops
	g.ops, g.giveUpAt = make([]*Op, 0, len(ops)), time.Time{}
	sh.waiting[g.st.signer] = g
	for _, op := range ops {
		sh.joinWaiting(g, op)
	}
	return true
}

// joinWaiting adds an op to a group that waits.
func (sh *shard) joinWaiting(g *group, op *Op) {
	if op.own() || op.Kind.reads() {
		g.ops = append(g.ops, op)
		return
	}
	op.Err = &NotOwnerError{Node: g.st.away.node, URL: g.st.ownerURL}
	sh.finish(op)
}

// collect puts what came back from another node before the rest of the group.
func (sh *shard) collect(g *group) {
	st := g.st
	if st.away == nil {
		return
	}
	back, far, all := st.away.home()
	if !all {
		return
	}
	st.away = nil
	// A refusal of the other node's reader may come before one of its worker that
	// came first.
	slices.SortFunc(back, func(a, b *Op) int { return cmp.Compare(a.order, b.order) })
	left := make([]*Op, 0, len(back)+len(g.ops))
	for _, op := range back {
		why := op.Err
		sh.learn(st, why)
		switch op.Err = nil; {
		case why == errDoubt && far > op.order:
			// If it was not done, doing it now would put it behind one that came later.
			op.Err = &UnavailableError{Outcome: Unknown, Err: errDoubt}
		case op.trips >= maxTrips:
			op.Err = &UnavailableError{Outcome: NotSent, Err: errRouted}
		default:
			left = append(left, op)
			continue
		}
		sh.finish(op)
	}
	g.ops = append(left, g.ops...)
}

var errDoubt = errors.New("the node that owns the signer was asked and has not answered")

var errRouted = errors.New("the signer moved between nodes again and again, or its node cannot be reached; ask again")

// learn takes in why an op came back.
func (sh *shard) learn(st *state, why error) {
	st.owner = ""
	if e, ok := errors.AsType[*NotOwnerError](why); ok {
		st.owner, st.ownerURL, st.ownerUntil = e.Node, e.URL, time.Now().Add(sh.svc.cfg.LeaseTTL)
	}
}

// elsewhere deals with a group whose signer is not this node's, for the reason
// given: with a router, what clients of this node asked for is routed again.
func (sh *shard) elsewhere(g *group, l lease.Grant, now time.Time, why error) {
	st := g.st
	if sh.svc.cfg.Router == nil || sh.svc.haltedBy() != nil {
		g.fail(sh, why)
		return
	}
	if st.owner = ""; l.Held(now) {
		st.owner, st.ownerURL, st.ownerUntil = l.Holder.Node, l.URL, time.Now().Add(l.ExpiresAt.Sub(now))
	}
	left := g.ops[:0]
	for _, op := range g.ops {
		if op.trips++; op.Kind.reads() || op.own() && op.trips < maxTrips {
			left = append(left, op)
			continue
		}
		if op.Err = why; op.own() && why != ErrFenced {
			// Whose it is does not help the client: that node was tried for it.
			op.Err = &UnavailableError{Outcome: NotSent, Err: errRouted}
		}
		sh.finish(op)
	}
	g.ops, g.count = left, 0
	if len(left) > 0 {
		sh.anew = append(sh.anew, g)
	}
}

// Retire gives back every lease and acquires none any more: requests of clients go
// to other nodes, those of other nodes are told ErrDraining. It may be called
// twice, and before Stop. In mode basic it does nothing.
func (s *Service) Retire() {
	s.retired.Store(true)
	for _, sh := range s.shards {
		sh.turn.Lock()
		sh.giveUp()
		sh.turn.Unlock()
	}
}

// giveUp gives back the leases of all signers, also those that this node does not
// trust any more because they end soon: until then nobody else can have the signer.
func (sh *shard) giveUp() {
	if sh.owned.Load() == 0 {
		return
	}
	var terms []ReleaseTerm
	for _, st := range sh.states {
		terms = sh.letGo(st, sh.svc.cfg.LeaseTTL, terms)
	}
	sh.release(terms)
}

// setOwned says whether the lease of the signer is this node's, as far as memory
// goes.
func (st *state) setOwned(sh *shard, owned bool) {
	if owned != st.owned {
		if st.owned = owned; st.chain != nil {
			st.chain.Owned(owned)
		}
		if owned {
			sh.owned.Add(1)
		} else {
			sh.owned.Add(-1)
		}
	}
}

// Owned is the number of signers that this node remembers as its own. The leases
// of some may have ended since.
func (s *Service) Owned() int {
	owned := 0
	for _, sh := range s.shards {
		owned += int(sh.owned.Load())
	}
	return owned
}
