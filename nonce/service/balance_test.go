package service_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// owned says how many shards each node owns by the store, and how many are nobody's.
func (d *disk) owned(t *testing.T) map[string]int {
	t.Helper()
	all, err := d.Owners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, name := range all.Serving() {
		n[name]++
	}
	return n
}

// TestWhatIsRememberedIsBoundedByCountAndBytes: signers with many holds take more.
func TestWhatIsRememberedIsBoundedByCountAndBytes(t *testing.T) {
	for name, test := range map[string]struct {
		count, most int
		bytes       int64
		holds       int
		signed      bool // each has a hash, and one that it replaced
	}{
		"count": {count: 10, bytes: 1 << 30, holds: 1, most: 10},
		"bytes": {count: 1000, bytes: 40_000, holds: 1, most: 160},
		"holds": {count: 1000, bytes: 40_000, holds: 100, most: 7},
		"notes": {count: 1000, bytes: 40_000, holds: 25, signed: true, most: 11},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", func(c *service.Config) { c.MaxSigners, c.MaxSignerBytes = test.count, test.bytes })
			for i := range 200 {
				n.run(fmt.Sprintf("allocate count=%d signer=s%d", test.holds, i))
				var ops []*noncetest.Op
				for j := range test.holds * 2 {
					ops = append(ops, parse(t, fmt.Sprintf("signed %d#1 hash=%d signer=s%d", j/2, j%2+1, i)))
				}
				if test.signed {
					n.batch(ops...)
				}
			}
			n.run("used 99#99 signer=s199") // the batch after the last eviction
			count, _, bytes, maxBytes := n.Remembered()
			if count > test.most || count < test.most/4 || bytes > test.bytes || maxBytes != test.bytes {
				t.Errorf("%d signers in %d bytes of %d are remembered, want at most %d", count, bytes, maxBytes, test.most)
			}
			n.run("allocate signer=s0")
			if got := n.disk.summary(t, "s0").Next; got != int64(test.holds)+1 {
				t.Errorf("a forgotten signer has next %d", got)
			}
		})
	}
}

// TestSignersThatAreStoppedDoNotStandBeforeOthersInTheListOfDeadlines: there are more of them than
// one look brings, all of them due before the signer that nobody remembers.
func TestSignersThatAreStoppedDoNotStandBeforeOthersInTheListOfDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n := start(t, d, "a", sweepEvery(time.Second), func(c *service.Config) { c.Workers = 1 })
		allocateAll := func() {
			for i := range 22 {
				ops := make([]*noncetest.Op, 50)
				for j := range ops {
					ops[j] = parse(t, fmt.Sprintf("allocate hold=5s signer=s%d", 50*i+j))
				}
				n.batch(ops...)
			}
		}
		allocateAll()
		start(t, d, "b", basicMode).run("allocate hold=8s signer=forgotten")
		toReplica := d.Backup()
		allocateAll()
		toReplica()
		d.RaiseGeneration()
		n.want("allocate -> 0#1")
		if n.StoppedSigners() < 1100 {
			t.Fatalf("%d signers are stopped", n.StoppedSigners())
		}
		pass(time.Minute)
		if got := d.rows(t, "forgotten"); got != "0#1=RELEASED/expired" {
			t.Errorf("the hold of a signer that nobody remembers: %s", got)
		}
	})
}

// TestWhileClientsAskNodesComeAndGo: through a router, under load, nobody is refused, but for
// what a node was doing that dies.
func TestWhileClientsAskNodesComeAndGo(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		var clients sync.WaitGroup
		stop := make(chan struct{})
		for _, name := range []string{"a", "b"} {
			for i := range 8 {
				clients.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(50 * time.Millisecond):
						}
						op := allocate(fmt.Sprint("s", i))
						if got := c.nodes[name].do(op); op.Err != nil {
							t.Errorf("%s was told %s", name, got)
							return
						}
						c.nodes[name].do(&noncetest.Op{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0]}})
					}
				})
			}
		}
		for _, to := range []string{"b", "c"} { // what is pinned elsewhere goes there
			c.pin(to)
			pass(5 * time.Second)
			if got := c.disk.owned(t); got[to] != shards {
				t.Errorf("the shards are at %v, want all at %s", got, to)
			}
		}
		c.pin("")
		pass(5 * time.Second)
		if got := c.disk.owned(t); got["c"] == 0 || got[""] != 0 {
			t.Errorf("the shards are at %v, want some at c", got)
		}
		if err := c.disk.Leave(t.Context(), lease.Holder{Node: "c", Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
		c.nodes["c"].StepDown()
		pass(250 * time.Millisecond)
		if got := c.disk.owned(t); got["c"] != 0 || got[""] != 0 {
			t.Errorf("250ms after c retired the shards are at %v", got)
		}
		pass(5 * time.Second)
		close(stop)
		clients.Wait()
	})
}
