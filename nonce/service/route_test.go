package service_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func TestARequestAtAnyNodeIsAnsweredByTheOneThatOwnsTheShard(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		b.want("allocate id=x -> 0#1", "allocate count=2 -> 1#1 2#1", "used 0#1 -> CONSUMED", "release 1#1 -> RELEASED",
			"used 9#1 -> not_found", "release 2#7 -> conflict 2#1=HELD", "floor 5 -> floor 5 next 5",
			"allocate id=x -> conflict 0#1=CONSUMED", "status -> next 5 floor 5 held 1 released 0 consumed 4")
		if got := c.disk.summary(t, signer).Lease; got.Holder.Node != "a" || got.Token != 1 {
			t.Errorf("the owner is %+v, want a under token 1", got)
		}
		if b.events.String() != "" || !strings.HasPrefix(a.events.String(), "allocated 0#1, allocated 1#1, allocated 2#1, used 0#1") {
			t.Errorf("events: at the owner %q, at the other %q", a.events, b.events)
		}
		if a.Owned() != shards || b.Owned() != 0 {
			t.Errorf("a owns %d and b %d, want all and none", a.Owned(), b.Owned())
		}
	})
}

// TestTheOwnerIsFoundThoughTheTableIsOld: nobody has looked since b took the shard.
func TestTheOwnerIsFoundThoughTheTableIsOld(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		c.disk.give(signer, c.nodes["b"])
		c.nodes["a"].want("allocate -> 0#1", "allocate -> 1#1")
		c.nodes["c"].want("allocate -> 2#1", "allocate -> 3#1")
		if got, want := c.took(), "a>b allocate, a>b allocate, c>a allocate, c>b allocate, c>b allocate"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

// apart makes nodes look who owns what at different times.
func apart(*service.Config) { time.Sleep(150 * time.Millisecond) }

// TestAShardThatIsGivenUpForAnotherIsNotTakenAgain: requests go on at every node while the
// shards move, those of b and c by the node that has them.
func TestAShardThatIsGivenUpForAnotherIsNotTakenAgain(t *testing.T) {
	for name, asking := range map[string][]string{"its own clients ask": {"a"}, "other nodes ask": {"c"}, "the heir asks": {"b"}, "everybody asks": three} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, three, func(t *testing.T, c *cluster) {
				for _, name := range asking {
					c.nodes[name].want("floor 0 -> floor 0 next 0")
				}
				c.pin("b")
				for i := 0; c.owner(signer) != "b" || i < 2000; i++ {
					for _, name := range asking {
						c.nodes[name].want("floor 0 -> floor 0 next 0")
					}
					if time.Sleep(time.Millisecond); i > 10_000 {
						t.Fatalf("after ten seconds %s owns the shard", c.owner(signer))
					}
				}
				if got := c.disk.summary(t, signer).Lease.Token; got != 3 {
					t.Errorf("the token is %d, want 3: taken by a, given up, taken by b", got)
				}
			}, apart)
		})
	}
}

// TestWithoutForwardingAShardThatIsGivenUpIsLeftToItsHeir: clients are told who that is.
func TestWithoutForwardingAShardThatIsGivenUpIsLeftToItsHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a", watchEvery(500*time.Millisecond))
		a.want("allocate -> 0#1")
		start(t, d, "b", watchEvery(500*time.Millisecond), apart)
		if _, err := a.Move(t.Context(), nonce.ShardOf(signer, shards), "b"); err != nil {
			t.Fatal(err)
		}
		for range 5000 {
			time.Sleep(time.Millisecond)
			if got := a.run("floor 0"); got != "floor 0 next 1" && got != "not_owner b ws://b" {
				t.Fatalf("a client of a is told %q", got)
			}
		}
		if l := d.summary(t, signer).Lease; l.Holder.Node != "b" || l.Token != 3 {
			t.Errorf("the shard is %s's under token %d, want b's under token 3", l.Holder.Node, l.Token)
		}
	})
}

// TestAnHeirThatDoesNotTakeItsShardIsNotWaitedForForLong: b is live, and no acquire of it
// succeeds.
func TestAnHeirThatDoesNotTakeItsShardIsNotWaitedForForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a", watchEvery(500*time.Millisecond))
		a.want("allocate -> 0#1")
		d.onBefore(func(call memstore.Call) error {
			if call.Op == memstore.OpAcquire && call.Holder.Node == "b" {
				return errLocked
			}
			return nil
		})
		start(t, d, "b", watchEvery(500*time.Millisecond))
		if _, err := a.Move(t.Context(), nonce.ShardOf(signer, shards), "b"); err != nil {
			t.Fatal(err)
		}
		said := ""
		for i := 0; said != "not_owner b ws://b"; i++ {
			if time.Sleep(10 * time.Millisecond); i > 100 {
				t.Fatal("the shard was not given up")
			}
			said = a.run("floor 0")
		}
		time.Sleep(time.Second)
		a.want("floor 0 -> floor 0 next 1")
	})
}

// TestANodeThatHasJustComeIsKnownToWhoMeetsItsShard: it took the shard, and nobody has
// looked since it came.
func TestANodeThatHasJustComeIsKnownToWhoMeetsItsShard(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		fresh := start(t, c.disk, "fresh")
		c.disk.give(signer, fresh)
		queue := make(chan *nonce.Op, 1)
		c.set(func() {
			for _, n := range c.nodes {
				n.cfg.Router.(*links).to["fresh"] = queue
			}
		})
		ps := c.nodes["a"].send(allocate(signer))
		give(c.nodes["a"], <-queue, nonce.Answered, nonce.ErrNotFound)
		if got := results(ps); got[0] != "not_found" {
			t.Errorf("got %q, want what the new node answers", got)
		}
		c.set(func() { delete(c.nodes["b"].cfg.Router.(*links).to, "fresh") })
		delete(c.nodes["a"].cfg.Router.(*links).to, "fresh")
	})
}

// TestAShardThatIsPinnedElsewhereGoesThereWithoutARefusedRequest: clients of each node ask
// all the time.
func TestAShardThatIsPinnedElsewhereGoesThereWithoutARefusedRequest(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		var clients sync.WaitGroup
		stop := make(chan struct{})
		for _, name := range three {
			for shard := range shards {
				clients.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(70 * time.Millisecond):
						}
						op := allocate(c.disk.nameIn(shard))
						if got := c.nodes[name].do(op); op.Err != nil {
							t.Errorf("%s at %v was told %s", name, shard, got)
						}
						op = &nonce.Op{Kind: nonce.KindMarkUsed, Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0]}
						if got := c.nodes[name].do(op); got != "CONSUMED" {
							t.Errorf("%s at %v was told %s of a mark", name, shard, got)
						}
					}
				})
			}
		}
		for _, to := range []string{"b", "c", "a", "c"} {
			c.pin(to)
			pass(5 * time.Second)
			for shard := range shards {
				if got := c.owner(c.disk.nameIn(shard)); got != to {
					t.Errorf("shard %d is at %s, want %s", shard, got, to)
				}
			}
		}
		close(stop)
		clients.Wait()
	})
}

// TestASignerIsElsewhereWhereAnotherNodeThatIsReachedHasItsShard: what is said to whoever would
// wait for something before an op is sent on.
func TestASignerIsElsewhereWhereAnotherNodeThatIsReachedHasItsShard(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		b.want("allocate -> 1#1") // and knows the owner by now
		if a.Elsewhere(signer) || !b.Elsewhere(signer) {
			t.Errorf("elsewhere for its owner: %v, for the other node: %v", a.Elsewhere(signer), b.Elsewhere(signer))
		}
		c.set(func() { c.away["a"] = true })
		if b.Elsewhere(signer) {
			t.Error("it is elsewhere, and nobody is reached there")
		}
		c.set(func() { c.away["a"] = false })
	})
}

func TestWhatAnotherNodeSentIsNeverSentOn(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		c.nodes["a"].want("allocate -> 0#1")
		op := parse(t, "allocate")
		op.Path = new(nonce.Path)
		if got := c.nodes["b"].do(op); got != "not_owner a ws://a" || c.took() != "" {
			t.Errorf("got %q and sent %q", got, c.sent)
		}
	})
}

func TestWhatComesBehindAnOpThatWasSentBackIsSentBackToo(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		path := new(nonce.Path)
		first, second := parse(t, "allocate"), parse(t, "allocate")
		first.Path, second.Path = path, path
		if got := b.do(first); got != "not_owner a ws://a" {
			t.Fatalf("got %q", got)
		}
		c.disk.give(signer, b) // now b could do it
		if got := b.do(second); got != "not_owner a ws://a" {
			t.Errorf("an op overtook the one before it: %q", got)
		}
	})
}

func TestAFencedRequestIsRoutedAgainBeforeItIsAnswered(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		c.disk.give(signer, b)
		a.want("allocate -> 1#1")
		if got := c.took(); a.fig.get(&a.fig.fenced) != 1 || got != "a>b allocate" {
			t.Errorf("fenced %d times, sent %q", a.fig.fenced, got)
		}
	})
}

func TestAnOwnerThatDoesNotAnswerIsWaitedForUntilItsLeaseEnds(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		c.nodes["a"].want("allocate -> 0#1")
		c.set(func() { c.away["a"] = true })
		c.disk.mute("a", true)
		b := c.nodes["b"]
		b.want("allocate -> none", "used 0#1 -> none")
		pass(b.cfg.LeaseTTL * 2 / 3)
		began := time.Now()
		for b.run("allocate") == "none" {
			pass(100 * time.Millisecond)
		}
		if took := time.Since(began); took > b.cfg.LeaseTTL/3+time.Second {
			t.Errorf("b served %v after the lease may have ended", took)
		}
		b.want("used 0#1 -> CONSUMED")
	})
}

// TestAnOwnerThatLostTheStoreIsNotAskedForEver: it keeps answering "unavailable"; its lease
// ends; clients ask all the time.
func TestAnOwnerThatLostTheStoreIsNotAskedForEver(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		b.want("allocate -> 1#1")
		c.disk.onBefore(func(call memstore.Call) error {
			if call.Holder.Node == "a" {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
			}
			return nil
		})
		began := time.Now()
		for b.run("allocate") != "2#1" {
			pass(100 * time.Millisecond)
			if time.Since(began) > a.cfg.LeaseTTL+time.Second {
				t.Fatal("b asks a still")
			}
		}
	})
}

func TestAShardThatItsOwnerGaveBackBeforeItWentIsServedAtOnce(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		b.want("allocate -> 1#1") // b knows that a owns it
		a.StepDown()
		c.set(func() { c.away["a"] = true })
		began := time.Now()
		b.want("allocate -> 2#1")
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

func TestARequestWhoseAnswerIsLostIsAskedAgainAndOnlyAnAnswerSettlesIt(t *testing.T) {
	for _, test := range []struct{ line, again string }{
		{"allocate", "1#1"}, {"allocate id=y", "1#1"}, {"used 0#1", "CONSUMED"}, {"release 0#1", "RELEASED"}, {"floor 7", "floor 7 next 7"},
	} {
		t.Run(test.line, func(t *testing.T) {
			inCluster(t, two, func(t *testing.T, c *cluster) {
				c.nodes["a"].want("allocate -> 0#1")
				var lost atomic.Bool
				c.set(func() { c.lose = func(*nonce.Op) bool { return lost.CompareAndSwap(false, true) } })
				c.nodes["b"].want(test.line + " -> " + test.again)
				lost.Store(false)
				c.set(func() {
					c.before = func(string, *nonce.Op) {
						if lost.Load() { // what is asked again is refused
							c.disk.onBefore(func(memstore.Call) error { return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut} })
						}
					}
				})
				c.nodes["b"].want(test.line + " -> unknown")
				c.disk.onBefore(nil)
			})
		})
	}
}

// TestWhatIsAskedAgainIsAnsweredByWhoHasTheShardNow: the owner retires between both.
func TestWhatIsAskedAgainIsAnsweredByWhoHasTheShardNow(t *testing.T) {
	for _, line := range []string{"allocate -> 1#1", "allocate id=y -> 1#1", "used 0#1 -> CONSUMED", "release 0#1 -> RELEASED", "floor 7 -> floor 7 next 7"} {
		t.Run(line, func(t *testing.T) {
			inCluster(t, two, func(t *testing.T, c *cluster) {
				c.nodes["a"].want("allocate -> 0#1")
				var lost atomic.Bool
				c.set(func() {
					c.lose = func(*nonce.Op) bool { return lost.CompareAndSwap(false, true) }
					c.before = func(string, *nonce.Op) {
						if lost.Load() {
							c.nodes["a"].StepDown()
						}
					}
				})
				c.nodes["b"].want(line)
				if got := c.owner(signer); got != "b" {
					t.Errorf("%q has the shard, want b", got)
				}
			})
		})
	}
}

func TestAMarkThatIsAskedAgainAndMeetsWhatCameAfterIsUnknown(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
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
	})
}

func TestAReadWaitsForWhatItsConnectionSentBefore(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		began, open := c.disk.holdCommit(signer)
		ps := c.nodes["b"].send(parse(t, "allocate"), parse(t, "status"), parse(t, "allocate"))
		<-began
		open()
		if got, want := results(ps), []string{"0#1", "next 1 floor 0 held 1 released 0 consumed 0", "1#1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWhileARequestIsUnderWayTheNextTakesTheSamePathOrWaits: b learns meanwhile that the
// shard is at c.
func TestWhileARequestIsUnderWayTheNextTakesTheSamePathOrWaits(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		underWay, goOn := make(chan struct{}), make(chan struct{})
		var began atomic.Bool
		c.set(func() {
			c.before = func(string, *nonce.Op) {
				if began.CompareAndSwap(false, true) {
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
		if got := b.do(third); got != "not_owner a ws://a" {
			t.Errorf("another node's request was answered %q", got)
		}
		c.pin("c")
		pass(3 * time.Second) // it is there, and b has looked
		second := b.send(allocate(signer), parse(t, "status"))
		synctest.Wait()
		if got := c.took(); got != "b>a allocate" {
			t.Errorf("sent %q, want that the second waits", got)
		}
		close(goOn)
		got := append(results(first), results(second)...)
		if want := []string{"0#1", "1#1", "next 2 floor 0 held 2 released 0 consumed 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// capture is a router that keeps what it is given. It reaches nodes until it is told not to.
type capture struct {
	got  chan *nonce.Op
	away atomic.Bool
}

func (r *capture) Reaches(string) bool                     { return !r.away.Load() }
func (r *capture) Forward(_, _ string, op *nonce.Op) error { r.got <- op; return nil }

// beside starts a node beside another, which has the shard of signer and is nothing but a
// row in the store.
func beside(t *testing.T, d *disk, change ...func(*service.Config)) (*node, *capture) {
	t.Helper()
	h := d.register(t, "other")
	if _, err := d.Renew(t.Context(), h, time.Hour); err != nil {
		t.Fatal(err)
	}
	shard := nonce.ShardOf(signer, shards)
	if rows, err := d.Acquire(t.Context(), h, []int{shard}); err != nil || !rows[0].Taken {
		t.Fatal(rows, err)
	}
	if err := d.Pin(t.Context(), shard, "other"); err != nil {
		t.Fatal(err)
	}
	r := &capture{got: make(chan *nonce.Op, 10)}
	return start(t, d, "a", append(change, func(c *service.Config) { c.Router = r })...), r
}

func give(n *node, op *nonce.Op, v nonce.Verdict, err error) {
	op.Err = err
	if w := n.Return(op, v); w != nil {
		w.Wake()
	}
}

// The answers of another node may come in another order than the requests went: a
// reader refuses "draining" while earlier requests are still in the worker's queue.
func TestWhatComesBackInAnotherOrderGoesOnInItsOwn(t *testing.T) {
	for name, v := range map[string]nonce.Verdict{"bounced": nonce.Bounced, "doubtful": nonce.Doubtful} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n, r := beside(t, d)
			ps := n.send(parse(t, "allocate"), parse(t, "allocate"))
			op1, op2 := <-r.got, <-r.got
			d.takeAway(signer)
			give(n, op2, nonce.Bounced, nonce.ErrDraining)
			give(n, op1, v, nonce.ErrDraining)
			if got := fmt.Sprint(results(ps)); got != "[0#1 1#1]" {
				t.Errorf("got %s: the second overtook the first", got)
			}
		})
	}
}

// TestWhatMayHaveBeenDoneBeforeALaterOneIsNotDoneBehindIt: of two marks the first was not
// answered, and the second was.
func TestWhatMayHaveBeenDoneBeforeALaterOneIsNotDoneBehindIt(t *testing.T) {
	n, r := beside(t, newDisk())
	ps := n.send(parse(t, "allocate id=x"), parse(t, "allocate id=y"), parse(t, "allocate id=z"))
	op1, op2, op3 := <-r.got, <-r.got, <-r.got
	give(n, op1, nonce.Expired, nil)
	op2.Nonces, op2.Attempts = []int64{8}, []int64{1}
	give(n, op3, nonce.Answered, nonce.ErrNotFound)
	give(n, op2, nonce.Doubtful, nil)
	if got := fmt.Sprint(results(ps)); got != "[unknown unknown not_found]" {
		t.Errorf("got %s", got)
	}
}

// A group that waits for another node, and whose last op has just come back, is
// forgotten by the eviction, and split in two.
func TestAGroupThatWaitsForAnotherNodeIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n, r := beside(t, d, func(c *service.Config) { c.MaxSigners = 1 })
		first := n.send(parse(t, "allocate"), parse(t, "status"), parse(t, "allocate"), parse(t, "status"))
		op1 := <-r.got
		synctest.Wait() // the rest waits
		mine, _ := d.others()
		began, open := d.holdCommit(mine)
		plug := n.send(allocate(mine))
		<-began
		// op1 is answered while another batch of the worker is under way.
		op1.Nonces, op1.Attempts = []int64{0}, []int64{1}
		give(n, op1, nonce.Answered, nil)
		later := n.send(parse(t, "allocate"), parse(t, "status"))
		open()
		<-plug[0].done
		synctest.Wait()
		for i := int64(1); len(r.got) > 0; i++ {
			op := <-r.got
			op.Nonces, op.Attempts = []int64{i}, []int64{1}
			give(n, op, nonce.Answered, nil)
			synctest.Wait()
		}
		for i, p := range append(first, later...) {
			if !p.answered() {
				t.Errorf("op %d (%v) is never answered", i, p.op.Kind)
			}
		}
	})
}

// TestOrderIsKeptWhileShardsMove pipelines allocations of one signer at each
// node while shards are taken away, nodes are cut off and pins change. Nothing is
// released, so what one caller is given must ascend, and no nonce comes twice.
func TestOrderIsKeptWhileShardsMove(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCluster(t, three, func(t *testing.T, c *cluster) { orderIsKept(t, c, rand.New(rand.NewPCG(seed, 1))) },
				maxHolds(nonce.MaxLive), func(c *service.Config) { c.WatchEvery = 10 * time.Millisecond })
		})
	}
}

func orderIsKept(t *testing.T, c *cluster, r *rand.Rand) {
	seen := map[string]string{}
	served := 0
	for round := range 150 {
		c.pin(three[r.IntN(3)])
		c.set(func() {
			clear(c.away)
			c.away[three[r.IntN(3)]] = r.IntN(4) == 0
			c.lose = func(op *nonce.Op) bool { return rand.IntN(20) == 0 }
		})
		var all [][]*pending
		for _, name := range three {
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
					t.Errorf("round %d: %s was given %d after %d", round, three[i], n, last)
				} else {
					last = n
				}
				if seen[got] != "" {
					t.Errorf("%s was handed out twice", got)
				}
				seen[got] = three[i]
			}
		}
		pass(time.Duration(r.IntN(30)) * time.Millisecond)
	}
	if served < 900 {
		t.Errorf("only %d of 1800 were served", served)
	}
}
