package nonce_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
)

// cluster is nodes over one disk, each with a router whose links are goroutines.
type cluster struct {
	t     *testing.T
	disk  *disk
	nodes map[string]*node
	wire  sync.WaitGroup

	mu     sync.Mutex // guards what follows
	prefer func(signer string) string
	away   map[string]bool         // nodes that nobody reaches
	lose   func(op *nonce.Op) bool // the answer to op is lost
	before func(to string, op *nonce.Op)
	sent   []string // node and kind of each op sent
}

// newCluster starts nodes that all prefer the first.
func newCluster(t *testing.T, names ...string) *cluster {
	return newClusterOf(t, func(*nonce.Config) {}, names...)
}

func newClusterOf(t *testing.T, change func(*nonce.Config), names ...string) *cluster {
	c := &cluster{t: t, disk: newDisk(), nodes: map[string]*node{}, away: map[string]bool{}}
	c.prefer = func(string) string { return names[0] }
	for _, name := range names {
		r := &links{cluster: c, self: name, to: map[string]chan *nonce.Op{}}
		for _, other := range names {
			if other != name {
				r.to[other] = make(chan *nonce.Op, 1024)
			}
		}
		c.nodes[name] = start(t, c.disk, name, change, func(cfg *nonce.Config) { cfg.Router = r })
		for other, queue := range r.to {
			c.wire.Go(func() { r.carry(other, queue) })
		}
		t.Cleanup(func() { // before the nodes stop
			for _, queue := range r.to {
				close(queue)
			}
		})
	}
	t.Cleanup(c.settle)
	return c
}

// settle waits until nothing is under way, so that links may end.
func (c *cluster) settle() {
	for _, n := range c.nodes {
		for _, op := range n.send(parse(c.t, "status")) {
			op.wait()
		}
	}
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// links is the router of one node.
type links struct {
	*cluster
	self string
	to   map[string]chan *nonce.Op
	ids  atomic.Int64
}

func (r *links) Prefer(signer string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	node := r.prefer(signer)
	if node == r.self || r.away[node] {
		return ""
	}
	return node
}

func (r *links) Forward(node, _ string, op *nonce.Op) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	queue, ok := r.to[node]
	switch {
	case r.away[node] || !ok:
		return nonce.ErrPeerAway
	case len(queue) == cap(queue):
		return nonce.ErrForwardBusy
	}
	r.sent = append(r.sent, fmt.Sprintf("%s>%s %v", r.self, node, op.Kind))
	queue <- op
	return nil
}

// carry is the link to one node: it submits there what comes, in order, and brings
// back the answers.
func (r *links) carry(to string, queue <-chan *nonce.Op) {
	paths := map[uint64]*nonce.Path{}
	var answers sync.WaitGroup
	defer answers.Wait()
	for op := range queue {
		r.mu.Lock()
		before, lose := r.before, r.lose
		r.mu.Unlock()
		if before != nil {
			before(to, op)
		}
		if op.Kind == nonce.KindAllocate && op.RequestID == "" {
			op.RequestID = fmt.Sprintf("fwd-%s-%d", r.self, r.ids.Add(1))
		}
		if paths[op.PathID] == nil {
			paths[op.PathID] = new(nonce.Path)
		}
		there := &nonce.Op{
			Kind: op.Kind, Signer: op.Signer, Count: op.Count, RequestID: op.RequestID, Hold: op.Hold, Nonce: op.Nonce,
			Attempt: op.Attempt, TxHash: op.TxHash, Reason: op.Reason, Floor: op.Floor, Path: paths[op.PathID],
		}
		answers.Add(1)
		p := newPending(there)
		p.then = func() {
			defer answers.Done()
			r.back(op, there, lose != nil && lose(op))
		}
		place, ok := r.nodes[to].Reserve(op.Signer, op.Principal)
		if !ok {
			there.Err = nonce.ErrBusy
			p.Done(there)
			continue
		}
		r.nodes[to].Submit(place, there)
	}
}

// back returns an op with the answer of the other node.
func (r *links) back(op, there *nonce.Op, lost bool) {
	v := nonce.Answered
	op.Err = there.Err
	switch word, _, _ := strings.Cut(refusalOf(there), " "); {
	case lost:
		v = nonce.Doubtful
	case word == "not_owner", word == "fenced", word == "draining":
		v = nonce.Bounced
	default:
		op.Nonces, op.Attempts, op.Token, op.HeldUntil, op.HoldLeft = there.Nonces, there.Attempts, there.Token, there.HeldUntil, there.HoldLeft
		op.Status, op.Next, op.Floor = there.Status, there.Next, there.Floor
	}
	if w := r.nodes[r.self].Return(op, v); w != nil {
		w.Wake()
	}
}

func refusalOf(op *nonce.Op) string {
	if op.Err == nil {
		return ""
	}
	return refusal(op.Err)
}

func TestARequestAtAnyNodeIsAnsweredByTheOneThatOwnsTheSigner(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	a, b := c.nodes["a"], c.nodes["b"]
	b.want("allocate id=x -> 0#1", "allocate count=2 -> 1#1 2#1", "used 0#1 -> CONSUMED", "release 1#1 -> RELEASED",
		"used 9#1 -> not_found", "release 2#7 -> conflict 2#1=HELD", "floor 5 -> floor 5 next 5",
		"allocate id=x -> conflict 0#1=CONSUMED", "status -> next 5 floor 5 held 1 released 0 consumed 4")
	if got := c.disk.summary(t, signer).Lease; got.Holder.Node != "a" || got.Token != 1 {
		t.Errorf("the lease is %+v, want a's under token 1", got)
	}
	if b.events.String() != "" || !strings.HasPrefix(a.events.String(), "allocated 0#1, allocated 1#1, allocated 2#1, used 0#1") {
		t.Errorf("events: at the owner %q, at the other %q", a.events, b.events)
	}
	if a.Owned() != 1 || b.Owned() != 0 {
		t.Errorf("a owns %d and b %d, want 1 and 0", a.Owned(), b.Owned())
	}
}

func TestTheOwnerIsFoundWhereverTheSignerWouldSettle(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	c.set(func() { c.prefer = func(string) string { return "b" } })
	c.nodes["b"].want("allocate -> 0#1")
	c.set(func() { c.prefer = func(string) string { return "c" } })
	c.nodes["a"].want("allocate -> 1#1", "allocate -> 2#1")
	c.nodes["c"].want("allocate -> 3#1")
	want := []string{"a>c allocate", "a>b allocate", "a>b allocate", "c>b allocate"}
	if c.sent = slices.Clone(c.sent); !slices.Equal(c.sent, want) {
		t.Errorf("sent %q, want %q", c.sent, want)
	}
}

func TestAnIdleSignerSettlesWhereItBelongsAndOneInUseStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		a := c.nodes["a"]
		a.want("allocate -> 0#1")
		c.set(func() { c.prefer = func(string) string { return "b" } })
		for range 5 {
			time.Sleep(a.cfg.LeaseTTL / 2)
			a.want("allocate -> " + fmt.Sprintf("%d#1", c.disk.summary(t, signer).Next))
		}
		if got := c.disk.summary(t, signer).Lease.Holder.Node; got != "a" {
			t.Errorf("a signer in use went to %s", got)
		}
		time.Sleep(a.cfg.LeaseTTL + time.Second)
		a.want("allocate -> 6#1")
		if got := c.disk.summary(t, signer).Lease.Holder.Node; got != "b" {
			t.Errorf("an idle signer is still %s's", got)
		}
	})
}

func TestWhatAnotherNodeSentIsNeverSentOn(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	c.nodes["a"].want("allocate -> 0#1")
	op := parse(t, "allocate")
	op.Path = new(nonce.Path)
	if got := c.nodes["b"].do(op); got != "not_owner a ws://a" || len(c.sent) > 0 {
		t.Errorf("got %q and sent %q", got, c.sent)
	}
}

func TestWhatComesBehindAnOpThatWasSentBackIsSentBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		path := new(nonce.Path)
		first := parse(t, "allocate")
		first.Path = path
		if got := b.do(first); got != "not_owner a ws://a" {
			t.Fatalf("got %q", got)
		}
		time.Sleep(a.cfg.LeaseTTL + time.Second) // now b could have it
		c.set(func() { c.prefer = func(string) string { return "b" } })
		second := parse(t, "allocate")
		second.Path = path
		if got := b.do(second); got != "not_owner a ws://a" {
			t.Errorf("an op overtook the one before it: %q", got)
		}
	})
}

func TestAnOverdueHoldOfNobodyIsEndedWhereItsSignerSettlesAndElsewhereLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOf(t, sweepEvery(time.Second), "a", "b")
		ghost, err := c.disk.Register(t.Context(), lease.Presence{Node: "ghost", Patience: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		gone := startAs(t, c.disk, c.disk, ghost)
		expired := func(name string) int { n := c.nodes[name]; return n.fig.get(&n.fig.swept) }

		gone.want("allocate hold=20s -> 0#1")
		time.Sleep(22 * time.Second)
		if a, b := expired("a"), expired("b"); a != 1 || b != 0 {
			t.Errorf("a ended %d holds and b %d, want 1 and 0", a, b)
		}
		c.set(func() { c.prefer = func(string) string { return "nowhere" } })
		gone.want("allocate signer=other hold=20s -> 0#1")
		time.Sleep(22 * time.Second)
		if a, b := expired("a"), expired("b"); a != 1 || b != 0 {
			t.Errorf("ended at once by one at which the signer does not settle: %d and %d", a-1, b)
		}
		time.Sleep(5 * time.Second)
		if a, b := expired("a"), expired("b"); a+b != 2 {
			t.Errorf("not ended by anybody: %d and %d", a-1, b)
		}
	})
}

func TestAFencedRequestIsRoutedAgainBeforeItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		c.set(func() { c.away["a"], c.away["b"] = true, true })
		time.Sleep(a.cfg.LeaseTTL + time.Millisecond)
		b.want("allocate -> 1#1")
		c.set(func() { c.away["a"], c.away["b"] = false, false })
		a.want("allocate -> 2#1")
		if a.fig.get(&a.fig.fenced) != 1 || !slices.Equal(c.sent, []string{"a>b allocate"}) {
			t.Errorf("fenced %d times, sent %q", a.fig.fenced, c.sent)
		}
	})
}

func TestAnOwnerThatDoesNotAnswerIsWaitedForUntilItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		c.nodes["a"].want("allocate -> 0#1")
		c.set(func() { c.away["a"] = true })
		b := c.nodes["b"]
		b.want("allocate -> none", "used 0#1 -> none")
		time.Sleep(b.cfg.LeaseTTL + time.Millisecond)
		b.want("allocate -> 1#1", "used 0#1 -> CONSUMED")
	})
}

// TestWhoHearsLateOfADeadOwnerDoesNotWaitAWholeLease: c says whose the signer is, and
// not for how long.
func TestWhoHearsLateOfADeadOwnerDoesNotWaitAWholeLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		c.nodes["a"].want("allocate -> 0#1")
		c.set(func() { c.away["a"], c.prefer = true, func(string) string { return "c" } })
		b := c.nodes["b"]
		time.Sleep(b.cfg.LeaseTTL * 3 / 4)
		b.want("allocate -> none", "allocate -> none")
		if n := len(c.sent); n > 2 {
			t.Errorf("c was asked %d times at once", n)
		}
		time.Sleep(b.cfg.LeaseTTL/4 + time.Millisecond)
		b.want("allocate -> 1#1")
	})
}

func TestAnAnswerOfOneNodeSaysNothingOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		c.set(func() { c.prefer = func(string) string { return "c" } })
		b.want("allocate -> 1#1") // b knows that a owns it
		time.Sleep(2 * a.cfg.LeaseTTL)
		b.want("allocate -> 2#1", "allocate -> 3#1")
		c.set(func() {
			if got := c.sent[len(c.sent)-2:]; !slices.Equal(got, []string{"b>c allocate", "b>c allocate"}) {
				t.Errorf("sent %q, want both to the one that answered", got)
			}
		})
	})
}

func TestASignerThatItsOwnerGaveBackBeforeItWentIsServedAtOnce(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	a, b := c.nodes["a"], c.nodes["b"]
	a.want("allocate -> 0#1")
	c.set(func() { c.prefer = func(string) string { return "c" } })
	b.want("allocate -> 1#1") // b knows that a owns it
	a.Retire()
	c.set(func() { c.away["a"] = true })
	b.want("allocate -> 2#1")
}

func TestARetiringNodeGivesItsSignersToTheOthersAndServesOn(t *testing.T) {
	c := newCluster(t, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	a.want("allocate -> 0#1", "allocate signer=other -> 0#1")
	c.set(func() { c.prefer = func(string) string { return "b" } })
	a.Retire()
	if got := c.disk.summary(t, signer).Lease; got.Held(c.disk.summary(t, signer).Now) || a.Owned() != 0 {
		t.Errorf("after retiring the lease is %+v, and a owns %d", got, a.Owned())
	}
	a.want("allocate -> 1#1", "used 0#1 -> CONSUMED", "allocate signer=other -> 1#1")
	b.want("allocate -> 2#1")
	op := parse(t, "allocate signer=third")
	op.Path = new(nonce.Path)
	if got := a.do(op); got != "draining" {
		t.Errorf("a node that sent a request to a retiring one was told %q", got)
	}
}

func TestARetiringNodeThatIsAloneRefusesWhatItWouldHaveToAcquire(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.want("allocate -> 0#1")
	n.Retire()
	n.want("allocate -> draining", "status -> next 1 floor 0 held 1 released 0 consumed 0")
}

func TestARequestWhoseAnswerIsLostIsAskedAgainAndOnlyAnAnswerSettlesIt(t *testing.T) {
	for _, test := range []struct{ line, again string }{
		{"allocate", "1#1"}, {"allocate id=y", "1#1"}, {"used 0#1", "CONSUMED"}, {"release 0#1", "RELEASED"}, {"floor 7", "floor 7 next 7"},
	} {
		t.Run(test.line, func(t *testing.T) {
			c := newCluster(t, "a", "b")
			c.nodes["a"].want("allocate -> 0#1")
			var lost atomic.Bool
			c.set(func() { c.lose = func(*nonce.Op) bool { return lost.CompareAndSwap(false, true) } })
			c.nodes["b"].want(test.line + " -> " + test.again)
			lost.Store(false)
			c.set(func() {
				c.before = func(string, *nonce.Op) {
					if lost.Load() {
						c.nodes["a"].Retire() // what is asked again is refused
					}
				}
				c.prefer = func(string) string { return "a" }
			})
			c.nodes["b"].want(strings.Replace(test.line, "0#1", "0#1", 1) + " -> unknown")
		})
	}
}

func TestAMarkThatIsAskedAgainAndMeetsWhatCameAfterIsUnknown(t *testing.T) {
	c := newCluster(t, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	a.want("allocate -> 0#1")
	var lost atomic.Bool
	c.set(func() {
		c.lose = func(*nonce.Op) bool { return lost.CompareAndSwap(false, true) }
		c.before = func(string, *nonce.Op) {
			if lost.Load() {
				a.want("allocate -> 0#2")
			}
		}
	})
	b.want("release 0#1 -> unknown")
}

func TestAReadWaitsForWhatItsConnectionSentBefore(t *testing.T) {
	c := newCluster(t, "a", "b")
	began, open := c.disk.holdCommit(signer)
	ps := c.nodes["b"].send(parse(t, "allocate"), parse(t, "status"), parse(t, "allocate"))
	<-began
	open()
	if got, want := results(ps), []string{"0#1", "next 1 floor 0 held 1 released 0 consumed 0", "1#1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWhileARequestIsUnderWayTheNextTakesTheSamePathOrWaits(t *testing.T) {
	c := newCluster(t, "a", "b", "c")
	underWay, goOn := make(chan struct{}), make(chan struct{})
	c.set(func() {
		c.before = func(to string, _ *nonce.Op) {
			if to == "a" {
				close(underWay)
				<-goOn
			}
		}
	})
	b := c.nodes["b"]
	first := b.send(allocate(signer))
	<-underWay
	third := parse(t, "allocate")
	third.Path = new(nonce.Path)
	if got := b.do(third); got != "not_owner a " {
		t.Errorf("another node's request was answered %q", got)
	}
	c.set(func() { c.before, c.prefer = nil, func(string) string { return "c" } })
	second := b.send(allocate(signer))
	b.want("allocate signer=other -> 0#1") // the worker has seen the second
	c.set(func() {
		if !slices.Equal(c.sent, []string{"b>a allocate", "b>c allocate"}) {
			t.Errorf("sent %q", c.sent)
		}
	})
	close(goOn)
	if got := append(results(first), results(second)...); !slices.Equal(got, []string{"0#1", "1#1"}) {
		t.Errorf("got %q", got)
	}
}

func TestTwoNodesThatPreferEachOtherServeBothTheirClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		a, b := c.nodes["a"], c.nodes["b"]
		for i := range 20 {
			name := fmt.Sprintf("s%d", i)
			// Each believes that the other is the one.
			var turn atomic.Int64
			c.set(func() { c.prefer = func(string) string { return []string{"b", "a"}[turn.Add(1)%2] } })
			pa, pb := a.send(allocate(name), allocate(name)), b.send(allocate(name), allocate(name))
			got := append(results(pa), results(pb)...)
			slices.Sort(got)
			for i, r := range got {
				if want := fmt.Sprintf("%d#1", i); r != want && r != "none" {
					t.Errorf("%s: got %q", name, got)
					break
				}
			}
		}
	})
}

// takeAway ends the lease of a signer beneath its owner, unless somebody is faster. It
// does so in the owner's name: a later incarnation, if seen, would end the node.
func (d *disk) takeAway(name string) {
	s, err := d.Summary(context.Background(), name)
	if err != nil || s.Lease.Holder.Node == "" {
		return
	}
	h := s.Lease.Holder
	snaps, err := d.Store.Acquire(context.Background(), h, time.Minute, []nonce.Need{{Signer: name}})
	if err == nil && snaps[0].Acquired {
		_, _ = d.Store.Release(context.Background(), h, []nonce.ReleaseTerm{{ID: snaps[0].ID, Token: snaps[0].Lease.Token}})
	}
}

// TestOrderIsKeptWhileSignersMove pipelines allocations of one signer at each
// node while leases end, nodes are cut off and preferences change. Nothing is
// released, so what one caller is given must ascend, and no nonce comes twice.
func TestOrderIsKeptWhileSignersMove(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newCluster(t, "a", "b", "c")
			names := []string{"a", "b", "c"}
			r := rand.New(rand.NewPCG(seed, 1))
			seen := map[string]string{}
			served := 0
			for round := range 150 {
				c.set(func() {
					favourite, away := names[r.IntN(3)], names[r.IntN(3)]
					c.prefer = func(string) string { return favourite }
					clear(c.away)
					c.away[away] = r.IntN(4) == 0
					c.lose = func(op *nonce.Op) bool { return rand.IntN(20) == 0 }
				})
				var all [][]*pending
				for _, name := range names {
					all = append(all, c.nodes[name].send(allocate(signer), allocate(signer), allocate(signer), allocate(signer)))
				}
				if round%3 == 0 {
					c.disk.takeAway(signer)
				}
				for i, ps := range all {
					last := int64(-1)
					for _, p := range ps {
						got := p.wait()
						if p.op.Err != nil {
							continue
						}
						served++
						if n := p.op.Nonces[0]; n <= last {
							t.Errorf("round %d: %s was given %d after %d", round, names[i], n, last)
						} else {
							last = n
						}
						if seen[got] != "" {
							t.Errorf("%s was handed out twice", got)
						}
						seen[got] = names[i]
					}
				}
			}
			if served < 150 {
				t.Errorf("only %d of 1800 were served", served)
			}
		})
	}
}
