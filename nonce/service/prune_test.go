package service_test

import (
	"fmt"
	"testing"
	"time"

	"noncegate/lease"
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

func TestOldConsumedAllocationsArePrunedAndCountStill(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=5 hold=10m -> 0#1 1#1 2#1 3#1 4#1",
			"used 0#1 -> CONSUMED", "used 1#1 -> CONSUMED", "used 3#1 -> CONSUMED", "release 4#1 -> RELEASED")
		pass(59 * time.Second)
		n.want("list -> 0#1=CONSUMED/1 1#1=CONSUMED/1 2#1=HELD 3#1=CONSUMED/1 4#1=RELEASED")
		aged()
		version := n.disk.summary(t, signer).Version
		n.want("list -> 2#1=HELD 4#1=RELEASED", "status -> next 5 floor 0 held 1 released 1 consumed 3", "used 2#1 -> CONSUMED")
		if got := n.disk.summary(t, signer).Version; got != version+1 {
			t.Errorf("version %d after %d: a pruning changes no signer", got, version)
		}
		aged()
		n.want("list -> 4#1=RELEASED", "status -> next 5 floor 0 held 0 released 1 consumed 4",
			"allocate count=2 -> 4#2 5#1", "status -> next 6 floor 0 held 2 released 0 consumed 4")
		if got := n.Pruned(); got != 4 {
			t.Errorf("counted %d pruned, want 4", got)
		}
	}, retention(time.Minute))
}

func TestWithoutARetentionNothingIsPruned(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.disk.onPrune(func() { t.Error("the store was asked") })
		n.want("allocate id=x hold=10m -> 0#1", "used 0#1 -> CONSUMED")
		pass(5 * time.Hour)
		n.want("list -> 0#1=CONSUMED/1", "allocate id=x hold=10m -> conflict 0#1=CONSUMED")
	})
}

func TestAMarkOfAPrunedNonceIsAConflict(t *testing.T) {
	marks := []string{"used 0#1 -> conflict 0#0=CONSUMED", "used 0#1 hash=7 -> conflict 0#0=CONSUMED", "used 0#9 -> conflict 0#0=CONSUMED",
		"release 0#1 -> conflict 0#0=CONSUMED", "used 1#1 -> not_found"}
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		aged()
		n.want("list -> ")
		n.want(marks...)
		n.Stop()
		start(t, n.disk, "b").want(marks...)
		start(t, n.disk, "c", basicMode).want(marks...)
	}, retention(time.Minute))
}

func TestARequestIdWhoseNoncesWerePrunedIsAConflict(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=2 id=x -> 0#1 1#1", "used 0#1 -> CONSUMED", "used 1#1 -> CONSUMED")
		aged()
		n.want("list -> ", "allocate count=2 id=x -> conflict 0#1=CONSUMED 1#1=CONSUMED", "allocate id=x -> conflict 0#1=CONSUMED 1#1=CONSUMED",
			"allocate -> 2#1")
		n.Stop()
		start(t, n.disk, "b").want("allocate count=2 id=x -> conflict 0#1=CONSUMED 1#1=CONSUMED")
	}, retention(time.Minute))
}

func TestAFloorBelowOrAboveWhatWasPrunedIsAFloorLikeAnother(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=4 hold=10m -> 0#1 1#1 2#1 3#1", "used 0#1 -> CONSUMED", "used 1#1 -> CONSUMED", "release 2#1 -> RELEASED")
		aged()
		n.want("floor 1 -> floor 1 next 4", "list -> 2#1=RELEASED 3#1=HELD", "floor 9 -> floor 9 next 9",
			"list -> 2#1=CONSUMED/below_floor 3#1=HELD", "status -> next 9 floor 9 held 1 released 0 consumed 8")
		aged()
		n.want("list -> 3#1=HELD", "release 3#1 -> CONSUMED", "allocate -> 9#1", "used 9#1 -> CONSUMED")
		aged()
		n.want("list -> ", "status -> next 10 floor 9 held 0 released 0 consumed 10", "used 5#1 -> conflict 5#0=CONSUMED", "allocate -> 10#1")
	}, retention(time.Minute))
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

func TestAStopDuringAPruningWaitsForIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		pruning, goOn := make(chan struct{}), make(chan struct{})
		n.disk.onPrune(func() { close(pruning); <-goOn; n.disk.onBefore(nil) })
		<-pruning
		stopped := make(chan struct{})
		go func() { n.Stop(); close(stopped) }()
		pass(time.Second)
		select {
		case <-stopped:
			t.Error("it was not waited for")
		default:
		}
		close(goOn)
		<-stopped
	}, retention(time.Minute))
}

func TestAHaltedServiceAndOneWhoseClockJumpedPruneNothing(t *testing.T) {
	for name, stop := range map[string]func(*node){
		"halted": func(n *node) { n.Halt(lease.ErrWentBack) },
		"jumped": func(n *node) { n.disk.ahead.Store(int64(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, n *node) {
				n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
				pass(30 * time.Second)
				stop(n)
				pass(10 * time.Second) // a heartbeat shows the jump
				n.disk.onPrune(func() { t.Error("it pruned") })
				aged()
				n.disk.onBefore(nil)
			}, retention(time.Minute))
		})
	}
}

func TestWhatAShortRetentionKeepsIsGoneSoonAfter(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		pass(59 * time.Second)
		n.want("list -> 0#1=CONSUMED/1")
		pass(4 * time.Second)
		n.want("list -> ")
	}, retention(time.Minute))
}
