package nonce_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// An owner that lost the store keeps answering "unavailable"; its lease ends; the
// origin must go elsewhere although clients ask all the time.
func TestAnOwnerThatLostTheStoreIsNotAskedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b", "c")
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		c.set(func() { c.prefer = func(string) string { return "c" } })
		b.want("allocate -> 1#1") // b learned that a owns it
		c.disk.onBefore(func(call memstore.Call) error {
			if call.Holder.Node == "a" {
				return &nonce.StoreError{Outcome: nonce.NotSent, Err: errors.New("a is cut off from the store")}
			}
			return nil
		})
		var got string
		for range 60 { // a minute: six leases
			time.Sleep(time.Second)
			if got = b.run("allocate"); got == "2#1" {
				return
			}
		}
		t.Errorf("a minute after a lost the store b still answers %q; lease %+v, now %v", got,
			c.disk.summary(t, signer).Lease.ExpiresAt, c.disk.summary(t, signer).Now)
	})
}

// capture is a router that keeps what it is given.
type capture struct {
	mu     sync.Mutex
	node   string
	got    chan *nonce.Op
	prefer func(string) string
}

func (r *capture) set(f func()) { r.mu.Lock(); defer r.mu.Unlock(); f() }
func (r *capture) Prefer(s string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.prefer != nil {
		return r.prefer(s)
	}
	return r.node
}
func (r *capture) Forward(_, _ string, op *nonce.Op) error { r.got <- op; return nil }

func withRouter(r nonce.Router) func(*nonce.Config) {
	return func(c *nonce.Config) { c.Router = r }
}

func give(n *node, op *nonce.Op, v nonce.Verdict, err error) {
	op.Err = err
	if w := n.Return(op, v); w != nil {
		w.Wake()
	}
}

// The answers of another node may come in another order than the requests went: a
// reader refuses "draining" while earlier requests are still in the worker's queue.
func TestWhatComesBackInAnotherOrderGoesOnInItsOwn(t *testing.T) {
	for name, v := range map[string]nonce.Verdict{"bounced": nonce.Bounced, "doubtful": nonce.Doubtful} {
		t.Run(name, func(t *testing.T) {
			r := &capture{node: "other", got: make(chan *nonce.Op, 10)}
			n := start(t, newDisk(), "a", withRouter(r))
			ps := n.send(parse(t, "allocate"), parse(t, "allocate"))
			op1, op2 := <-r.got, <-r.got
			r.set(func() { r.node = "" })
			give(n, op2, nonce.Bounced, nonce.ErrDraining)
			give(n, op1, v, nonce.ErrDraining)
			if got := fmt.Sprint(results(ps)); got != "[0#1 1#1]" {
				t.Errorf("got %s: the second overtook the first", got)
			}
		})
	}
}

// A group that waits for another node, and whose last op has just come home, is
// forgotten by the eviction, and split in two.
func TestAGroupThatWaitsForAnotherNodeIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := &capture{got: make(chan *nonce.Op, 10)}
		r.prefer = func(s string) string {
			if s == signer {
				return "other"
			}
			return ""
		}
		n := start(t, d, "a", withRouter(r), func(c *nonce.Config) { c.MaxSigners = 1 })
		first := n.send(parse(t, "allocate"), parse(t, "status"), parse(t, "allocate"), parse(t, "status"))
		op1 := <-r.got
		synctest.Wait() // the rest waits
		began, open := d.holdCommit("plug")
		plug := n.send(&nonce.Op{Kind: nonce.KindAllocate, Signer: "plug", Count: 1})
		<-began
		// op1 is answered while another batch of the shard is under way.
		op1.Nonces, op1.Attempts = []int64{0}, []int64{1}
		give(n, op1, nonce.Answered, nil)
		later := n.send(parse(t, "allocate"), parse(t, "status"))
		open()
		<-plug[0].done
		synctest.Wait()
		for i := int64(1); ; i++ {
			select {
			case op := <-r.got:
				op.Nonces, op.Attempts = []int64{i}, []int64{1}
				give(n, op, nonce.Answered, nil)
				synctest.Wait()
				continue
			default:
			}
			break
		}
		for i, p := range append(first, later...) {
			select {
			case <-p.done:
			case <-time.After(time.Hour):
				t.Errorf("op %d (%v) is never answered", i, p.op.Kind)
			}
		}
		if used, _ := n.Queued(); used != 0 {
			t.Errorf("%d places are lost", used)
		}
	})
}
