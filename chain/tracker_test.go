package chain

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
)

func hash(b byte) (h Hash) { h[31] = b; return h }

// numbered is the name of some signer.
func numbered(i int) string { return fmt.Sprintf("eip155:1:0x%040x", 0x1000+i) }

func TestANewSignerIsUnknownUntilANodeAnswers(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.away = true })
		s := w.signer(alice, 0)
		if s.View(0).Known {
			t.Fatal("known without an answer")
		}
		waited := make(chan time.Duration, 2)
		began := time.Now()
		if w.chains.Ready(alice, 300*time.Millisecond, func() { waited <- time.Since(began) }) {
			t.Fatal("ready without an answer")
		}
		if got := <-waited; got != 300*time.Millisecond {
			t.Errorf("waited %v, want all of 300ms", got)
		}
		if v := s.View(0); !strings.Contains(v.Said, ErrUnreachable.Error()) {
			t.Errorf("the nodes said %q, want the node's error", v.Said)
		}
		if w.chains.Ready(alice, time.Hour, func() { waited <- time.Since(began) }) {
			t.Fatal("ready without an answer")
		}
		w.chain.set(func() { w.chain.away, w.chain.mined[account(alice)] = false, 3 })
		if got := <-waited; got > 2*time.Second {
			t.Errorf("the answer was waited for %v", got)
		}
		if v := s.View(0); !v.Known || v.Mined != 3 || v.Said != "" {
			t.Errorf("got %+v, want mined 3", v)
		}
		if w.chains.Ready(alice, time.Hour, func() { waited <- 0 }) {
			t.Error("ready with an answer to a question of before")
		}
		<-waited
	})
}

func TestAnOldAnswerIsAskedForAgainBeforeASignerBegins(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 0)
		w.after(time.Minute)
		w.chain.set(func() { w.chain.pending[account(alice)] = 2 })
		done := make(chan struct{})
		if w.chains.Ready(alice, time.Hour, func() { close(done) }) {
			t.Fatal("ready with an answer of a minute ago")
		}
		<-done
		if v := s.View(0); v.Start != 2 {
			t.Errorf("start %d, want 2", v.Start)
		}
	})
}

func TestANewSignerDoesNotBeginWithAnOldAnswer(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 0)
		w.after(time.Minute)
		w.chain.set(func() { w.chain.away = true })
		done := make(chan struct{})
		if w.chains.Ready(alice, time.Second, func() { close(done) }) {
			t.Fatal("ready with an answer of a minute ago")
		}
		<-done
		if v := s.View(0); !v.StartOld {
			t.Errorf("got %+v: a new signer begins where the chain was a minute ago", v)
		}
		w.chain.set(func() { w.chain.away, w.chain.pending[account(alice)] = false, 2 })
		w.after(time.Second)
		if v := s.View(0); v.StartOld || v.Start != 2 {
			t.Errorf("got %+v, want a new answer", v)
		}
	})
}

func TestANewSignerDoesNotBeginBehindWhatAPoolHasLostSince(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		ask := func() nonce.ChainView {
			done := make(chan struct{})
			if w.chains.Ready(alice, time.Hour, func() { close(done) }) {
				t.Fatal("ready with an old answer")
			}
			<-done
			return w.chains.Signer(alice).View(0)
		}
		w.chain.set(func() { w.chain.pending[account(alice)] = 7 })
		if v := ask(); v.Start != 7 {
			t.Fatalf("start %d, want 7", v.Start)
		}
		w.chain.set(func() { w.chain.pending[account(alice)] = 5 })
		for i, want := range []int64{7, 7, 7, 5} { // at first, a node that is behind may have answered alone
			w.after(10 * time.Second)
			if v := ask(); v.Start != want {
				t.Errorf("start %d after %v, want %d", v.Start, time.Duration(i+1)*10*time.Second, want)
			}
		}
	})
}

func TestAKnownSignerDoesNotWaitForNodesThatAreAway(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.away = true })
		w.signer(alice, 3).View(0) // a plan has shown its cursor, and another has not read it
		if !w.chains.Ready(alice, time.Hour, func() {}) {
			t.Error("each of its requests waits for an answer that does not come")
		}
	})
}

func TestHoldsAreLookedForAlsoWhereNothingBecomesFinal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 0)
		last := int64(maxNotes + 100)
		for n := range last {
			s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: n, Attempt: 1}})
			w.block(Use{Account: account(alice), Nonce: n, Tx: hash(1)})
		}
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: last, Attempt: 1}})
		s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: last, Attempt: 1}})
		w.chain.set(func() { w.chain.pool[last] = Sighting{Seen: Pooled, Tx: hash(9)} })
		w.after(10 * time.Second)
		if ops := w.did(); len(ops) == 0 || ops[0].Nonce != last {
			t.Errorf("did %+v, want nonce %d marked used", ops, last)
		}
		if n := len(s.(*signer).notes); n > maxNotes {
			t.Errorf("%d notes", n)
		}
	})
}

// Whatever became of the transaction, somebody has it.
func TestAHoldWhoseTransactionWasShownIsNeverUnseen(t *testing.T) {
	for name, show := range map[string]func(w *world){
		"by a block that was replaced": func(w *world) {
			w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(3)})
			now := Block{Number: w.number, Hash: hash(9), Time: time.Unix(12*w.number, 0)}
			w.head(Head{Latest: now, Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: 1}})
		},
		"by a pool that dropped it": func(w *world) {
			w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(3)} })
			w.after(10 * time.Second)
			w.chain.set(func() { delete(w.chain.pool, 0) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{}, func(w *world) {
				s := w.signer(alice, 1)
				w.svc.err = nonce.ErrBusy // it cannot be marked at once
				s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: 0, Attempt: 1}})
				w.block()
				w.after(10 * time.Second)
				if !s.Unseen(0, 1) {
					t.Fatal("it was seen before")
				}
				show(w)
				for range 10 {
					if s.Unseen(0, 1) {
						t.Fatal("it is unseen, and may be handed out again")
					}
					w.block()
					w.after(10 * time.Second)
				}
				w.svc.mu.Lock()
				w.svc.err = nil
				w.svc.mu.Unlock()
				w.did()
				w.after(10 * time.Second)
				if ops := w.did(); len(ops) == 0 || ops[0].Kind != nonce.KindMarkUsed || ops[0].TxHash != hash(3) {
					t.Errorf("did %+v, want it marked used", ops)
				}
			})
		})
	}
}

func TestALookRunsFewOpsAndNoneAfterOneThatFailed(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.svc.refuseLists(true)
		for i := range 3 * maxOps {
			s := w.chains.Signer(numbered(i))
			s.Owned(true)
			s.View(1)
		}
		w.after(watchEvery)
		w.svc.lists()
		w.after(watchEvery)
		if n := w.svc.lists(); n != 1 {
			t.Errorf("%d ops in a look in which the first failed", n)
		}
		w.svc.refuseLists(false)
		w.after(watchEvery)
		if n := w.svc.lists(); n != maxOps {
			t.Errorf("%d ops in a look, want %d", n, maxOps)
		}
		w.after(2 * watchEvery)
		if n := w.svc.lists(); n < 2*maxOps-10 {
			t.Errorf("%d ops in two looks more: not everybody has his turn", n)
		}
	})
}

// TestAQuestionAboutAnUnknownSignerTakesNoEntry: a reader may ask for any address, and those that
// allocate for the first time wait behind the questions to the nodes.
func TestAQuestionAboutAnUnknownSignerTakesNoEntry(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chains.LookAt(alice, 0)
		w.after(time.Minute)
		if w.chains.known(alice) != nil {
			t.Error("a signer that nobody has used is kept, and nodes are asked about it")
		}
		w.chains.LookAt(alice, 1)
		if w.chains.known(alice) == nil {
			t.Error("a signer that was used is not looked at")
		}
	})
}

// TestARepairAsksTheNodesAnew: a count that a node gives keeps it from handing out what may be used,
// and what nodes have of the nonce is what the repair has to outbid.
func TestARepairAsksTheNodesAnew(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 2)
		w.after(time.Minute)
		if v := s.View(2); !v.RepairOld {
			t.Fatal("an answer of a minute ago is enough")
		}
		anew := func() nonce.ChainView {
			done := make(chan struct{})
			if w.chains.Anew(alice, time.Second, func() { close(done) }) {
				t.Fatal("nodes are not asked")
			}
			<-done
			return s.View(2)
		}
		w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(7), Raw: Offer{GasPrice: "0x5"}} })
		if v := anew(); v.RepairOld || v.Ahead != 0 {
			t.Errorf("got %+v", v)
		}
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Reason: nonce.ReasonRepair, Nonce: 0, Attempt: 2, Version: 2}})
		if o, ok := w.chains.OfferFor(alice, 0); !ok || o.GasPrice != "0x5" {
			t.Errorf("the repair is offered %+v, %t", o, ok)
		}
		w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
		if v := anew(); v.Ahead != 1 || v.Mined != 0 {
			t.Errorf("got %+v, want the hint that 0 is used", v)
		}
		w.after(time.Minute)
		if v := anew(); v.Ahead != 0 {
			t.Errorf("got %+v: a hint that nothing settles keeps the nonce for ever", v)
		}
		w.after(time.Minute)
		w.chain.set(func() { w.chain.away = true })
		if v := anew(); !v.RepairOld {
			t.Errorf("got %+v, and no node has answered", v)
		}
	})
}
