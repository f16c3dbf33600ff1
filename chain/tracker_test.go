package chain

import (
	"fmt"
	"testing"
	"time"

	"noncegate/nonce"
)

func hash(b byte) (h Hash) { h[31] = b; return h }

// numbered is the name of some signer.
func numbered(i int) string { return fmt.Sprintf("eip155:1:0x%040x", 0x1000+i) }

func hashText(b byte) string { h := hash(b); return string(h[:]) }

func TestANewSignerBeginsAtTheGreatestCountWithPools(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)], w.chain.pending[account(alice)] = 5, 8 })
		v := w.signer(alice, 0).View(0)
		if !v.Known || v.Mined != 5 || v.Start != 8 || v.Window != 16 {
			t.Errorf("got %+v, want mined 5, start 8, window 16", v)
		}
		if w.chains.Signer("alice") != nil || w.chains.Signer("eip155:2:0xaa") != nil {
			t.Error("a signer without a configured chain has one")
		}
	})
}

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
		if w.chains.Ready(alice, time.Hour, func() { waited <- time.Since(began) }) {
			t.Fatal("ready without an answer")
		}
		w.chain.set(func() { w.chain.away, w.chain.mined[account(alice)] = false, 3 })
		if got := <-waited; got > 2*time.Second {
			t.Errorf("the answer was waited for %v", got)
		}
		if v := s.View(0); !v.Known || v.Mined != 3 {
			t.Errorf("got %+v, want mined 3", v)
		}
		if !w.chains.Ready(alice, time.Hour, func() { t.Error("called although ready") }) {
			t.Error("not ready with an answer")
		}
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

func TestAKnownSignerDoesNotWaitForNodesThatAreAway(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.away = true })
		w.signer(alice, 3).View(0) // a plan has shown its cursor, and another has not read it
		if !w.chains.Ready(alice, time.Hour, func() {}) {
			t.Error("each of its requests waits for an answer that does not come")
		}
	})
}

func TestBlocksRaiseTheCountWithoutAQuestion(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 3)
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 2}})
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
		if v := s.View(3); v.Mined != 1 {
			t.Errorf("mined %d, want 1", v.Mined)
		}
		got := w.told(nonce.EventMined)
		if len(got) != 1 || got[0].Nonce != 0 || got[0].Attempt != 2 || got[0].TxHash != hash(1) {
			t.Errorf("told %+v, want mined 0, attempt 2", got)
		}
	})
}

func TestACountFallsOnlyWithAReorganization(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)] = 5 })
		s := w.signer(alice, 7)
		w.block()
		w.chain.set(func() { w.chain.mined[account(alice)] = 3 })
		w.block()
		if v := s.View(7); v.Mined != 5 {
			t.Fatalf("mined %d after a lower count, want 5", v.Mined)
		}
		w.number++
		now := Block{Number: w.number, Time: time.Unix(12*w.number, 0)}
		w.head(Head{Latest: now, Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: 5}})
		if v := s.View(7); v.Mined != 3 {
			t.Errorf("mined %d after a reorganization, want 3", v.Mined)
		}
		if got := w.told(nonce.EventReorg); len(got) != 1 || got[0].Nonce != 3 {
			t.Errorf("told %+v, want one reorg to 3", got)
		}
	})
}

// A node that is ahead, or on a branch that loses, may have given it: no block that is
// replaced tells of that.
func TestTheFirstAnswerIsReplacedByTheFirstCountAtABlock(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)] = 6 })
		s := w.signer(alice, 7)
		w.chain.set(func() { w.chain.mined[account(alice)] = 5 })
		w.block()
		if v := s.View(7); v.Mined != 5 || v.Start != 6 {
			t.Errorf("got %+v, want mined 5", v)
		}
		if got := w.told(nonce.EventReorg); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
		w.block(Use{Account: account(alice), Nonce: 5, Tx: hash(1)})
		if v := s.View(7); v.Mined != 6 {
			t.Errorf("mined %d, want 6", v.Mined)
		}
	})
}

func TestTheFloorFollowsTheFinalCountOnlyWhereNodesAgree(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() {
			w.chain.mined[account(alice)], w.chain.final[account(alice)], w.chain.quarrel = 50, 40, true
		})
		s := w.signer(alice, 50)
		final := Block{Number: 90, Hash: Hash{'f'}}
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, Final: final})
		if v := s.View(50); v.Final != 0 {
			t.Fatalf("final %d although the nodes disagree", v.Final)
		}
		w.chain.set(func() { w.chain.quarrel = false })
		final.Number = 91
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, Final: final})
		if v := s.View(50); v.Final != 40 || v.Mined != 50 {
			t.Errorf("final %d, mined %d, want 40 and 50", v.Final, v.Mined)
		}
	})
}

func TestAFallingFinalBlockStopsWhatHappensByItself(t *testing.T) {
	inWorld(t, Config{GapAfter: time.Second}, func(w *world) {
		s := w.signer(alice, 5)
		s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: 0, Attempt: 1}})
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, FinalFell: true})
		w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(1)} })
		w.after(time.Hour)
		if ops := w.did(); len(ops) > 0 {
			t.Errorf("did %+v", ops)
		}
		if st, ok := w.chains.State(alice); !ok || !st.Stopped {
			t.Errorf("state %+v %v, want stopped", st, ok)
		}
	})
}

func TestAnAuthorizationIsNotForgottenForAnotherUseOfItsBlock(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		w.block()
		w.chain.set(func() { w.chain.mined[account(alice)] = 2 })
		w.block(Use{Account: account(alice), Nonce: 1, Tx: hash(1), Authorization: true}, Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
		if v := s.View(1); v.Mined != 2 {
			t.Errorf("mined %d, want 2", v.Mined)
		}
	})
}

func TestDelegatedAccountsHaveAWindowOfOne(t *testing.T) {
	inWorld(t, Config{Windows: []WindowOf{{Pattern: "*bb", Window: 4}}}, func(w *world) {
		w.chain.set(func() { w.chain.code[account(alice)] = true })
		if v := w.signer(alice, 0).View(0); v.Window != 1 {
			t.Errorf("window %d, want 1", v.Window)
		}
		b := w.signer(bob, 0)
		if v := b.View(0); v.Window != 4 {
			t.Errorf("window %d, want 4 by the pattern", v.Window)
		}
		w.chain.set(func() { w.chain.code[account(bob)] = true })
		w.block(Use{Account: account(bob), Nonce: 0, Authorization: true})
		if v := b.View(0); v.Window != 1 {
			t.Errorf("window %d after an authorization, want 1", v.Window)
		}
	})
}

func TestAnUnknownHoldThatANodeHasSeenIsUsed(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 4}})
		s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: 0, Attempt: 4}})
		w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(9)} })
		w.after(10 * time.Second)
		ops := w.did()
		if len(ops) == 0 || ops[0].Kind != nonce.KindMarkUsed || ops[0].Attempt != 4 || ops[0].TxHash != hash(9) || !ops[0].MarkAny {
			t.Errorf("did %+v, want nonce 0 marked used", ops)
		}
	})
}

func TestAnUnknownHoldBelowTheCountIsUsedThoughNoNodeHasTheTransaction(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: 0, Attempt: 1}})
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(3)})
		w.after(10 * time.Second)
		if ops := w.did(); len(ops) == 0 || ops[0].TxHash != hash(3) {
			t.Errorf("did %+v, want nonce 0 marked used with the hash of the block", ops)
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

func TestWhatWasReadBeforeACommitIsNotNewerThanIt(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 2}, {Type: nonce.EventUnknown, Nonce: 0, Attempt: 2}})
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Held, Attempt: 1}})
		w.block()
		w.after(10 * time.Second)
		if !s.Unseen(0, 2) {
			t.Error("the attempt that the store has is not looked for")
		}
	})
}

func TestAHoldIsUnseenOnlyAfterAllNodesWereAskedAndTheChainMovedOn(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventUnknown, Nonce: 0, Attempt: 1}})
		w.after(10 * time.Second)
		if s.Unseen(0, 1) {
			t.Error("unseen although the chain has not moved on")
		}
		w.chain.set(func() { w.chain.failed = true })
		w.block()
		w.after(10 * time.Second)
		if s.Unseen(0, 1) {
			t.Error("unseen although a node could not be asked")
		}
		w.chain.set(func() { w.chain.failed = false })
		w.after(10 * time.Second)
		if !s.Unseen(0, 1) {
			t.Error("not unseen after all nodes were asked at a later block")
		}
		if s.Unseen(0, 2) || s.Unseen(1, 1) {
			t.Error("another attempt or nonce is unseen")
		}
		w.chain.set(func() { w.chain.away = true })
		w.after(2 * unseenFresh)
		if s.Unseen(0, 1) {
			t.Error("unseen by a look of long ago")
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

func TestAReplacedBlockDoesNotSayWhoUsedANonceAfterwards(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 1}, {Type: nonce.EventUsed, Nonce: 0, Attempt: 1, TxHash: hash(1)}})
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(2)})
		now := Block{Number: w.number, Hash: hash(9), Time: time.Unix(12*w.number, 0)}
		w.head(Head{Latest: now, Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: 1}})
		w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
		w.block() // its transactions are not shown
		got := w.told(nonce.EventMined)
		if last := got[len(got)-1]; last.TxHash != (Hash{}) {
			t.Errorf("told %+v, want no transaction", last)
		}
	})
}

func TestTheCountDoesNotFallBelowWhatIsFinal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)], w.chain.final[account(alice)] = 5, 4 })
		s := w.signer(alice, 6)
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, Final: Block{Number: 90, Hash: Hash{'f'}}})
		w.chain.set(func() { w.chain.mined[account(alice)] = 2 })
		now := Block{Number: w.number, Hash: hash(9)}
		w.head(Head{Latest: now, Final: Block{Number: 90, Hash: Hash{'f'}}, Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: 5}})
		if v := s.View(6); v.Mined != 4 || v.Final != 4 {
			t.Errorf("got %+v, want mined 4", v)
		}
	})
}

func TestASignerOfAnotherNodeIsNotToldOf(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Owned(false)
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(2)}, Use{Account: account(alice), Nonce: 1, Tx: hash(2)})
		w.after(10 * time.Minute)
		if got := w.sink.events; len(got) != 0 {
			t.Errorf("told %+v", got)
		}
		if v := s.View(1); v.Mined != 2 {
			t.Errorf("mined %d, want 2", v.Mined)
		}
	})
}

// The gap of a signer is shown by whichever node is asked, whether another one owns it or
// the one that did has died; it is told by who owns it, and when that is this node at
// last, then by this node.
func TestAGapIsShownByWhoeverIsAsked(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Released, Attempt: 1}, {Nonce: 1, Status: nonce.Consumed, Attempt: 1}})
		gap := func() *nonce.Gap {
			w.chains.LookAt(alice, 2)
			st, _ := w.chains.State(alice)
			return st.Gap
		}
		for range 4 {
			if got := gap(); got != nil {
				t.Fatalf("%+v before the time", got)
			}
			w.after(10 * time.Second)
		}
		w.after(20 * time.Second)
		if got := gap(); got == nil || got.Nonce != 0 || got.Status != nonce.Released || got.Blocked != 1 {
			t.Fatalf("got %+v, want the released nonce 0 that blocks 1", got)
		}
		if ops, events := w.did(), w.told(nonce.EventGap, nonce.EventGapClosed); len(ops)+len(events) > 0 {
			t.Errorf("did %+v, told %+v: that is for the owner", ops, events)
		}
		w.signer(alice, 2)
		w.after(10 * time.Second)
		if got := w.told(nonce.EventGap); len(got) != 1 || got[0].Nonce != 0 {
			t.Errorf("told %+v as the owner, want the gap", got)
		}
		w.chains.Signer(alice).Owned(false)
		w.after(2 * shownFor)
		if got, _ := w.chains.State(alice); got.Gap != nil {
			t.Errorf("got %+v of a signer at which nobody looks any more", got.Gap)
		}
	})
}
