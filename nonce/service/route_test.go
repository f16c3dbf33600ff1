package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

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
		queue := make(chan sent, 1)
		c.set(func() {
			for _, n := range c.nodes {
				n.cfg.Router.(*links).to["fresh"] = queue
			}
		})
		ps := c.nodes["a"].send(allocate(signer))
		forwarded := <-queue
		forwarded.back(&nonce.Result{Err: nonce.ErrNotFound}, nonce.Answered)
		if got := results(ps); got[0] != "not_found" {
			t.Errorf("got %q, want what the new node answers", got)
		}
		c.set(func() { delete(c.nodes["b"].cfg.Router.(*links).to, "fresh") })
		delete(c.nodes["a"].cfg.Router.(*links).to, "fresh")
	})
}
