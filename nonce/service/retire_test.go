package service_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func TestARetiringNodeGivesItsShardsUpInOneStatementAndServesOn(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		other, _ := c.disk.others()
		a.want("allocate -> 0#1", "allocate signer="+other+" -> 0#1")
		releases := 0
		c.disk.onBefore(func(call memstore.Call) error {
			if call.Op == memstore.OpRelease {
				releases++
			}
			return nil
		})
		a.StepDown()
		a.StepDown()
		if releases != 1 || a.Owned() != 0 || c.owner(signer) != "" {
			t.Errorf("after retiring, in %d statements, a owns %d, and %q has the shard", releases, a.Owned(), c.owner(signer))
		}
		a.want("allocate -> 1#1", "used 0#1 -> CONSUMED", "allocate signer="+other+" -> 1#1")
		b.want("allocate -> 2#1")
		op := parse(t, "allocate signer=plug")
		op.Path = new(nonce.Path)
		c.disk.takeAway("plug")
		if got := a.do(op); got != "draining" {
			t.Errorf("a node that sent a request to a retiring one was told %q", got)
		}
	})
}

// TestWhatIsUnderWayWhenANodeRetiresIsNotRefused: requests of clients and of another node.
func TestWhatIsUnderWayWhenANodeRetiresIsNotRefused(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		began, open := c.disk.holdCommit(signer)
		ps := a.send(allocate(signer))
		<-began
		ps = append(ps, a.send(allocate(signer), allocate(signer))...)
		ps = append(ps, b.send(allocate(signer), allocate(signer))...)
		var retire sync.WaitGroup
		retire.Go(a.StepDown)
		open()
		got := results(ps)
		slices.Sort(got)
		if want := []string{"0#1", "1#1", "2#1", "3#1", "4#1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q in any order", got, want)
		}
		retire.Wait()
	})
}

// TestALeaseThatIsAboutToEndIsGivenBackToo: nobody else can have it before it has ended.
func TestALeaseThatIsAboutToEndIsGivenBackToo(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		c.disk.mute("a", true)
		pass(a.cfg.LeaseTTL * 9 / 10)
		a.StepDown()
		began := time.Now()
		b.want("allocate -> 1#1")
		if took := time.Since(began); took != 0 {
			t.Errorf("b had to wait %v", took)
		}
	})
}

// TestARowThatIsLockedKeepsItsShardOnly: the other shards are given back at once.
func TestARowThatIsLockedKeepsItsShardOnly(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	for i := range shards {
		n.do(allocate(d.nameIn(i)))
	}
	d.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpRelease && slices.ContainsFunc(c.Terms, func(t lease.ShardTerm) bool { return t.Shard == 1 }) {
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errCut}
		}
		return nil
	})
	n.StepDown()
	for i := range shards {
		if kept := d.load(t, d.nameIn(i)).Shard.Owner.Node == "a"; kept != (i == 1) {
			t.Errorf("shard %d is still this node's: %v", i, kept)
		}
	}
	d.onBefore(nil)
}

// fallsSilent aborts calls of an op about several shards, as for a row that is locked, and answers
// none about a single one.
func (d *disk) fallsSilent(op memstore.Op) {
	d.onBefore(func(c memstore.Call) error {
		switch {
		case c.Op != op:
			return nil
		case len(c.Shards)+len(c.Terms) > 1:
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errCut}
		}
		return silent(c)
	})
}

func storeTimeout(c *service.Config) { c.StoreTimeout = time.Second }

// TestAStoreThatFallsSilentHoldsUpAStepDownOnce, and not once for each shard.
func TestAStoreThatFallsSilentHoldsUpAStepDownOnce(t *testing.T) {
	synctest.Test(t, stepsDownWithASilentStore)
}

func stepsDownWithASilentStore(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a", storeTimeout)
	d.fallsSilent(memstore.OpRelease)
	defer d.onBefore(nil)
	began := time.Now()
	n.StepDown()
	if took := time.Since(began); took > (shards-1)*n.cfg.StoreTimeout {
		t.Errorf("it took %v", took)
	}
}

// TestAStoreThatFallsSilentHoldsUpAnAcquireOnce, too.
func TestAStoreThatFallsSilentHoldsUpAnAcquireOnce(t *testing.T) {
	synctest.Test(t, acquiresWithASilentStore)
}

func acquiresWithASilentStore(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a", storeTimeout)
	var all []*nonce.Op
	for i := range shards {
		d.takeAway(d.nameIn(i))
		n.do(&nonce.Op{Kind: nonce.KindMarkUsed, Signer: d.nameIn(i), Nonce: 99, Attempt: 99, Path: new(nonce.Path)}) // it learns of that
		d.takeAway(d.nameIn(i))
		all = append(all, allocate(d.nameIn(i)))
	}
	d.fallsSilent(memstore.OpAcquire)
	defer d.onBefore(nil)
	began := time.Now()
	for _, p := range n.send(all...) {
		if got := p.wait(); got != "none" {
			t.Errorf("got %s", got)
		}
	}
	if took := time.Since(began); took > (shards-1)*n.cfg.StoreTimeout {
		t.Errorf("it took %v", took)
	}
}

func TestAStopWhoseTimeIsOverKnowsThatAllIsQuiet(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.Stop()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // a select would choose either
		if err := n.Service.Stop(over); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAMoveThatWasNotSentSaysSo: the nodes could not be read, or the service has stopped.
func TestAMoveThatWasNotSentSaysSo(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	d.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpOwners {
			return errCut
		}
		return nil
	})
	if _, err := n.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.NotSent {
		t.Errorf("without the nodes: %v", err)
	}
	d.onBefore(nil)
	n.Stop()
	if _, err := n.Move(t.Context(), 0, "a"); nonce.OutcomeOf(err) != nonce.NotSent || !errors.Is(err, nonce.ErrDraining) {
		t.Errorf("after Stop: %v", err)
	}
}
