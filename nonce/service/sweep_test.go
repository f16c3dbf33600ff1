package service_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

// looking is how nodes look that are to see one another come and go.
func looking(c *service.Config) { c.WatchEvery = 500 * time.Millisecond }

func TestAStopDuringASweepLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", sweepEvery(time.Second))
		n.want("allocate hold=1s -> 0#1")
		looking, goOn := make(chan struct{}), make(chan struct{})
		n.disk.onAfter(func(c memstore.Call) error {
			if c.Op == memstore.OpDue {
				close(looking)
				<-goOn
				n.disk.onAfter(nil)
			}
			return nil
		})
		<-looking
		stopped := make(chan struct{})
		go func() { n.Stop(); close(stopped) }()
		synctest.Wait()
		close(goOn)
		<-stopped // and start looks for slots that are lost
	})
}

// TestWhoseOpsWereSentElsewhereIsForgottenAlsoWhileSweepsPause: the memory of it has no other bound.
func TestWhoseOpsWereSentElsewhereIsForgottenAlsoWhileSweepsPause(t *testing.T) {
	inCluster(t, two, func(t *testing.T, c *cluster) {
		b := c.nodes["b"]
		c.disk.ahead.Store(int64(time.Hour))
		pass(3 * time.Second)
		if !b.fig.sweepsPaused() {
			t.Fatal("sweeps do not pause")
		}
		for i := range 50 {
			b.run(fmt.Sprintf("allocate signer=s%d", i))
		}
		if b.Forwarding() == 0 {
			t.Fatal("nothing was sent to the other node")
		}
		pass(3 * time.Second)
		if n := b.Forwarding(); n > 0 {
			t.Errorf("%d signers of which nothing is under way are remembered", n)
		}
	}, sweepEvery(time.Second))
}
