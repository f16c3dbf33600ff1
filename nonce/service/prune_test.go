package service_test

import (
	"fmt"
	"testing"
	"time"

	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

func retention(d time.Duration) func(*service.Config) {
	return func(c *service.Config) { c.HistoryRetention = d }
}

// aged lets what was consumed become older than a retention of a minute, and be pruned.
func aged() { pass(2*time.Minute + 3*time.Second) }

// onPrune has the test see each pruning.
func (d *disk) onPrune(see func()) {
	d.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpPrune {
			see()
		}
		return nil
	})
}

func TestPruningsComeInSmallPiecesWithPausesBetween(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		for i := range 45 {
			n.run(fmt.Sprintf("allocate count=200 hold=1s signer=s%d", i))
		}
		pass(3 * time.Second)
		for i := range 45 {
			n.want(fmt.Sprintf("floor 200 signer=s%d -> floor 200 next 200", i))
		}
		var at []time.Time
		n.disk.onPrune(func() {
			at = append(at, time.Now())
			time.Sleep(3 * time.Millisecond) // so long does it take
		})
		aged()
		if got := n.Pruned(); got != 9000 {
			t.Errorf("pruned %d, want 9000", got)
		}
		if len(at) < 6 {
			t.Fatalf("it took %d pieces, want 5 and one look without a find", len(at))
		}
		for i := range at[1:] {
			if pause := at[i+1].Sub(at[i]); pause < 290*time.Millisecond {
				t.Errorf("piece %d came %v after a piece of 3ms, want a hundred times as much", i+1, pause)
			}
		}
	}, retention(time.Minute), sweepEvery(time.Second))
}
