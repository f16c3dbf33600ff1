package cluster

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/nonce"
	"noncegate/wire"
)

func TestOpsOfOneSignerReachANodeInTheOrderOfForward(t *testing.T) {
	const signers, each = 8, 300
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		var callers sync.WaitGroup
		for s := range signers {
			callers.Go(func() {
				for n := range each {
					w.forward("a", &op{Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: fmt.Sprint(s), Nonce: int64(n), Attempt: 1}})
				}
			})
		}
		next := make(map[string]int64)
		for range signers * each {
			p := wspeer.Decode[wire.MarkUsedParams](t, f.Next(wire.MethodMarkUsed))
			if p.Nonce != next[p.Signer] {
				t.Fatalf("signer %s: nonce %d came, want %d", p.Signer, p.Nonce, next[p.Signer])
			}
			next[p.Signer]++
		}
		callers.Wait()
	})
}

func TestManyRequestsLeaveInOneWrite(t *testing.T) {
	var writes atomic.Int64
	tell(t, Config{}, []string{"a"}, func(t *testing.T, w *world) {
		h := w.net.Host("a")
		first := <-h.Peers
		h.Wrap = func(c net.Conn) net.Conn { return counting{c, &writes} }
		first.Cut()
		f := <-h.Peers
		synctest.Wait()
		readOn := f.StopReading()
		w.forward("a", allocation("s"))
		synctest.Wait()
		before := writes.Load()
		for range 100 {
			w.forward("a", allocation("s"))
		}
		readOn()
		for range 101 {
			f.Next(wire.MethodAllocate)
		}
		if got := writes.Load() - before; got > 2 {
			t.Errorf("100 requests took %d writes", got)
		}
	})
}

type counting struct {
	net.Conn
	writes *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// One principal must not take every slot at a node from the others: what it has under
// way there may wait for long.
func TestAGreedyPrincipalLeavesOthersAPlaceAtAnotherNode(t *testing.T) {
	const slots = 16
	linked(t, Config{Queue: slots}, func(t *testing.T, w *world, f *far) {
		try := func(p nonce.Principal) (op *op, err error) {
			op = allocation("s")
			op.Principal = p
			return op, forwardTo(w.Router, w.svc, "a", "", op)
		}
		has := map[nonce.Principal]int{}
		var first *op
		fill := func(p nonce.Principal, want int) {
			t.Helper()
			for {
				op, err := try(p)
				if err != nil && err != nonce.ErrForwardBusy {
					t.Fatal(err)
				}
				if err != nil {
					break
				}
				if first == nil {
					first = op
				}
				has[p]++
			}
			if has[p] != want {
				t.Errorf("principal %d has %d slots, want %d", p, has[p], want)
			}
		}
		fill(1, slots-slots/spareRoom) // alone
		fill(2, slots/spareRoom)       // what was left to it
		if _, err := try(0); err != nonce.ErrForwardBusy {
			t.Errorf("beyond the slots: %v", err)
		}
		grant(f, f.Next(wire.MethodAllocate), 1)
		w.wantBack(first, nonce.Answered, nil)
		if _, err := try(1); err != nonce.ErrForwardBusy {
			t.Errorf("who has more than an equal part: %v", err)
		}
		fill(3, 1)
	})
}

func TestALostLinkGivesBackInTheOrderOfForward(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		var ops []*op
		forward := func(n int) {
			for range n {
				op := allocation(fmt.Sprint(len(ops)))
				ops = append(ops, op)
				w.forward("a", op)
			}
			synctest.Wait()
		}
		forward(burstOps / 2)
		f.StopReading()
		forward(2 * burstOps)
		f.Cut()
		doubtful := 0
		for i, op := range ops {
			b := <-w.svc.back
			if b.op != op {
				t.Fatalf("op %s came back as number %d", b.op.Signer, i)
			}
			switch b.verdict {
			case nonce.Doubtful:
				doubtful++
				if i != doubtful-1 {
					t.Fatalf("op %d is doubtful after one that was not sent", i)
				}
			case nonce.Bounced:
				if op.Err != nonce.ErrPeerAway || op.RequestID != "" {
					t.Fatalf("op %d was not sent; error %v, request id %q", i, op.Err, op.RequestID)
				}
			default:
				t.Fatalf("verdict %d", b.verdict)
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
		began, ops := time.Now(), []*op{allocation("1"), allocation("2"), allocation("3")}
		for i, op := range ops {
			op.of = &caller{returner: w.svc, op: op}
			p.inflight.add(op, began.Add(time.Duration(i)*time.Second))
		}
		p.inflight.takeQueued().stage = sent
		p.expire(began.Add(6 * time.Second))
		w.wantBack(ops[0], nonce.Expired, errTooLate)
		w.wantBack(ops[1], nonce.Bounced, nonce.ErrPeerAway)
		if p.inflight.n != 1 {
			t.Errorf("%d are under way, want the youngest", p.inflight.n)
		}
		p.inflight.takeQueued() // has it now
		p.expire(began.Add(time.Minute))
		if p.inflight.n != 1 {
			t.Error("an op was taken from the writer")
		}
	})
}

func TestWorkOfACallerThatIsGoneIsNotSent(t *testing.T) {
	tell(t, Config{}, []string{"a"}, func(t *testing.T, w *world) {
		op, other := allocation("1"), allocation("2")
		w.forward("a", op) // waits for the link
		w.forward("a", other)
		op.of.(*caller).gone.Store(true)
		f := <-w.net.Host("a").Peers
		w.wantBack(op, nonce.Bounced, nonce.ErrGone)
		if p := wspeer.Decode[wire.AllocateParams](t, f.Next(wire.MethodAllocate)); p.Signer != "2" {
			t.Errorf("signer %s was sent", p.Signer)
		}
	})
}

type waking struct{ times atomic.Int64 }

func (w *waking) Wake() { w.times.Add(1) }

func TestAfterABatchOfAnswersEachConnectionIsWokenOnce(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		woken := new(waking)
		w.svc.waker = woken
		var all []byte
		for i := range 20 {
			w.forward("a", allocation("s"))
			r := f.Next(wire.MethodAllocate)
			text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"signer":"s","nonce":%d,"attempt":1,"heldUntil":"2026-11-20T18:00:00.000Z"}}`, r.ID, i)
			all = append(all, 0x81, 126, byte(len(text)>>8), byte(len(text)))
			all = append(all, text...)
		}
		f.Raw.Write(all)
		for range 20 {
			<-w.svc.back
		}
		synctest.Wait()
		if got := woken.times.Load(); got != 1 {
			t.Errorf("woken %d times, want once", got)
		}
	})
}
