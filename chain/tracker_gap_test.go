package chain

import (
	"testing"
	"time"

	"noncegate/nonce"
)

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
