package nonce_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func retention(d time.Duration) func(*nonce.Config) {
	return func(c *nonce.Config) { c.ConsumedRetention = d }
}

// pruneAll prunes all that is CONSUMED at the bottom of a signer, young or not.
func (d *disk) pruneAll(t *testing.T, name string) {
	t.Helper()
	snaps, err := d.Load(t.Context(), []nonce.Need{{Signer: name}})
	if err != nil {
		t.Fatal(err)
	}
	piece := nonce.PrunePiece{ID: snaps[0].ID, Signer: name, Version: snaps[0].Version, Rows: 1 << 20}
	got, err := d.Prune(t.Context(), lease.Holder{}, nonce.Pruning{Age: -time.Hour, Pieces: []nonce.PrunePiece{piece}})
	if err != nil || !got[0].Applied {
		t.Fatalf("pruning %s: %+v, %v", name, got, err)
	}
}

// aged lets what was consumed become older than a retention of a minute, and be
// pruned.
func aged() {
	time.Sleep(time.Minute + 3*time.Second)
	synctest.Wait()
}

func TestOldConsumedAllocationsArePrunedAndCountStill(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate count=5 hold=10m -> 0#1 1#1 2#1 3#1 4#1",
			"used 0#1 -> CONSUMED", "used 1#1 -> CONSUMED", "used 3#1 -> CONSUMED", "release 4#1 -> RELEASED")
		time.Sleep(55 * time.Second)
		synctest.Wait()
		n.want("list -> 0#1=CONSUMED/1 1#1=CONSUMED/1 2#1=HELD 3#1=CONSUMED/1 4#1=RELEASED")
		time.Sleep(8 * time.Second)
		synctest.Wait()
		n.want("list -> 2#1=HELD 3#1=CONSUMED/1 4#1=RELEASED", "status -> next 5 floor 0 held 1 released 1 consumed 3")
		n.want("used 2#1 -> CONSUMED")
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
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpPrunable || c.Op == memstore.OpConsumed {
				t.Errorf("the store was asked: %v", c.Op)
			}
			return nil
		})
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		time.Sleep(10_000 * time.Hour)
		synctest.Wait()
		n.want("list -> 0#1=CONSUMED/1")
	})
}

func TestAMarkOfAPrunedNonceIsAConflict(t *testing.T) {
	marks := []string{"used 0#1 -> conflict 0#0=CONSUMED", "used 0#1 hash=7 -> conflict 0#0=CONSUMED", "used 0#9 -> conflict 0#0=CONSUMED",
		"release 0#1 -> conflict 0#0=CONSUMED", "used 1#1 -> not_found"}
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		aged()
		n.want("list -> ")
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpLoad {
				t.Errorf("%v were read, which is known to be in vain", c.Needs)
			}
			return nil
		})
		n.want(marks...)
		n.disk.onBefore(nil)
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

func TestASignerThatNobodyOwnsIsPrunedByWhoeverFindsItAndGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		for i, end := range []func(*node){(*node).Stop, func(*node) {}} {
			old := start(t, d, fmt.Sprint("old", i))
			old.want(fmt.Sprintf("allocate signer=s%d -> 0#1", i), fmt.Sprintf("used 0#1 signer=s%d -> CONSUMED", i))
			end(old)
		}
		n := start(t, d, "a", retention(time.Minute))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		for i, token := range []int64{4, 3} { // s0 was given back before
			name := fmt.Sprint("s", i)
			if got := d.rows(t, name); got != "" {
				t.Errorf("%s: got rows %s", name, got)
			}
			if got := d.summary(t, name).Lease; got.Holder.Node != "" || got.Token != token {
				t.Errorf("%s: got owner %q under token %d, want none under %d", name, got.Holder.Node, got.Token, token)
			}
		}
		if got := n.fig.get(&n.fig.takeovers); got != 0 {
			t.Errorf("counted %d takeovers: those are for people to look at", got)
		}
		if signers, _ := n.Remembered(); signers != 0 {
			t.Errorf("%d signers are remembered, though nobody asked for them", signers)
		}
		n.want("allocate signer=s1 -> 1#1")
	})
}

func TestWhatALiveOwnerHasIsLeftToIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		owner := start(t, n.disk, "owner", sweepEvery(time.Second), func(c *nonce.Config) { c.LeaseTTL = 5 * time.Minute })
		owner.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		aged()
		if got, want := n.disk.rows(t, signer), "0#1=CONSUMED/1"; got != want {
			t.Errorf("while its lease runs: got rows %s, want %s", got, want)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got, want := n.disk.rows(t, signer), "0#1=CONSUMED/1"; got != want {
			t.Errorf("while it may remember the signer: got rows %s, want %s", got, want)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := n.disk.rows(t, signer); got != "" {
			t.Errorf("when the owner seems to be gone: got rows %s", got)
		}
		owner.want("allocate hold=1s -> 1#1")
	}, retention(time.Minute))
}

func TestPruningsComeInSmallPiecesWithPausesBetween(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		// One signer with a thousand, and forty with twenty.
		fill := func(name string, count int) {
			op := &nonce.Op{Kind: nonce.KindAllocate, Signer: name, Count: count}
			if got := n.do(op); strings.Count(got, "#") != count {
				t.Fatal(got)
			}
			for _, nr := range op.Nonces {
				n.want(fmt.Sprintf("used %d#1 signer=%s -> CONSUMED", nr, name))
			}
		}
		for range 5 {
			fill(signer, 200)
		}
		for i := range 40 {
			fill(fmt.Sprint("s", i), 20)
		}
		var at []time.Time
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op != memstore.OpConsumed {
				return nil
			}
			rows := 0
			for _, p := range c.Pieces {
				rows += p.Rows
			}
			if rows > 256 {
				t.Errorf("a piece of %d rows", rows)
			}
			at = append(at, time.Now())
			time.Sleep(3 * time.Millisecond) // so long does it take
			return nil
		})
		time.Sleep(10 * time.Minute) // for one walk: the first comes after an eighth of the rest
		synctest.Wait()
		if got := n.Pruned(); got != 1800 {
			t.Errorf("pruned %d, want 1800", got)
		}
		if len(at) < 8 || len(at) > 12 {
			t.Errorf("it took %d pieces, want 4 for the one and 4 for the others, or a few more", len(at))
		}
		for i := range at[1:] {
			if pause := at[i+1].Sub(at[i]); pause < 300*time.Millisecond {
				t.Errorf("piece %d came %v after a piece of 3ms, want a hundred times as much", i+1, pause)
			}
		}
	}, retention(time.Minute), places(1000), func(c *nonce.Config) { c.PruneRest = time.Hour })
}

func TestWalksThatFindNothingAreRare(t *testing.T) {
	for rest, keep := range map[time.Duration]time.Duration{time.Second: time.Minute, 10 * time.Minute: 168 * time.Hour} {
		inBothModes(t, func(t *testing.T, n *node) {
			for i := range 600 { // more than one look
				n.run(fmt.Sprint("allocate hold=10m signer=s", i))
			}
			var looks []time.Time
			n.disk.onBefore(func(c memstore.Call) error {
				if c.Op == memstore.OpPrunable {
					looks = append(looks, time.Now())
				}
				return nil
			})
			time.Sleep(10 * rest)
			synctest.Wait()
			if len(looks) < 18 || len(looks) > 22 {
				t.Errorf("%d looks in 10 rests of %v, want two each", len(looks), rest)
			}
			for i := range looks[1:] {
				if pause := looks[i+1].Sub(looks[i]); pause != rest && pause != 20*time.Millisecond {
					t.Errorf("look %d came after %v", i+1, pause)
				}
			}
		}, retention(keep))
	}
}

func TestAPruningTakesAPlaceAndIsLeftOutWhenThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", retention(time.Minute), places(1))
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		place, _ := n.Reserve(signer, 0)
		aged()
		if got, want := n.disk.rows(t, signer), "0#1=CONSUMED/1"; got != want {
			t.Errorf("while the queue is full: got rows %s, want %s", got, want)
		}
		place.Cancel()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := n.disk.rows(t, signer); got != "" {
			t.Errorf("got rows %s", got)
		}
	})
}

func TestRequestsOfTheBatchGoOnAroundAPruning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", retention(time.Minute))
		n.want("allocate hold=10m count=3 -> 0#1 1#1 2#1", "used 0#1 -> CONSUMED")
		time.Sleep(59 * time.Second)
		began, open := n.disk.holdCommit("plug")
		plug := n.send(parse(t, "allocate signer=plug"))
		<-began
		ps := n.send(parse(t, "allocate"), parse(t, "used 1#1"))
		time.Sleep(3 * time.Second) // the pruner queues behind those
		ps = append(ps, n.send(parse(t, "used 0#1"), parse(t, "release 2#1"), parse(t, "allocate"))...)
		open()
		<-plug[0].done
		if got, want := strings.Join(results(ps), ", "), "3#1, CONSUMED, conflict 0#0=CONSUMED, RELEASED, 2#2"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		synctest.Wait()
		if got := n.Pruned(); got != 1 {
			t.Errorf("pruned %d, want 1", got)
		}
		if got := n.fig.get(&n.fig.fenced); got != 0 {
			t.Errorf("%d ops were fenced", got)
		}
	})
}

func TestAStopDuringAPruningLosesNoPlace(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate -> 0#1", "used 0#1 -> CONSUMED")
		looking, goOn := make(chan struct{}), make(chan struct{})
		n.disk.onAfter(func(c memstore.Call) error {
			if c.Op == memstore.OpPrunable && n.disk.summary(t, signer).Version == 2 {
				close(looking)
				<-goOn
				n.disk.onAfter(nil)
			}
			return nil
		})
		time.Sleep(time.Minute)
		<-looking
		stopped := make(chan struct{})
		go func() { n.Stop(); close(stopped) }()
		synctest.Wait()
		close(goOn)
		<-stopped // and start looks for places that are lost
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
				time.Sleep(30 * time.Second)
				synctest.Wait()
				n.disk.onBefore(func(c memstore.Call) error {
					if c.Op == memstore.OpConsumed {
						t.Error("it pruned")
					}
					return nil
				})
				stop(n)
				aged()
				n.disk.onBefore(nil)
			}, retention(time.Minute))
		})
	}
}
