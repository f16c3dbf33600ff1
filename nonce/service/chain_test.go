package service_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

// book is a chain that says what the test writes into it, of every signer.
type book struct {
	mu        sync.Mutex
	view      nonce.ChainView
	unseen    bool
	committed []nonce.Event
	owned     bool
}

func (b *book) Signer(string) nonce.ChainSigner { return b }

func (b *book) View(int64) nonce.ChainView {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.view
}

func (b *book) Unseen(int64, int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unseen
}

func (b *book) UsedBy(int64) (h nonce.TxHash) {
	h[31] = 77
	return h
}

func (b *book) Committed(events []nonce.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.committed = append(b.committed, events...)
}

func (b *book) Owned(owned bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owned = owned
}

func (b *book) says(change func(*nonce.ChainView)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(&b.view)
}

// onChain runs a test in both modes with a chain that has answered, and swept every
// second.
func onChain(t *testing.T, view nonce.ChainView, test func(t *testing.T, n *node, b *book)) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &book{view: view}
				test(t, start(t, newDisk(), "a", mode, sweepEvery(time.Second), func(c *service.Config) { c.Chain = b }), b)
			})
		})
	}
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestANewSignerOfAChainBeginsWhereTheChainSays(t *testing.T) {
	onChain(t, nonce.ChainView{}, func(t *testing.T, n *node, b *book) {
		n.want("allocate -> none", "send 0 hash=1 take -> none", "used 0#1 -> not_found",
			"status -> next 0 floor 0 held 0 released 0 consumed 0")
		b.says(func(v *nonce.ChainView) { *v = nonce.ChainView{Known: true, Mined: 5, Start: 7} })
		n.want("allocate -> 7#1", "status -> next 8 floor 0 held 1 released 0 consumed 7")
		b.says(func(v *nonce.ChainView) { v.Known = false })
		n.want("allocate -> 8#1") // a known one goes on without nodes
	})
}

func TestASignerBeginsWhereTheChainIsAtItsFirstHandOut(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, Mined: 5, Start: 5}, func(t *testing.T, n *node, b *book) {
		n.want("used 3#1 -> not_found", "extend 3#1 -> not_found", "send 3 hash=1 -> conflict 3#0=CONSUMED", "allocate known id=x -> not_found",
			"status -> next 0 floor 0 held 0 released 0 consumed 0")
		b.says(func(v *nonce.ChainView) { v.Start = 9 })
		n.want("allocate -> 9#1")
	})
}

func TestANewSignerDoesNotBeginWhereTheChainWasLongAgo(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, Mined: 5, Start: 7, StartOld: true}, func(t *testing.T, n *node, b *book) {
		n.want("allocate -> none", "allocate id=x -> none", "send 7 hash=1 take -> none", "repair -> none",
			"status -> next 0 floor 0 held 0 released 0 consumed 0")
		b.says(func(v *nonce.ChainView) { v.StartOld = false })
		n.want("allocate -> 7#1")
		b.says(func(v *nonce.ChainView) { v.StartOld = true })
		n.want("allocate -> 8#1")
	})
}

func TestASignerThatNobodyMadeKnownIsRefusedThoughItsChainKnowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{view: nonce.ChainView{Known: true, Mined: 3, Start: 4}}
		n := start(t, newDisk(), "a", func(c *service.Config) { c.Chain, c.Rules.NewSigners = b, nonce.RefuseNew })
		if got := n.run("allocate"); got == "4#1" {
			t.Fatalf("got %s", got)
		}
		n.want("status -> next 0 floor 0 held 0 released 0 consumed 0", "floor 4 -> floor 4 next 4", "allocate -> 4#1")
	})
}

func TestANewNonceIsNotBeyondTheWindow(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, Window: 2}, func(t *testing.T, n *node, b *book) {
		n.want("allocate count=3 -> window 2 lowest 0", "allocate -> 0#1", "allocate id=x -> 1#1", "allocate -> window 2 lowest 0",
			"allocate id=x -> 1#1", "allocate id=y -> window 2 lowest 0", "send 2 hash=1 take -> window 2 lowest 0",
			"release 0#1 -> RELEASED", "allocate -> 0#2")
		b.says(func(v *nonce.ChainView) { v.Mined = 1 })
		n.want("allocate -> 2#1", "allocate -> window 2 lowest 1")
	})
}

func TestAReleasedNonceThatTheChainHasUsedIsNotHandedOut(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true}, func(t *testing.T, n *node, b *book) {
		n.want("allocate count=3 -> 0#1 1#1 2#1", "release 0#1 -> RELEASED", "release 1#1 -> RELEASED")
		b.says(func(v *nonce.ChainView) { v.Mined = 1 })
		n.want("allocate -> 1#2", "list -> 0#1=CONSUMED/77/mined 1#2=HELD 2#1=HELD", "used 0#1 hash=7 -> CONSUMED", "list -> 0#1=CONSUMED/7,77/mined 1#2=HELD 2#1=HELD")
	})
}

func TestNothingTheChainHasUsedIsHandedOutThoughTheStoreRefusesToFollow(t *testing.T) {
	for _, line := range []string{"allocate", "allocate id=x"} {
		b, d := &book{view: nonce.ChainView{Known: true}}, newDisk()
		n := start(t, d, "a", func(c *service.Config) { c.Chain = b })
		n.want("allocate -> 0#1")
		b.says(func(v *nonce.ChainView) { v.Mined = 5 })
		d.onBefore(func(c memstore.Call) error {
			if touches(c, memstore.OpCommit, signer) {
				return &nonce.StoreError{Outcome: nonce.Aborted, Err: nonce.ErrInvariant}
			}
			return nil
		})
		if got := n.run(line); got != "internal" {
			t.Errorf("%s: got %q", line, got)
		}
		d.onBefore(nil)
		n.want("allocate -> 5#1")
	}
}

func TestTheCursorFollowsTheChain(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true}, func(t *testing.T, n *node, b *book) {
		n.want("allocate -> 0#1")
		b.says(func(v *nonce.ChainView) { v.Mined = 4 })
		n.want("allocate -> 4#1", "status -> next 5 floor 0 held 2 released 0 consumed 3")
	})
}

func TestTheFloorFollowsWhatIsFinalInSteps(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true}, func(t *testing.T, n *node, b *book) {
		n.want("allocate count=2 -> 0#1 1#1", "release 0#1 -> RELEASED")
		b.says(func(v *nonce.ChainView) { v.Mined, v.Final = 30, 15 })
		n.want("allocate -> 30#1", "status -> next 31 floor 0 held 2 released 0 consumed 29")
		b.says(func(v *nonce.ChainView) { v.Final = 20 })
		n.want("allocate -> 31#1", "status -> next 32 floor 20 held 3 released 0 consumed 29")
	})
}

func TestAnOverdueHoldIsJudgedByWhatIsKnown(t *testing.T) {
	for what, c := range map[string]struct {
		ops  []string
		view nonce.ChainView
		want string
	}{
		"a hash was recorded":                 {ops: []string{"allocate hold=5s -> 0#1", "signed 0#1 hash=4 hold=5s -> HELD #1 4"}, want: "0#1=CONSUMED/4"},
		"the chain has used it":               {ops: []string{"allocate hold=5s -> 0#1"}, view: nonce.ChainView{Mined: 1}, want: "0#1=CONSUMED/77/mined"},
		"no hash although it was promised":    {ops: []string{"allocate first hold=5s -> 0#1"}, want: "0#1=RELEASED/not_recorded"},
		"nobody knows":                        {ops: []string{"allocate hold=5s -> 0#1"}, want: "0#1=HELD/unknown"},
		"recorded and promised":               {ops: []string{"allocate first hold=5s -> 0#1", "signed 0#1 hash=4 hold=5s -> HELD #1 4"}, want: "0#1=CONSUMED/4"},
		"sent through the gateway":            {ops: []string{"send 0 hash=4 take hold=5s -> HELD #1 4"}, want: "0#1=CONSUMED/4"},
		"a repair that recorded nothing":      {ops: []string{"allocate -> 0#1", "repair hold=5s -> 0#2 was #1 1/"}, want: "0#2=HELD/unknown"},
		"a repair of what was sent":           {ops: []string{"allocate -> 0#1", "used 0#1 hash=4 -> CONSUMED", "repair hold=5s -> 0#2 was #1 3/ 4"}, want: "0#2=CONSUMED/4"},
		"unknown was extended before its end": {ops: []string{"allocate hold=5s -> 0#1", "extend 0#1 hold=9m -> HELD"}, want: "0#1=HELD"},
	} {
		t.Run(what, func(t *testing.T) {
			first := c.view
			first.Known, first.Mined = true, 0
			onChain(t, first, func(t *testing.T, n *node, b *book) {
				n.want(c.ops...)
				b.says(func(v *nonce.ChainView) { v.Mined = c.view.Mined })
				pass(8 * time.Second)
				if got := n.disk.rows(t, signer); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				late := 0
				if strings.HasSuffix(c.want, "/unknown") || strings.HasSuffix(c.want, "/not_recorded") {
					late = 1
				}
				if got := n.fig.get(&n.fig.swept); got != late {
					t.Errorf("counted %d holds that were not marked in time, want %d", got, late)
				}
			})
		})
	}
}

func TestAnUnknownHoldIsNotHandedOutUntilItWasLookedForLongEnough(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, UnknownFor: 10 * time.Minute}, func(t *testing.T, n *node, b *book) {
		n.want("allocate hold=5s id=x -> 0#1")
		pass(8 * time.Second)
		n.want("allocate -> 1#1", "allocate id=x -> conflict 0#1=HELD", "extend 0#1 -> conflict 0#1=HELD/unknown",
			"status -> next 2 floor 0 held 2 released 0 consumed 0")
		pass(10 * time.Minute) // not everybody was asked: it stays
		if got := n.disk.rows(t, signer); got != "0#1=HELD/unknown 1#1=HELD/unknown" {
			t.Errorf("got %s", got)
		}
		b.says(func(*nonce.ChainView) { b.unseen = true })
		pass(time.Minute)
		n.want("allocate -> 0#2 reissued #1 unseen", "used 0#1 hash=3 -> conflict 0#2=HELD")
		if got := n.fig.get(&n.fig.swept); got != 2 {
			t.Errorf("counted %d holds that were not marked in time, want 2: each once, however often it was looked for", got)
		}
		if got, want := n.events.String(), "allocated 0#1, unknown 0#1, allocated 1#1, "; len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("got events %s, want %s…", got, want)
		}
	})
}

func TestAnUnknownHoldEndsByAMarkOrARelease(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, UnknownFor: 10 * time.Minute}, func(t *testing.T, n *node, _ *book) {
		n.want("allocate count=3 hold=5s -> 0#1 1#1 2#1")
		pass(8 * time.Second)
		n.want("used 0#1 hash=3 -> CONSUMED", "release 1#1 -> RELEASED", "signed 2#1 hash=4 hold=5s -> HELD #1 4", "allocate -> 1#2")
		pass(8 * time.Second)
		if got := n.disk.rows(t, signer); got != "0#1=CONSUMED/3 1#2=HELD 2#1=CONSUMED/4" {
			t.Errorf("got %s", got)
		}
	})
}

func TestWhatAWrongCountSkippedIsRepairedOneAfterTheOther(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, Window: 16}, func(t *testing.T, n *node, b *book) {
		n.want("allocate -> 0#1")
		b.says(func(v *nonce.ChainView) { v.Mined = 30 })
		n.want("used 0#1 hash=1 -> CONSUMED", "status -> next 30 floor 0 held 0 released 0 consumed 30")
		b.says(func(v *nonce.ChainView) { v.Mined = 1 })
		n.want("allocate -> window 16 lowest 1", "repair 2 -> conflict")
		for at := int64(1); at < 30; at++ {
			b.says(func(v *nonce.ChainView) { v.Mined = at })
			hold, was, _ := strings.Cut(n.run("repair"), " ")
			if !strings.HasPrefix(hold, fmt.Sprintf("%d#", at)) || was != "was #0 0/" {
				t.Fatalf("at %d: a repair of %s, %s", at, hold, was)
			}
			n.want("used " + hold + " hash=2 -> CONSUMED")
			if at == 2 {
				n.want("floor 20 -> floor 20 next 30")
			}
		}
		b.says(func(v *nonce.ChainView) { v.Mined = 30 })
		n.want("repair -> conflict", "allocate -> 30#1")
	})
}

func TestZeroMeansUnknownUntilSomebodyKnows(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true}, func(t *testing.T, n *node, b *book) {
		b.says(func(*nonce.ChainView) { b.unseen = true })
		n.want("allocate hold=5s -> 0#1")
		pass(3 * time.Hour)
		n.want("allocate hold=9m -> 1#1")
		b.says(func(v *nonce.ChainView) { v.Mined = 1 })
		pass(11 * time.Minute)
		if got := n.disk.rows(t, signer); got != "0#1=CONSUMED/77/mined 1#1=HELD/unknown" {
			t.Errorf("got %s", got)
		}
	})
}

func TestOnlyWhatBlocksIsRepairedAndNotWhatTheChainHasUsed(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true}, func(t *testing.T, n *node, b *book) {
		n.want("allocate count=3 -> 0#1 1#1 2#1", "repair 1 -> conflict", "repair -> 0#2 was #1 1/", "used 0#2 hash=8 -> CONSUMED")
		b.says(func(v *nonce.ChainView) { v.Mined = 1 })
		n.want("repair 0 -> conflict", "repair by=7 -> 1#2 was #1 1/")
		b.says(func(v *nonce.ChainView) { v.Mined = 3 })
		n.want("repair -> conflict")
		b.says(func(v *nonce.ChainView) { v.Known = false })
		n.want("repair -> none")
	})
}

func TestARepairThatIsGivenUpDoesNotFreeWhatMayHaveBeenSentBefore(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, UnknownFor: time.Minute}, func(t *testing.T, n *node, b *book) {
		n.want("allocate -> 0#1", "used 0#1 hash=0 -> CONSUMED", "repair hold=5s -> 0#2 was #1 3/",
			"release 0#2 -> conflict 0#2=HELD", "allocate -> 1#1")
		pass(8 * time.Second)
		if got := n.disk.rows(t, signer); got != "0#2=HELD/unknown 1#1=HELD" {
			t.Errorf("got %s", got)
		}
		n.want("repair -> 0#3 was #2 1/unknown reissued #1 repair", "send 0 hash=4 -> HELD #3 4", "release 0#3 refused hash=4 -> CONSUMED",
			"list -> 0#3=CONSUMED/4 1#1=HELD")
	})
}

func TestARepairIsOfTheNonceThatBlocksWhenItIsPlanned(t *testing.T) {
	for _, mode := range []nonce.Mode{nonce.WorkerQueue, nonce.Basic} {
		b, d := &book{view: nonce.ChainView{Known: true}}, newDisk()
		n := start(t, d, "a", func(c *service.Config) { c.Chain, c.Mode = b, mode })
		n.want("allocate count=2 -> 0#1 1#1")
		d.RaiseGeneration() // so that both modes read before they plan
		d.onBefore(func(c memstore.Call) error {
			if touches(c, memstore.OpLocked, signer) || touches(c, memstore.OpAcquire, signer) {
				b.says(func(v *nonce.ChainView) { v.Mined = 1 })
			}
			return nil
		})
		n.want("repair -> 1#2 was #1 1/")
		if n := n.fig.get(&n.fig.invariant); n != 0 {
			t.Errorf("%s: %d alarms", mode, n)
		}
	}
}

func TestANonceOfWhichNothingIsKnownIsRepairedWithAHigherAttemptThanAny(t *testing.T) {
	onChain(t, nonce.ChainView{Known: true, Start: 5}, func(t *testing.T, n *node, b *book) {
		const attempt = 1099511635968 // above what the commits so far can have handed out
		n.want("allocate -> 5#1", fmt.Sprintf("repair -> 0#%d was #0 0/", attempt), fmt.Sprintf("used 0#%d hash=2 -> CONSUMED", attempt),
			fmt.Sprintf("list -> 0#%d=CONSUMED/2 5#1=HELD", attempt), "status -> next 6 floor 0 held 1 released 0 consumed 5")
	})
}

func TestTheChainHearsWhatWasCommittedAndWhoOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{view: nonce.ChainView{Known: true}}
		d := newDisk()
		n := start(t, d, "a", func(c *service.Config) { c.Chain = b })
		n.want("allocate -> 0#1", "signed 0#1 hash=3 -> HELD #1 3", "used 0#1 hash=4 -> CONSUMED")
		got := ""
		for _, e := range b.committed {
			got += fmt.Sprintf("%v %d#%d ", e.Type, e.Nonce, e.Attempt)
		}
		if want := "allocated 0#1 signed 0#1 replaced 0#1 "; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
		if !b.owned {
			t.Error("the chain does not know that the node owns the signer")
		}
		d.takeAway(signer)
		start(t, d, "b").want("allocate -> 1#1")
		n.want("allocate -> fenced", "allocate -> not_owner b ws://b")
		if b.owned {
			t.Error("the chain believes that the node still owns the signer")
		}
	})
}

func TestRecordingAHashNeverShortensAHold(t *testing.T) {
	inBothModes(t, func(t *testing.T, n *node) {
		n.want("allocate hold=9m -> 0#1", "allocate hold=5s -> 1#1")
		began := time.Now()
		pass(2 * time.Second)
		for line, want := range map[string]time.Duration{"signed 0#1": 9 * time.Minute, "signed 1#1": time.Minute + 2*time.Second} {
			op := parse(t, line)
			n.do(op)
			if got := op.HeldUntil.Sub(began); got < want-50*time.Millisecond || got > want+50*time.Millisecond {
				t.Errorf("%s: held for %v, want %v", line, got, want)
			}
		}
	})
}

// watched is what the store has of the signer among those that are watched.
func watched(t *testing.T, d *disk) string {
	t.Helper()
	list, err := d.Watched(t.Context(), []int{0, 1, 2, 3}, 0, 9)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, e := range list {
		words = append(words, strings.TrimSpace(fmt.Sprint(e.Signer == signer, " ", e.Kind.String())))
	}
	return strings.Join(words, ", ")
}

// TestTheStoreHasWhichSignersOfAChainAreToBeWatched: also what was found out of them, for whoever
// takes over their shards, who is told which of them are there.
func TestTheStoreHasWhichSignersOfAChainAreToBeWatched(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, b := newDisk(), &book{view: nonce.ChainView{Known: true}}
				chained := func(c *service.Config) { c.Chain, c.WatchEvery = b, time.Second }
				n := start(t, d, "a", mode, chained)
				want := func(want string) {
					t.Helper()
					if got := watched(t, d); got != want {
						t.Errorf("the store has %q, want %q", got, want)
					}
				}
				tend := func(n *node) {
					t.Helper()
					if err := n.Tend(t.Context(), signer); err != nil {
						t.Fatal(err)
					}
				}
				n.want("status -> next 0 floor 0 held 0 released 0 consumed 0")
				want("")
				n.want("allocate -> 0#1")
				want("true")
				b.says(func(v *nonce.ChainView) { v.Trouble = nonce.Watch{Kind: nonce.WatchGap} })
				tend(n)
				want("true gap")
				n.want("used 0#1 hash=1 -> CONSUMED")
				next := start(t, d, "b", mode, chained)
				n.Stop()
				pass(5 * time.Second)
				b.says(func(v *nonce.ChainView) { v.Trouble = nonce.Watch{} })
				list, err := next.Watched(t.Context(), 0, 9)
				if err != nil || len(list) != 1 || list[0].Signer != signer || list[0].Kind != nonce.WatchGap {
					t.Fatalf("the next owner is told %+v, %v", list, err)
				}
				tend(next)
				want("true gap") // the next owner has found out nothing yet
				b.says(func(v *nonce.ChainView) { v.Mined, v.Final, v.Trouble = 1, 1, nonce.Watch{Kind: nonce.WatchClear} })
				tend(next)
				want("")
				next.want("allocate -> 1#1")
				want("true")
			})
		})
	}
}
