package service_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

var away = &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}

// Failover that takes a while: unknown commit, acquire fails, later the acquire of a request
// is what opens the first connection to the new primary, which lacks 1#1 and 2#1.
func TestFailoverSeenByTheAcquireOfARequest(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	toReplica := d.Backup()
	n.want("allocate -> 1#1", "allocate -> 2#1") // acknowledged, lost at the failover
	back := d.storeAway(d.onBefore)
	n.want("allocate -> unknown", "allocate -> none")
	back()
	d.onBefore(once(memstore.OpAcquire, signer, func(memstore.Call) error { toReplica(); d.RaiseGeneration(); return nil }))
	n.want("allocate -> none", "allocate -> none", "floor 3 -> floor 3 next 3", "allocate -> 3#1")
	if got := n.StoppedSigners(); got != 0 || n.fig.get(&n.fig.wentBack) != 1 {
		t.Errorf("%d stopped, %d alarms", got, n.fig.get(&n.fig.wentBack))
	}
}

// The most ordinary failover, with a chain: the commit breaks, the acquire that settles opens
// the first connection to the new primary.
func TestFailoverWithAChain(t *testing.T) {
	d := newDisk()
	b := &book{view: nonce.ChainView{Known: true}}
	n := start(t, d, "a", func(c *service.Config) { c.Chain = b })
	n.want("allocate -> 0#1")
	toReplica := d.Backup()
	n.want("allocate -> 1#1", "allocate -> 2#1") // acknowledged, lost at the failover
	d.onBefore(once(memstore.OpCommit, signer, func(memstore.Call) error { toReplica(); d.RaiseGeneration(); return errCut }))
	n.want("allocate -> unknown", "allocate -> none", "allocate -> none", "floor 3 -> floor 3 next 3", "allocate -> 3#1")
}

// compareAll with a chain, where one shard cannot be acquired at once.
func TestCompareAllWithAChainAndAFailedAcquire(t *testing.T) {
	d := newDisk()
	b := &book{view: nonce.ChainView{Known: true}}
	n := start(t, d, "a", func(c *service.Config) { c.Chain = b })
	n.want("allocate -> 0#1")
	toReplica := d.Backup()
	n.want("allocate -> 1#1", "allocate -> 2#1")
	toReplica()
	d.RaiseGeneration()
	d.onBefore(once(memstore.OpAcquire, signer, func(memstore.Call) error { return away }))
	n.want("allocate -> none", "allocate -> none")
	// What is planned behind the safe floor goes by the chain.
	b.says(func(v *nonce.ChainView) { v.Mined = 10 })
	if got := n.batch(parse(t, "floor 3"), parse(t, "allocate")); got[1] != "10#1" {
		t.Errorf("the chain has used 0 to 9, and after the floor %s was handed out", got[1])
	}
}

// No new generation: the token tells, at the acquire of a request. The op of that very batch.
func TestTokenWentBackSeenByAcquire(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate -> 0#1")
	restore := d.Backup()
	for range 2 { // settled unknown commits raise the token
		d.breakLate()
		n.do(allocate(signer))
	}
	n.want("allocate -> 3#1")
	back := d.storeAway(d.onBefore)
	n.want("allocate -> unknown")
	back()
	restore()
	n.want("allocate -> none", "allocate -> none")
}

// TestASignerThatWentBackWhileItsShardWasLostFollowsItsChainAgain: without a new generation, and without
// a token that fell; its row alone tells.
func TestASignerThatWentBackWhileItsShardWasLostFollowsItsChainAgain(t *testing.T) {
	d := newDisk()
	b := &book{view: nonce.ChainView{Known: true}}
	n := start(t, d, "a", func(c *service.Config) { c.Chain = b })
	n.want("allocate -> 0#1")
	toReplica := d.Backup()
	n.want("allocate -> 1#1", "allocate -> 2#1")
	back := d.storeAway(d.onBefore)
	n.want("allocate -> unknown") // and the shard is not this node's until it is acquired again
	back()
	toReplica()
	n.want("allocate -> none")
	b.says(func(v *nonce.ChainView) { v.Mined = 10 })
	if got := n.batch(parse(t, "floor 3"), parse(t, "allocate")); got[1] != "10#1" {
		t.Errorf("the chain has used 0 to 9, and after the floor %s was handed out", got[1])
	}
}

// loseAWrite has a node that hands out 0 and 1 of the signer meet a store that knows of 0 only.
func (d *disk) loseAWrite(n *node) {
	n.want("allocate -> 0#1")
	toReplica := d.Backup()
	n.want("allocate -> 1#1")
	toReplica()
	d.RaiseGeneration()
	n.want("allocate -> none")
}

// TestAShardWithASignerThatIsStoppedStaysWhereThatIsKnown: b comes, which remembers nothing,
// and the shard is pinned to it.
func TestAShardWithASignerThatIsStoppedStaysWhereThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a", looking)
		d.loseAWrite(a)
		start(t, d, "b", looking)
		if o, err := a.Move(t.Context(), nonce.ShardOf(signer, shards), "b"); err != nil || o.Stopped != 1 || !o.Mine || o.Preferred != "b" {
			t.Fatalf("got %+v, %v", o, err)
		}
		pass(10 * time.Second)
		if got := d.summary(t, signer).Lease.Holder.Node; got != "a" {
			t.Fatalf("%q owns the shard", got)
		}
		a.want("allocate -> none", "floor 2 -> floor 2 next 2", "allocate -> 2#1")
		pass(10 * time.Second)
		if got := d.summary(t, signer).Lease.Holder.Node; got != "b" {
			t.Errorf("the signer serves again, and %q owns its shard", got)
		}
	})
}

// TestASignerThatIsStoppedServesOnceItsFloorWasRaisedElsewhere: a loses the shard and gets it
// back.
func TestASignerThatIsStoppedServesOnceItsFloorWasRaisedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a", looking)
		d.loseAWrite(a)
		d.mute("a", true)
		pass(a.cfg.LeaseTTL + 2*time.Second)
		b := start(t, d, "b", looking)
		pass(2 * time.Second)
		b.want("floor 2 -> floor 2 next 2")
		d.mute("a", false)
		if err := d.Leave(t.Context(), lease.Holder{Node: "b", Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		b.StepDown()
		pass(20 * time.Second)
		if a.want("allocate -> 2#1"); a.StoppedSigners() != 0 {
			t.Errorf("%d signers are stopped", a.StoppedSigners())
		}
	})
}

// TestARowThatCannotBeReadKeepsItsHoldsWhenTheStoreMayBeAnother: nothing is written over it.
func TestARowThatCannotBeReadKeepsItsHoldsWhenTheStoreMayBeAnother(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a")
	n.want("allocate count=2 -> 0#1 1#1")
	mended := d.Backup()
	d.Damage(signer)
	d.RaiseGeneration()
	n.want("allocate -> none", "floor 2 -> none")
	if n.StoppedSigners() != 0 || n.fig.get(&n.fig.wentBack) != 0 {
		t.Error("the store is said to have gone back")
	}
	mended()
	if got := d.rows(t, signer); got != "0#1=HELD 1#1=HELD" {
		t.Errorf("the rows are %s", got)
	}
}

// TestAShardWhoseHandOverWasLostIsServedAgain: the copy says that a has the shard, which a gave
// up, and b, which took it, sees a's lease run. Nobody asks for any of its signers.
func TestAShardWhoseHandOverWasLostIsServedAgain(t *testing.T) {
	for name, generation := range map[string]func(*disk){"noticed": func(d *disk) { d.RaiseGeneration() }, "unnoticed": func(*disk) {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				often := []func(*service.Config){watchEvery(500 * time.Millisecond), sweepEvery(time.Second)}
				a, b := start(t, d, "a", often...), start(t, d, "b", often...)
				time.Sleep(10 * time.Second)
				moved := a.owned()[0]
				name := d.nameIn(moved)
				a.want("allocate hold=5s signer=" + name + " -> 0#1")
				toReplica := d.Backup()
				if _, err := b.Move(t.Context(), moved, "b"); err != nil {
					t.Fatal(err)
				}
				for !b.Shards()[moved].Mine {
					time.Sleep(100 * time.Millisecond)
				}
				toReplica()
				generation(d)
				time.Sleep(time.Minute)
				if got, want := d.rows(t, name), "0#1=RELEASED/expired"; got != want || len(a.owned())+len(b.owned()) != shards {
					t.Errorf("rows %s, want %s; a has %v and b %v of %d shards", got, want, a.owned(), b.owned(), shards)
				}
			})
		})
	}
}

// TestWhatAShardWasBeforeItWasGivenUpIsComparedToo: the store is restored, without a new
// generation, to before the last hand-outs of a and the hand-over to b, who knows none of it.
func TestWhatAShardWasBeforeItWasGivenUpIsComparedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		often := []func(*service.Config){watchEvery(500 * time.Millisecond), sweepEvery(time.Second)}
		a, b := start(t, d, "a", often...), start(t, d, "b", often...)
		time.Sleep(10 * time.Second)
		moved := a.owned()[0]
		name := d.nameIn(moved)
		a.want("allocate hold=1h signer=" + name + " -> 0#1")
		if _, err := b.Move(t.Context(), moved, "a"); err != nil {
			t.Fatal(err)
		}
		restore := d.Backup()
		a.want("allocate hold=1h signer="+name+" -> 1#1", "allocate hold=1h signer="+name+" -> 2#1")
		if _, err := b.Move(t.Context(), moved, "b"); err != nil {
			t.Fatal(err)
		}
		for !b.Shards()[moved].Mine {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		restore()
		time.Sleep(10 * time.Second)
		if a.StoppedSigners() != 1 || a.fig.get(&a.fig.wentBack) == 0 {
			t.Errorf("a knows that 1 and 2 were handed out: %d of its signers are stopped, %d alarms", a.StoppedSigners(), a.fig.get(&a.fig.wentBack))
		}
	})
}

func TestASafeFloorLetsASignerServeThoughItsCursorIsHigherByThen(t *testing.T) {
	t.Run("a hand-out behind it", func(t *testing.T) {
		n := start(t, newDisk(), "a")
		n.disk.loseAWrite(n)
		if got := n.batch(parse(t, "floor 2"), parse(t, "allocate")); got[1] != "2#1" {
			t.Errorf("got %v", got)
		}
		n.want("allocate -> 3#1")
	})
	t.Run("a chain that is further", func(t *testing.T) {
		b := &book{view: nonce.ChainView{Known: true}}
		n := start(t, newDisk(), "a", func(c *service.Config) { c.Chain = b })
		n.disk.loseAWrite(n)
		b.says(func(v *nonce.ChainView) { v.Mined = 10 })
		n.want("floor 2 -> floor 2 next 10", "allocate -> 10#1")
	})
}
