package cluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/events"
	"noncegate/nonce"
)

func TestOpsOfOneSignerReachANodeInTheOrderOfForward(t *testing.T) {
	const signers, each = 8, 300
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		var callers sync.WaitGroup
		for s := range signers {
			callers.Go(func() {
				for n := range each {
					w.forward(&asked{Request: nonce.Request{Kind: nonce.KindMarkUsed, Signer: fmt.Sprint(s), Nonce: int64(n), Attempt: 1}, to: w.back})
				}
			})
		}
		next := make(map[string]int64)
		for range signers * each {
			r := f.next(nonce.KindMarkUsed)
			if r.Nonce != next[r.Signer] || r.path != 5 {
				t.Fatalf("signer %s: nonce %d came on path %d, want %d", r.Signer, r.Nonce, r.path, next[r.Signer])
			}
			next[r.Signer]++
		}
		callers.Wait()
	})
}

func TestManyRequestsLeaveInOneWrite(t *testing.T) {
	var writes atomic.Int64
	tell(t, Config{}, []string{"a"}, func(t *testing.T, w *world) {
		first := <-w.fars["a"]
		w.net.Host("a").Wrap = func(c net.Conn) net.Conn { return counting{c, &writes} }
		first.cut()
		f := <-w.fars["a"]
		synctest.Wait()
		readOn := f.stopReading()
		w.forward(w.allocation("s"))
		synctest.Wait()
		before := writes.Load()
		for range 100 {
			w.forward(w.allocation("s"))
		}
		readOn()
		for range 101 {
			f.next(nonce.KindAllocate)
		}
		if got := writes.Load() - before; got > 2 {
			t.Errorf("100 requests took %d writes", got)
		}
	})
}

// One principal must not take every slot at a node from the others: what it has under
// way there may wait for long.
func TestAGreedyPrincipalLeavesOthersAPlaceAtAnotherNode(t *testing.T) {
	linked(t, Config{Queue: 16}, func(t *testing.T, w *world, f *far) {
		fill := func(p nonce.Principal) (n int) {
			for ; ; n++ {
				o := w.allocation("s")
				o.Principal = p
				if err := w.Forward("a", "", &o.Request, 0, o); err != nil {
					if err != nonce.ErrForwardBusy {
						t.Fatal(err)
					}
					return n
				}
			}
		}
		if one, two, nobody, late := fill(1), fill(2), fill(0), fill(3); one != 12 || two != 4 || nobody != 0 || late != 0 {
			t.Errorf("one alone has %d of 16 slots, who comes then %d, nobody in particular %d, and a third %d", one, two, nobody, late)
		}
		f.grant(f.next(nonce.KindAllocate), 1)
		<-w.back
		if one, late := fill(1), fill(3); one != 0 || late != 1 {
			t.Errorf("of a slot that is free who has too much gets %d, and who comes %d", one, late)
		}
	})
}

func TestALostLinkGivesBackInTheOrderOfForward(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		var ops []*asked
		forward := func(n int) {
			for range n {
				ops = append(ops, w.allocation(fmt.Sprint(len(ops))))
				w.forward(ops[len(ops)-1])
			}
			synctest.Wait()
		}
		forward(burstOps / 2)
		f.stopReading()
		forward(4 * burstOps)
		f.cut()
		doubtful := 0
		for i, o := range ops {
			b := <-w.back
			switch {
			case b != o:
				t.Fatalf("op %s came back as number %d", b.Signer, i)
			case b.verdict == nonce.Doubtful:
				if doubtful++; i != doubtful-1 {
					t.Fatalf("op %d is doubtful after one that was not sent", i)
				}
			case b.verdict != nonce.Bounced || b.res.Err != nonce.ErrPeerAway || b.RequestID != "":
				t.Fatalf("op %d was not sent; verdict %d, error %v, request id %q", i, b.verdict, b.res.Err, b.RequestID)
			}
		}
		if doubtful < burstOps/2 || doubtful == len(ops) {
			t.Errorf("%d of %d are doubtful, want those that were handed to the network", doubtful, len(ops))
		}
	})
}

// The other bounds of time make this one rare: a write that hangs ends its link
// before anything behind it is too old.
func TestWhatIsTooOldAndWasNotSentIsBounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		p := newPeer(w.Router, node("a", 1))
		l := &link{peer: p}
		began, ops := time.Now(), []*asked{w.allocation("1"), w.allocation("2"), w.allocation("3")}
		for i, o := range ops {
			p.inflight.add(op{&o.Request, 0, o}, began.Add(time.Duration(i)*time.Second))
		}
		p.inflight.takeQueued().stage = sent
		l.expire(began.Add(6 * time.Second))
		w.wantBack(ops[0], nonce.Expired, errTooLate)
		w.wantBack(ops[1], nonce.Bounced, nonce.ErrPeerAway)
		p.inflight.takeQueued() // has it now
		l.expire(began.Add(time.Minute))
		if p.inflight.order.Len() != 1 || p.inflight.late() != 1 {
			t.Errorf("%d are under way, want the one of the writer; %d may still be answered", p.inflight.order.Len(), p.inflight.late())
		}
		if p.drainLocked(errStopped, false); p.inflight.late() != 0 {
			t.Error("what was sent over a link that is lost may still be answered")
		}
	})
}

func TestWorkOfACallerThatIsGoneIsNotSent(t *testing.T) {
	tell(t, Config{}, []string{"a"}, func(t *testing.T, w *world) {
		gone, other := w.allocation("1"), w.allocation("2")
		gone.gone.Store(true) // before: the link may be there at once
		w.forward(gone)
		w.forward(other)
		f := <-w.fars["a"]
		w.wantBack(gone, nonce.Bounced, nonce.ErrGone)
		if r := f.next(nonce.KindAllocate); r.Signer != "2" {
			t.Errorf("signer %s was sent", r.Signer)
		}
	})
}

type waking struct{ times atomic.Int64 }

func (w *waking) Wake() { w.times.Add(1) }

func TestWhoWaitsForManyResultsIsWokenOnce(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		k := new(waking)
		var message []byte
		for n := range 50 {
			o := w.allocation("s")
			o.waker = k
			w.forward(o)
			message = append(message, answerTo(f.next(nonce.KindAllocate), held(int64(n)))...)
		}
		f.send(message)
		synctest.Wait()
		if len(w.back) != 50 || k.times.Load() != 1 {
			t.Errorf("%d are back, and it was woken %d times", len(w.back), k.times.Load())
		}
	})
}

// TestWhatAnOwnerSaysOfAChainIsAskedForInHalfOfTheSlots: reads never keep what writes from its place, and
// none waits for longer than an op that is forwarded.
func TestWhatAnOwnerSaysOfAChainIsAskedForInHalfOfTheSlots(t *testing.T) {
	linked(t, Config{Queue: 4}, func(t *testing.T, w *world, f *far) {
		ends := make(chan error, 3)
		var said *nonce.ChainSaid
		ask := func() {
			got, err := w.Ask("a", "", nonce.Request{Kind: nonce.KindStatus, Signer: "s"})
			if err == nil {
				said = got
			}
			ends <- err
		}
		go ask()
		first := f.next(nonce.KindStatus)
		go ask()
		f.next(nonce.KindStatus)
		go ask()
		if err := <-ends; !errors.Is(err, nonce.ErrForwardBusy) {
			t.Errorf("the third of four: %v", err)
		}
		w.forward(w.allocation("s"))
		f.next(nonce.KindAllocate)
		f.answer(first, nonce.Result{Said: &nonce.ChainSaid{State: &nonce.ChainState{Mined: 3}}})
		if err := <-ends; err != nil || !first.ChainOnly || said.State.Mined != 3 {
			t.Errorf("answered %+v, %v", said, err)
		}
		if err := <-ends; !errors.Is(err, errTooLate) {
			t.Errorf("the one that is not answered: %v", err)
		}
	})
}

// That more of them are all is of the hub.
func TestAnInterestInTheMostSignersWithTheLongestNamesIsOneMessage(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		var signers []string
		for i := range events.MaxSigners {
			signers = append(signers, fmt.Sprintf("%0128d", i))
		}
		w.want(signers...)
		if i := <-f.interests; i.All || !slices.Equal(i.Signers, signers) {
			t.Errorf("asked for %d signers, or all: %t", len(i.Signers), i.All)
		}
	})
}
