package redislog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

func TestWhatALogHandsOutIsShippedAndSurvivesTheSwitchBack(t *testing.T) {
	w := newWorld(t)
	n := w.start("a", 1)
	n.ok(allocate("s"))
	w.on()
	for want := int64(1); want < 40; want++ {
		if op := n.ok(allocate("s")); op.Nonces[0] != want || op.Attempts[0] != 1 {
			t.Fatalf("got %v#%v, want %d", op.Nonces, op.Attempts, want)
		}
		if want%2 == 0 {
			n.ok(used("s", want, 1))
			if l := w.row("s"); l.Signer.Version == 0 {
				t.Error("a mark was answered, and the row does not have it")
			} else if _, live := l.Signer.Find(want); live {
				t.Errorf("nonce %d was marked, and the row has it as %+v", want, l.Signer)
			}
		}
	}
	w.off()
	if l := w.row("s"); l.Signer.Next != 40 {
		t.Errorf("got %+v", l.Signer)
	}
	if op := n.ok(allocate("s")); op.Nonces[0] != 40 {
		t.Errorf("got %v", op.Nonces)
	}
	w.on()
	if op := n.ok(allocate("s")); op.Nonces[0] != 41 {
		t.Errorf("got %v", op.Nonces)
	}
}

func TestARequestIDGivesTheSameFromTheLogAndFromTheRows(t *testing.T) {
	w := newWorld(t)
	n := w.start("a", 1)
	w.on()
	asked := func() *nonce.Op {
		op := allocate("s")
		op.RequestID = "r"
		return n.ok(op)
	}
	first := asked()
	for range 3 {
		if again := asked(); again.Nonces[0] != first.Nonces[0] || again.Attempts[0] != first.Attempts[0] {
			t.Errorf("got %v, want %v", again.Nonces, first.Nonces)
		}
	}
	n.Ship()
	if again := asked(); again.Nonces[0] != first.Nonces[0] {
		t.Errorf("got %v, want %v", again.Nonces, first.Nonces)
	}
	n.faults.store.Store(true)
	op := allocate("s")
	op.RequestID = "other"
	if n.do(op); nonce.OutcomeOf(op.Err) != nonce.NotSent {
		if e, ok := errors.AsType[*nonce.UnavailableError](op.Err); !ok || e.Outcome != nonce.NotSent {
			t.Errorf("an id that cannot be proved new: %v, %v", op.Nonces, op.Err)
		}
	}
	n.faults.store.Store(false)
}

func TestHandOutsGoOnWhileTheStoreIsAwayUntilTheGrantEnds(t *testing.T) {
	w := newWorld(t)
	n := w.start("a", 1)
	w.on()
	n.ok(allocate("s"))
	n.faults.store.Store(true)
	if op := n.do(allocate("s")); op.Err != nil {
		t.Errorf("while the grant runs: %v", op.Err)
	}
	mark := make(chan *nonce.Op, 1)
	go func() { mark <- n.do(used("s", 0, 1)) }()
	time.Sleep(grantFor)
	late := make(chan *nonce.Op, 1)
	go func() { late <- n.do(allocate("s")) }()
	select {
	case op := <-mark:
		t.Errorf("a mark is answered: %v", op.Err)
	case op := <-late:
		t.Errorf("a hand-out rests on the log alone after the end of the grant: %v", op.Err)
	case <-time.After(300 * time.Millisecond):
	}
	n.faults.store.Store(false)
	for _, c := range []chan *nonce.Op{mark, late} {
		if op := <-c; op.Err != nil {
			t.Errorf("%v: %v", op.Kind, op.Err)
		}
	}
}

func TestANewOwnerGoesOnWhereTheLogEnds(t *testing.T) {
	t.Run("one server", func(t *testing.T) { newWorld(t).takeOver() })
	t.Run("a cluster", func(t *testing.T) {
		w, _ := newClusterWorld(t)
		w.takeOver()
	})
}

func (w *world) takeOver() {
	a := w.start("a", 1)
	w.on()
	a.ok(allocate("s"))
	a.faults.store.Store(true) // it ships nothing any more, and its lease ends
	given := a.ok(allocate("s"))
	b := w.start("b", 2)
	w.eventually("b takes over", func() bool { return b.do(allocate("t")).Err == nil })
	w.eventually("b has the shard of s", func() bool {
		op := b.do(allocate("s"))
		if op.Err == nil && op.Nonces[0] <= given.Nonces[0] && op.Attempts[0] == 1 {
			w.Fatalf("got %v, and %v was given", op.Nonces, given.Nonces)
		}
		return op.Err == nil
	})
	if op := a.do(allocate("s")); op.Err == nil {
		w.Errorf("the old owner hands out %v", op.Nonces)
	}
	b.ok(used("s", given.Nonces[0], 1))
}

func TestNothingIsLostWithRedisWhileTheOwnerLives(t *testing.T) {
	for name, lose := range map[string]func(w *world) error{
		"it is emptied":  func(w *world) error { w.server.Client(w.T).FlushAll(context.Background()); return nil },
		"it is killed":   func(w *world) error { return w.server.Kill() },
		"it starts anew": func(w *world) error { return w.server.Restart() },
		"it is full": func(w *world) error {
			return w.server.Client(w.T).ConfigSet(context.Background(), "maxmemory", "1").Err()
		},
		"it goes back": func(w *world) error { return w.server.SetBack(300) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			n := w.start("a", 1)
			w.on()
			last := int64(0)
			for range 20 {
				last = n.ok(allocate("s")).Nonces[0]
			}
			if err := lose(w); err != nil {
				t.Fatal(err)
			}
			w.eventually("it hands out again", func() bool {
				op := n.do(allocate("s"))
				if op.Err == nil && op.Nonces[0] > last+5 || op.Err == nil && op.Nonces[0] <= last {
					t.Fatalf("got %v, and %d was given", op.Nonces, last)
				}
				return op.Err == nil
			})
			w.allReliable()
			w.eventually("it is degraded", func() bool { return n.Engine().State == "DEGRADED" })
			if n.Engine().Lost != 0 {
				t.Error("a loss was declared")
			}
			for i := range last {
				n.ok(used("s", i, 1))
			}
			if name == "it is killed" {
				if err := w.server.Restart(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestNothingIsLostWithAClusterWhileTheOwnerLives: one of its masters is killed, and then all.
func TestNothingIsLostWithAClusterWhileTheOwnerLives(t *testing.T) {
	for name, killed := range map[string]int{"one master": 1, "all masters": 3} {
		t.Run(name, func(t *testing.T) {
			w, cluster := newClusterWorld(t)
			n := w.start("a", 1)
			w.on()
			var signers []string
			for i := range 16 {
				signers = append(signers, fmt.Sprint("s", i))
				for range 3 {
					n.ok(allocate(signers[i]))
				}
			}
			for _, s := range cluster.Servers[:killed] {
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range signers {
				w.eventually("it hands out again", func() bool {
					op := n.do(allocate(name))
					if op.Err == nil && (op.Nonces[0] < 3 || op.Nonces[0] > 8) {
						t.Fatalf("got %v, and 0 to 2 were given", op.Nonces)
					}
					return op.Err == nil
				})
			}
			w.allReliable()
			if got := n.Engine(); got.Lost != 0 {
				t.Errorf("a loss was declared: %+v", got)
			}
			for _, name := range signers {
				n.ok(used(name, 2, 1))
			}
		})
	}
}

func TestAfterALossOfBothNobodyIsGivenWhatMayHaveAHolder(t *testing.T) {
	w := newWorld(t)
	longer := func(c *service.Config) { c.MaxHold = 5 * holdFor }
	a := w.start("a", 1, longer)
	w.on()
	a.ok(allocate("s"))
	a.Ship()
	a.faults.store.Store(true)
	given := a.ok(allocate("s"))
	b := w.start("b", 2, longer)
	b.faults.log.Store(true) // b does not reach the Redis that a still sees
	var first *nonce.Op
	w.eventually("b hands out", func() bool { first = b.do(allocate("s")); return first.Err == nil })
	if first.Nonces[0] <= given.Nonces[0] {
		t.Fatalf("b hands out %v, and a gave %v", first.Nonces, given.Nonces)
	}
	l := w.row("s")
	if l.Shard.Epoch != 1 || l.Signer.Epoch != 1 || l.Signer.Next < l.Signer.Ceiling {
		t.Errorf("got %+v", l)
	}
	mark := b.do(used("s", given.Nonces[0], given.Attempts[0]))
	if mark.Err != nil {
		t.Fatalf("the mark of what a gave: %v", mark.Err)
	}
	if now := time.Now().UnixMilli(); now < l.Shard.GrantUntil {
		t.Errorf("it is told %d ms before the grant ends", l.Shard.GrantUntil-now)
	}
	if op := b.do(&nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: 0, Attempt: 1}); op.Err == nil && time.Now().UnixMilli() < l.Shard.DoubtUntil {
		t.Error("a nonce in doubt is given back")
	}
	w.eventually("what was in doubt comes back", func() bool {
		op := b.do(allocate("s"))
		if op.Err != nil || op.Nonces[0] >= first.Nonces[0] {
			return false
		}
		if op.Attempts[0] <= 1<<20 || time.Now().UnixMilli() < l.Shard.DoubtUntil || op.Nonces[0] == given.Nonces[0] {
			t.Fatalf("got %v#%v", op.Nonces, op.Attempts)
		}
		return true
	})
}
