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

// Who may only look at signers that nobody uses can make no node work, and crowds nobody out.
func TestReadsAskNothingAndRememberNothing(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for i := range 100 {
			if _, ok := w.chains.State(numbered(i)); ok {
				t.Error("a state of what nobody asked about")
			}
			w.chains.Words(numbered(i), make([]nonce.Row, 1))
			w.chains.offer(numbered(i), 0)
			w.chains.Signer(numbered(i)) // as a status does
		}
		w.after(time.Second)
		if n := len(w.chains.list[0].signers); n != 0 || w.chain.starts != 0 {
			t.Errorf("%d signers are remembered, %d questions", n, w.chain.starts)
		}
	})
}

// A list of many nonces has a few of them asked for at a time.
func TestAListHasFewNoncesAskedForAtATime(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		const many = 1000
		w.chain.set(func() { w.chain.mined[account(alice)] = many })
		w.signer(alice, many)
		w.block()
		w.after(time.Second)
		rows := make([]nonce.Row, many)
		for n := range rows {
			rows[n] = nonce.Row{Nonce: int64(n), Status: nonce.Consumed, Attempt: 1, TxHash: hash(1)}
		}
		asked := func() (n int) {
			w.chain.set(func() { n, w.chain.asked = len(w.chain.asked), nil })
			return n
		}
		asked()
		w.chains.Words(alice, rows)
		w.after(recallEvery)
		if first, all := asked(), maxRecall; first != recallBatch {
			t.Errorf("a list of %d nonces has nodes asked for %d at once, want %d", many, first, recallBatch)
		} else if w.after(time.Hour); first+asked() != all {
			t.Errorf("a list of %d nonces has nodes asked for more or less than %d", many, all)
		}
	})
}

// One name that no node understands would spoil the batch of a hundred others.
func TestANameThatIsNoAccountsIsNoSignerOfTheChain(t *testing.T) {
	inWorld(t, Config{}, func(w *world) {
		for _, name := range []string{
			"alice", "eip155:2:0xaa", "eip155:1:bob", "eip155:1:0xAB16A96D359eC26a11e2C2b3d8f8B8942d5Bfcdb", "eip155:1:",
		} {
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

func TestTheMetricsFollowTheRulesOfPrometheus(t *testing.T) {
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
