package nonce_test

import (
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fasttest"
	"noncegate/nonce/memstore"
)

func TestAMarkIsAnsweredAfterItsFlush(t *testing.T) {
	for _, line := range []string{"used 0#1", "release 0#1", "floor 7", "used 0#9"} { // the last is refused
		for _, told := range []bool{true, false} {
			t.Run(line, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPair(t)
					n := p.entered("a", "allocate -> 0#1")
					n.want("allocate -> 1#1") // something that is not flushed yet
					mark := n.lineOf(line)
					time.Sleep(105 * time.Millisecond) // between two looks of the service at the store
					if mark.answered() {
						t.Fatalf("answered %q before its flush", mark.wait())
					}
					if used, _ := n.Queued(); used != 1 {
						t.Errorf("it has %d places, want 1", used)
					}
					if told {
						asked := p.calls(memstore.OpVersions)
						p.flushAs(n)
						if synctest.Wait(); !mark.answered() || asked() != 0 {
							t.Errorf("answered %v, and the store was asked %d times", mark.answered(), asked())
						}
					} else {
						p.flush() // another node's
					}
					want := map[string]string{
						"used 0#1": "CONSUMED", "release 0#1": "RELEASED", "floor 7": "floor 7 next 7", "used 0#9": "conflict 0#1=HELD",
					}[line]
					if got := mark.wait(); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			})
		}
	}
}

func TestAMarkWhoseFlushTakesTooLongIsUnknownAndNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		began := time.Now()
		n.want("used 0#1 hash=4 -> unknown")
		if took := time.Since(began); took > n.cfg.StoreTimeout+100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		p.flush()
		n.want("used 0#1 hash=4 -> CONSUMED", "release 0#1 -> conflict 0#1=CONSUMED/4")
		if got := p.rows(t, signer); got != "0#1=CONSUMED/4" {
			t.Errorf("got %s", got)
		}
	})
}

func TestHandOutsWaitForTheirFlushWhenItIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate id=x -> 1#1")
		n.late.Store(true)
		first, again := n.lineOf("allocate"), n.lineOf("allocate id=x")
		time.Sleep(100 * time.Millisecond)
		if first.answered() || again.answered() {
			t.Fatal("a hand-out was answered before its flush")
		}
		p.flush()
		if got := first.wait() + " " + again.wait(); got != "2#1 1#1" {
			t.Errorf("got %q", got)
		}
	})
}

func TestWhatIsFlushedIsFoundThoughRedisForgotIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		a := p.entered("a", "allocate -> 0#1", "allocate -> 1#1")
		mark := a.lineOf("used 0#1 hash=3")
		synctest.Wait()
		p.flushAs(a)
		mark.wait()
		lines := []string{"used 0#1 hash=3 -> CONSUMED", "release 0#1 -> conflict 0#1=CONSUMED/3", "used 7#1 -> not_found"}
		a.want(lines...)
		p.leaseEnds()
		b := p.start("b")
		for _, line := range lines {
			b.want(line) // the first one takes over
		}
		b.want("allocate -> 2#1")
	})
}

func TestStopWaitsForTheFlushOfWhatIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1", "allocate -> 1#1")
		mark := n.lineOf("used 0#1")
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { n.Stop(); close(stopped) }()
		time.Sleep(50 * time.Millisecond)
		if mark.answered() {
			t.Fatal("answered before the flush")
		}
		p.flush()
		<-stopped
		if got := mark.wait(); got != "CONSUMED" {
			t.Errorf("got %q", got)
		}
		if got := p.summary(t, signer).Lease.Holder.Node; got != "" {
			t.Errorf("%q still has the lease", got)
		}
		p.start("b").want("used 1#1 -> unknown", "allocate -> 2#1")
	})
}

func TestStopDoesNotWaitForEverForAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		mark := n.lineOf("used 0#1")
		synctest.Wait()
		began := time.Now()
		n.Stop()
		if got := mark.wait(); got != "unknown" || time.Since(began) > n.cfg.StoreTimeout+100*time.Millisecond {
			t.Errorf("got %q after %v", got, time.Since(began))
		}
	})
}

func TestARetiredNodeGivesItsSignersToOthersWithWhatOnlyRedisHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		a := p.entered("a", "allocate -> 0#1")
		a.want("allocate id=x -> 1#1")
		mark := a.lineOf("used 0#1")
		time.Sleep(10 * time.Millisecond) // it is in Redis
		synctest.Wait()
		a.Retire()
		synctest.Wait()
		b := p.start("b")
		b.want("allocate id=x -> 1#1", "allocate -> 2#1")
		p.flush()
		if got := mark.wait(); got != "CONSUMED" {
			t.Errorf("got %q", got)
		}
		a.want("allocate -> draining")
	})
}

func TestStatusAndListShowWhatOnlyRedisHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate id=x -> 0#1", "allocate -> 1#1", "allocate -> 2#1", "used 2#1 hash=9 -> CONSUMED")
		other := p.start("b")
		n.want("release 0#1 -> unknown", "used 1#1 hash=8 -> unknown", "allocate id=y count=3 -> 0#2 3#1 4#1")
		for _, m := range []*fastNode{n, other} {
			m.want("status -> next 5 floor 0 held 3 released 0 consumed 2",
				"list -> 0#2=HELD 1#1=CONSUMED/8 2#1=CONSUMED/9 3#1=HELD 4#1=HELD")
		}
		held := &nonce.Op{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{Status: nonce.Held, Limit: 100}}
		if got := n.do(held); got != "0#2=HELD 3#1=HELD 4#1=HELD" {
			t.Errorf("got %q", got)
		}
		var got []string
		for from := int64(0); from >= 0; {
			op := &nonce.Op{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{From: from, Limit: 2}}
			got = append(got, n.do(op))
			from = op.Page.NextFrom
		}
		if len(got) != 3 || got[1] != "2#1=CONSUMED/9 3#1=HELD" {
			t.Errorf("got pages %q", got)
		}
		p.server.Flush()
		n.want("status -> none", "list -> none")
	})
}

// Redis keeps neither request ids by nonce nor when a row was written. What the store
// says of that is of the attempt that it knows.
func TestAListSaysWhenAndForWhomWhereTheStoreKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate id=x -> 0#1", "allocate id=y -> 1#1")
		list := func() []nonce.Row {
			op := &nonce.Op{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{Limit: 100}}
			n.do(op)
			return op.Page.Rows
		}
		for i, r := range list() {
			if want := string("xy"[i]); r.UpdatedAt.IsZero() || r.RequestID != want {
				t.Errorf("%s changed at %v for %q, want %q", row(r), r.UpdatedAt, r.RequestID, want)
			}
		}
		n.want("release 0#1 -> unknown", "allocate -> 0#2")
		if r := list()[0]; r.Attempt != 2 || r.RequestID != "" || !r.UpdatedAt.IsZero() {
			t.Errorf("%s is said to be of %v, for %q", row(r), r.UpdatedAt, r.RequestID)
		}
		p.flushAs(n)
		if r := list()[0]; r.Attempt != 2 || r.RequestID != "" || r.UpdatedAt.IsZero() {
			t.Errorf("%s is said to be of %v, for %q", row(r), r.UpdatedAt, r.RequestID)
		}
	})
}

func TestANodeWithoutRedisLeavesPerformanceSignersAlone(t *testing.T) {
	for name, change := range map[string]func(*nonce.Config){"worker-queue": func(*nonce.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				n := p.entered("a", "allocate -> 0#1")
				n.want("allocate -> 1#1")
				p.leaseEnds()
				rows := p.rows(t, signer)
				plain := start(t, p.disk, "plain", change)
				plain.want("allocate -> none", "used 0#1 -> none", "floor 9 -> none", "status -> none", "list -> none")
				if got := p.rows(t, signer); got != rows {
					t.Errorf("got rows %s, want %s", got, rows)
				}
				n.want("allocate -> 2#1") // nobody has the lease that the other gave back
			})
		})
	}
}

func TestOverdueHoldsAreSweptInRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate hold=1s -> 1#1", "allocate hold=3s -> 2#1")
		time.Sleep(1100 * time.Millisecond)
		n.want("allocate -> 1#2")
		p.flush()
		if got := p.rows(t, signer); got != "0#1=HELD 1#2=HELD 2#1=HELD" && got != "0#1=RELEASED/expired 1#2=HELD 2#1=HELD" {
			t.Errorf("got %s", got)
		}
	})
}

func TestARequestThatRedisKnowsIsAnsweredWithWhatItWasGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		n := p.entered("a", "allocate -> 0#1")
		n.want("allocate id=x -> 1#1", "allocate id=x -> 1#1", "allocate id=x count=2 -> conflict 1#1=HELD")
		if got := n.batch(parse(t, "allocate id=y"), parse(t, "allocate id=y"), parse(t, "allocate")); len(got) != 3 || got[0] != "2#1" || got[1] != "2#1" || got[2] != "3#1" {
			t.Errorf("got %q", got)
		}
		n.breaks(fasttest.OpCommit, fasttest.LostReply)
		n.want("allocate id=z -> 4#1", "allocate id=z -> 4#1")
	})
}
