package chain

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

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

func TestAGapIsToldOnceAndClosed(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 3)
		w.rows([]nonce.Row{
			{Nonce: 0, Status: nonce.Held, Reason: nonce.ReasonUnknown, Attempt: 2},
			{Nonce: 1, Status: nonce.Consumed, Attempt: 1, TxHash: hash(1)},
			{Nonce: 2, Status: nonce.Held, Attempt: 1},
		})
		w.block()
		w.after(20 * time.Second)
		if got := w.told(nonce.EventGap); len(got) != 0 {
			t.Fatalf("told %+v before the time", got)
		}
		w.after(time.Minute) // 36 s are three blocks
		got := w.told(nonce.EventGap)
		if len(got) != 1 || got[0].Nonce != 0 || got[0].Gap == nil || got[0].Gap.Blocked != 2 || !got[0].Gap.Unknown {
			t.Fatalf("told %+v, want one gap at 0 that blocks 2", got)
		}
		w.after(10 * time.Minute)
		if got := w.told(nonce.EventGap); len(got) != 1 {
			t.Errorf("the gap was told %d times", len(got))
		}
		if st, _ := w.chains.State(alice); st.Gap == nil || st.Gap.Nonce != 0 {
			t.Errorf("state %+v, want the gap", st)
		}
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(5)})
		if got := w.told(nonce.EventGapClosed); len(got) != 1 || got[0].Nonce != 0 {
			t.Errorf("told %+v, want the gap closed", got)
		}
		if s.View(3).Mined != 1 {
			t.Error("the count did not follow")
		}
	})
}

func TestAGapIsToldThoughNoPlanHasShownTheCursor(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 0)
		w.block()
		w.after(time.Minute)
		s.View(0) // one plan, and several hand-outs
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 1}, {Type: nonce.EventAllocated, Nonce: 1, Attempt: 1}})
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Held, Attempt: 1}, {Nonce: 1, Status: nonce.Held, Attempt: 1}})
		w.after(2 * time.Minute)
		if got := w.told(nonce.EventGap); len(got) != 1 || got[0].Nonce != 0 {
			t.Errorf("told %+v, want the gap", got)
		}
	})
}

func TestAGapBehindWhichNothingWaitsAnyMoreIsClosed(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.signer(alice, 2)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Held, Attempt: 1}, {Nonce: 1, Status: nonce.Held, Attempt: 1}})
		w.after(2 * time.Minute)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Held, Attempt: 1}, {Nonce: 1, Status: nonce.Released, Attempt: 1}})
		w.after(2 * time.Minute)
		if got := w.told(nonce.EventGap, nonce.EventGapClosed); len(got) != 2 || got[1].Type != nonce.EventGapClosed {
			t.Errorf("told %+v, want a gap and its end", got)
		}
		if st, _ := w.chains.State(alice); st.Gap != nil {
			t.Errorf("state %+v", st)
		}
	})
}

func TestAGapIsTheOwnersToTell(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 2)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Held, Attempt: 1}, {Nonce: 1, Status: nonce.Held, Attempt: 1}})
		w.after(2 * time.Minute)
		s.Owned(false)
		w.after(time.Second)
		if st, _ := w.chains.State(alice); st.Gap != nil {
			t.Errorf("a node that is not the owner says %+v", st)
		}
	})
}

func TestNothingIsDroppedThatANodeWhichFailedMayHave(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.signer(alice, 2)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Consumed, TxHash: hash(7), Attempt: 1}, {Nonce: 1, Status: nonce.Consumed, Attempt: 1}})
		w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(7)} })
		w.after(2 * time.Minute)
		w.chain.set(func() { delete(w.chain.pool, 0); w.chain.failed = true })
		w.after(2 * time.Minute)
		if got := w.told(nonce.EventDropped); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
		w.chain.set(func() { w.chain.failed = false })
		w.after(2 * time.Minute)
		if got := w.told(nonce.EventDropped); len(got) != 1 {
			t.Errorf("told %+v, want one dropped", got)
		}
	})
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

func TestWhatAPoolHasIsNoGap(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.signer(alice, 3)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Consumed, TxHash: hash(7), Attempt: 1}, {Nonce: 1, Status: nonce.Consumed, Attempt: 1}})
		w.chain.set(func() { w.chain.pool[0] = Sighting{Seen: Pooled, Tx: hash(7)} })
		w.after(5 * time.Minute)
		if got := w.told(nonce.EventGap); len(got) != 0 {
			t.Fatalf("told %+v", got)
		}
		w.chain.set(func() { delete(w.chain.pool, 0) })
		w.after(5 * time.Minute)
		if got := w.told(nonce.EventDropped, nonce.EventGap); len(got) != 2 || got[0].Type != nonce.EventDropped || got[0].TxHash != hash(7) {
			t.Errorf("told %+v, want dropped and then the gap", got)
		}
	})
}

func TestReleasedNoncesAloneAreNoGap(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.signer(alice, 3)
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Released, Attempt: 1}, {Nonce: 1, Status: nonce.Released, Attempt: 1}, {Nonce: 2, Status: nonce.Released, Attempt: 1}})
		w.after(5 * time.Minute)
		if got := w.told(nonce.EventGap); len(got) != 0 {
			t.Errorf("told %+v", got)
		}
	})
}

func TestANonceThatNobodyHeldIsExternal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventAllocated, Nonce: 0, Attempt: 1}, {Type: nonce.EventUsed, Nonce: 0, Attempt: 1, TxHash: hash(1)}})
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: hash(1)}})
		w.svc.refuseLists(true)
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)}, Use{Account: account(alice), Nonce: 1, Tx: hash(2)})
		w.after(time.Minute)
		if got := w.told(nonce.EventExternal); len(got) != 0 {
			t.Fatalf("told %+v although the store could not be asked", got)
		}
		w.svc.refuseLists(false)
		w.after(time.Second)
		if got := w.told(nonce.EventExternal); len(got) != 1 || got[0].Nonce != 1 || got[0].TxHash != hash(2) || got[0].Reason != "transaction" {
			t.Errorf("told %+v, want nonce 1 with its hash", got)
		}
	})
}

func TestAnExternalUseIsToldOfASignerThatRests(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
		w.signer(alice, 1)
		w.block()
		w.after(time.Minute)
		w.block(Use{Account: account(alice), Nonce: 1, Tx: hash(2)})
		w.after(time.Second)
		if got := w.told(nonce.EventExternal); len(got) != 1 || got[0].Nonce != 1 {
			t.Errorf("told %+v, want nonce 1", got)
		}
	})
}

func TestAnotherTransactionInTheBlockThatReplacesIsExternal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		s.Committed([]nonce.Event{{Type: nonce.EventUsed, Nonce: 0, Attempt: 1, TxHash: hash(1)}})
		w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: hash(1)}})
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
		w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
		now := Block{Number: w.number, Hash: hash(9), Time: time.Unix(12*w.number, 0)}
		w.head(Head{Latest: now, Reorg: &Reorg{From: Block{Number: w.number}, To: now, Depth: 1}, Uses: []Use{{Account: account(alice), Nonce: 0, Tx: hash(2)}}})
		w.after(time.Second)
		if got := w.told(nonce.EventExternal); len(got) != 1 || got[0].TxHash != hash(2) {
			t.Errorf("told %+v, want the second transaction", got)
		}
	})
}

// In mode basic, and after a take-over that this node has not noticed, another node hands
// nonces out that no plan of this one has shown.
func TestWhatAnotherNodeHandedOutIsNotExternal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
		w.signer(alice, 1)
		w.rows([]nonce.Row{
			{Nonce: 1, Status: nonce.Held, Attempt: 1},
			{Nonce: 2, Status: nonce.Consumed, Attempt: 1, TxHash: hash(3), Replaced: nonce.TxHashes(hashText(2))},
			{Nonce: 3, Status: nonce.Consumed, Attempt: 4, TxHash: hash(9)},
		})
		for i := range byte(3) {
			w.block(Use{Account: account(alice), Nonce: 1 + int64(i), Tx: hash(1 + i)})
		}
		w.after(time.Second)
		if got := w.told(nonce.EventExternal); len(got) != 1 || got[0].Nonce != 3 || got[0].Attempt != 4 {
			t.Errorf("told %+v, want nonce 3 only, whose transaction is another", got)
		}
		if got := w.told(nonce.EventMined); len(got) != 3 || got[0].Attempt != 1 || got[2].TxHash != hash(3) {
			t.Errorf("told %+v, want three mined", got)
		}
	})
}

func TestAnotherTransactionThanWasRecordedIsExternal(t *testing.T) {
	for mined, external := range map[byte]int{3: 1, 1: 0} {
		inWorld(t, Config{}, func(w *world) {
			s := w.signer(alice, 1)
			s.Committed([]nonce.Event{{Type: nonce.EventUsed, Nonce: 0, Attempt: 1, TxHash: hash(1)}, {Type: nonce.EventReplaced, Nonce: 0, Attempt: 1, TxHash: hash(2)}})
			w.rows([]nonce.Row{{Nonce: 0, Status: nonce.Consumed, Attempt: 1, TxHash: hash(2), Replaced: nonce.TxHashes(hashText(1))}})
			w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(mined)})
			w.after(time.Second)
			if got := w.told(nonce.EventExternal); len(got) != external || external > 0 && got[0].TxHash != hash(mined) {
				t.Errorf("transaction %d was mined: told %+v", mined, got)
			}
			if got := w.told(nonce.EventMined); len(got) != 1 {
				t.Errorf("told %+v, want it mined once", got)
			}
		})
	}
}

func TestACountWithoutATransactionIsExternalOnlyOnceItIsFinal(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		w.signer(alice, 1)
		w.chain.set(func() { w.chain.mined[account(alice)] = 2 })
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, Skipped: true})
		w.after(time.Minute)
		if got := w.told(nonce.EventExternal); len(got) != 0 {
			t.Fatalf("told %+v before it is final", got)
		}
		w.chain.set(func() { w.chain.final[account(alice)] = 2 })
		w.number++
		w.head(Head{Latest: Block{Number: w.number}, Final: Block{Number: 95, Hash: Hash{'f'}}})
		w.after(time.Second)
		if got := w.told(nonce.EventExternal); len(got) != 1 || got[0].Nonce != 1 || got[0].Reason != "unknown" {
			t.Errorf("told %+v, want nonce 1", got)
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

func TestTheMemoryOfSignersIsBounded(t *testing.T) {
	inWorld(t, Config{MaxSigners: 10}, func(w *world) {
		for i := range 100 {
			w.chains.Signer(numbered(i)).View(0)
		}
		w.after(time.Second)
		if n := len(w.chains.list[0].signers); n != 10 {
			t.Errorf("%d signers are remembered, want 10", n)
		}
		w.after(2 * time.Minute)
		if !w.signer(bob, 0).View(0).Known || w.chains.list[0].signers[account(bob)] == nil {
			t.Error("an unused signer was not forgotten for a new one")
		}
	})
}

// Who may only look can make no node work, and crowds nobody out.
func TestReadsAskNothingAndRememberNothing(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for i := range 100 {
			if _, ok := w.chains.State(numbered(i)); ok {
				t.Error("a state of what nobody asked about")
			}
			w.chains.Words(numbered(i), make([]nonce.Row, 1))
			w.chains.OfferFor(numbered(i), 0)
			w.chains.Signer(numbered(i)) // as a status does
		}
		w.after(time.Second)
		if n := len(w.chains.list[0].signers); n != 0 || w.chain.starts != 0 {
			t.Errorf("%d signers are remembered, %d questions", n, w.chain.starts)
		}
	})
}

// One name that no node understands would spoil the batch of a hundred others.
func TestANameThatIsNoAccountsIsNoSignerOfTheChain(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for _, name := range []string{"eip155:1:bob", "eip155:1:0xAB16A96D359eC26a11e2C2b3d8f8B8942d5Bfcdb", "eip155:1:"} {
			if w.chains.Signer(name) != nil || !w.chains.Ready(name, time.Hour, func() { t.Error("waited for") }) {
				t.Errorf("%s is one", name)
			}
		}
	})
}

func TestASignerThatWasForgottenAndIsUsedAgainIsFollowed(t *testing.T) {
	for name, again := range map[string]func(nonce.ChainSigner){
		"owned again":  func(s nonce.ChainSigner) { s.Owned(true) },
		"planned with": func(s nonce.ChainSigner) { s.View(1) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Config{MaxSigners: 2}, func(w *world) {
				s := w.signer(alice, 1)
				w.block()
				s.Owned(false)
				w.after(2 * time.Minute)
				for i := range 2 {
					w.chains.Signer(numbered(i)).View(0)
				}
				w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
				if s.View(1).Mined != 0 {
					t.Fatal("it was not forgotten")
				}
				w.after(2 * time.Minute) // so that there is room
				w.chain.set(func() { w.chain.mined[account(alice)] = 1 })
				again(s)
				w.block()
				if v := s.View(1); v.Mined != 1 || v.Window != 16 {
					t.Errorf("got %+v, want mined 1", v)
				}
				w.block(Use{Account: account(alice), Nonce: 1, Tx: hash(1)})
				if v := s.View(1); v.Mined != 2 {
					t.Errorf("got %+v, want mined 2", v)
				}
			})
		})
	}
}

func TestASignerForWhichThereIsNoRoomHasNoWindow(t *testing.T) {
	inWorld(t, Config{MaxSigners: 1}, func(w *world) {
		w.signer(alice, 1)
		s := w.signer(bob, 0)
		if v := s.View(0); !v.Known || v.Window != 0 {
			t.Errorf("got %+v: its count never rises, and would end its hand-outs", v)
		}
	})
}

// In mode basic nobody says that a signer is not used any more.
func TestOwnedSignersThatNobodyUsesMakeRoom(t *testing.T) {
	inWorld(t, Config{MaxSigners: 10}, func(w *world) {
		for i := range 10 {
			w.chains.Signer(numbered(i)).Owned(true)
		}
		w.after(20 * time.Minute)
		s := w.signer(alice, 0)
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
		if v := s.View(0); v.Mined != 1 || v.Window != 16 {
			t.Errorf("got %+v, want it followed", v)
		}
	})
}

func TestTheWatcherRestsWhenNothingIsOpen(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		s := w.signer(alice, 1)
		w.after(time.Second)
		if n := len(w.chains.list[0].open); n != 1 {
			t.Fatalf("%d signers are open, want 1", n)
		}
		w.block(Use{Account: account(alice), Nonce: 0, Tx: hash(1)})
		w.after(5 * time.Second)
		if n := len(w.chains.list[0].open); n != 0 {
			t.Errorf("%d signers are open, want none", n)
		}
		s.View(2)
		if n := len(w.chains.list[0].open); n != 1 {
			t.Errorf("%d signers are open after a hand-out, want 1", n)
		}
	})
}

func TestManySignersCostFewQuestions(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for i := range 10_000 {
			w.chains.Signer(numbered(i)).Owned(true)
		}
		w.after(time.Second)
		w.block() // at which the first answers are confirmed
		before := w.chain.questions()
		for range 10 {
			w.block()
		}
		if n := w.chain.questions() - before; n != 0 {
			t.Errorf("%d questions for counts in 10 blocks in which nothing is open", n)
		}
	})
}

func TestTheFiguresFollowTheRulesOfPrometheus(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		families, err := w.reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v %v", problems, err)
		}
	})
}
