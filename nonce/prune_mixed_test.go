package nonce_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// TestPruningBesideClientsInMixedModesLosesAndDoublesNothing: each node prunes
// whatever is consumed, as fast as it can, while the leases end now and then and
// prunings break. The replies of hand-outs are not lost, for a hold that nobody
// knows of would stop the pruning.
func TestPruningBesideClientsInMixedModesLosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { pruneBesideClients(t, seed) })
		})
	}
}

func pruneBesideClients(t *testing.T, seed uint64) {
	d := newDisk()
	eager := func(c *nonce.Config) {
		c.DefaultHold, c.MaxHold, c.QueueCapacity = 10*time.Hour, 10*time.Hour, 1000
		c.ConsumedRetention, c.PrunePause, c.PruneRest = 1, time.Millisecond, time.Millisecond
	}
	nodes := []*node{
		start(t, d, "a", eager, workers(2)), start(t, d, "b", eager, callerRuns, places(2)), start(t, d, "c", eager, basicMode),
	}
	d.pruneFaults(seed)
	h := &history{given: map[handOut]string{}, kept: map[handOut]string{}, lowest: true}
	var clients, ender sync.WaitGroup
	for id := range 8 {
		clients.Go(func() { h.client(id, seed, nodes) })
	}
	stop := make(chan struct{})
	ender.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(7 * time.Millisecond):
				d.freeLease(fmt.Sprintf("s%d", i%3))
			}
		}
	})
	clients.Wait()
	close(stop)
	ender.Wait()
	pruned := int64(0)
	for _, n := range nodes {
		n.Stop()
		pruned += n.Pruned()
	}
	d.onBefore(nil)
	d.onAfter(nil)
	d.onLock(nil)
	if h.acked < 100 || pruned < 20 {
		t.Fatalf("only %d allocates were answered and %d pruned: the run proves nothing", h.acked, pruned)
	}
	h.check(t, d)
}

// pruneFaults makes prunings break often, and other calls now and then in ways
// that leave no doubt.
func (d *disk) pruneFaults(seed uint64) {
	var calls atomic.Uint64
	hit := func(oneIn uint64) bool { return rand.New(rand.NewPCG(seed, calls.Add(1))).Uint64N(oneIn) == 0 }
	d.onBefore(func(c memstore.Call) error {
		switch {
		case c.Op == memstore.OpConsumed && hit(5):
			return errCut
		case c.Op != memstore.OpPrunable && hit(60):
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
		}
		return nil
	})
	d.onAfter(func(c memstore.Call) error {
		if c.Op == memstore.OpConsumed && hit(3) {
			return errCut
		}
		return nil
	})
	d.onLock(func(string) bool { return hit(20) })
}

// freeLease makes a signer's lease end, when the store is willing.
func (d *disk) freeLease(name string) {
	snaps, err := d.Load(context.Background(), []nonce.Need{{Signer: name}})
	if err != nil || !snaps[0].Exists {
		return
	}
	_, _ = d.Release(context.Background(), snaps[0].Lease.Holder, []nonce.ReleaseTerm{{ID: snaps[0].ID, Token: snaps[0].Lease.Token}})
}
