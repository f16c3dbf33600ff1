package service_test

import (
	"strings"
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
	for name, asking := range map[string][]string{"its own clients ask": {"a"}, "other nodes ask": {"c"}, "the preferred owner asks": {"b"}, "everybody asks": three} {
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

// TestWithoutForwardingAShardThatIsGivenUpIsLeftToItsPreferredOwner: clients are told who that is.
func TestWithoutForwardingAShardThatIsGivenUpIsLeftToItsPreferredOwner(t *testing.T) {
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
