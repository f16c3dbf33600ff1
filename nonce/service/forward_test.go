package service_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/service"
)

// TestWhileARequestIsUnderWayTheNextTakesTheSamePathOrWaits: b learns meanwhile that the
// shard is at c.
func TestWhileARequestIsUnderWayTheNextTakesTheSamePathOrWaits(t *testing.T) {
	inCluster(t, three, func(t *testing.T, c *cluster) {
		underWay, goOn := make(chan struct{}), make(chan struct{})
		var began atomic.Bool
		c.set(func() {
			c.before = func() {
				if began.CompareAndSwap(false, true) {
					close(underWay)
					<-goOn
				}
			}
		})
		b := c.nodes["b"]
		first := b.send(allocate(signer))
		<-underWay
		third := parse(t, "allocate")
		if got := b.doOf(new(nonce.Path), third); got != "not_owner a ws://a" {
			t.Errorf("another node's request was answered %q", got)
		}
		c.pin("c")
		pass(3 * time.Second) // it is there, and b has looked
		second := b.send(allocate(signer), parse(t, "status"))
		synctest.Wait()
		if got := c.took(); got != "b>a allocate" {
			t.Errorf("sent %q, want that the second waits", got)
		}
		close(goOn)
		got := append(results(first), results(second)...)
		if want := []string{"0#1", "1#1", "next 2 floor 0 held 2 released 0 consumed 0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// capture is a router that keeps what it is given. It reaches nodes until it is told not to.
type capture struct {
	got  chan sent
	away atomic.Bool
}

func (r *capture) Reaches(string) bool { return !r.away.Load() }
func (r *capture) Forward(_, _ string, q *nonce.Request, path uint64, of nonce.Forwarded) error {
	r.got <- sent{q, path, of}
	return nil
}

// sent is a request that a router took over.
type sent struct {
	*nonce.Request
	path uint64
	of   nonce.Forwarded
}

// back returns it.
func (s *sent) back(r *nonce.Result, v nonce.Verdict) {
	if w := s.of.Return(r, v); w != nil {
		w.Wake()
	}
}

// beside starts a node beside another, which has the shard of signer and is nothing but a
// row in the store.
func beside(t *testing.T, d *disk, change ...func(*service.Config)) (*node, *capture) {
	t.Helper()
	h := d.register(t, "other")
	if _, err := d.Renew(t.Context(), h, time.Hour); err != nil {
		t.Fatal(err)
	}
	shard := nonce.ShardOf(signer, shards)
	if rows, err := d.Acquire(t.Context(), h, []int{shard}); err != nil || !rows[0].Taken {
		t.Fatal(rows, err)
	}
	if err := d.Pin(t.Context(), shard, "other"); err != nil {
		t.Fatal(err)
	}
	r := &capture{got: make(chan sent, 10)}
	return start(t, d, "a", append(change, func(c *service.Config) { c.Router = r })...), r
}

// The answers of another node may come in another order than the requests went: a
// reader refuses "draining" while earlier requests are still in the worker's queue.
func TestWhatComesBackInAnotherOrderGoesOnInItsOwn(t *testing.T) {
	for name, v := range map[string]nonce.Verdict{"bounced": nonce.Bounced, "doubtful": nonce.Doubtful} {
		t.Run(name, func(t *testing.T) {
			d := newDisk()
			n, r := beside(t, d)
			ps := n.send(parse(t, "allocate id=x"), parse(t, "allocate id=y"))
			op1, op2 := <-r.got, <-r.got
			d.takeAway(signer)
			op2.back(&nonce.Result{Err: nonce.ErrDraining}, nonce.Bounced)
			op1.back(&nonce.Result{Err: nonce.ErrDraining}, v)
			if got := fmt.Sprint(results(ps)); got != "[0#1 1#1]" {
				t.Errorf("got %s: the second overtook the first", got)
			}
		})
	}
}

// TestAForwardWaitsForNoCommitAndOvertakesNothing: the worker commits for a signer of its own.
func TestAForwardWaitsForNoCommitAndOvertakesNothing(t *testing.T) {
	d := newDisk()
	other := (nonce.ShardOf(signer, shards) + 1) % shards
	if err := d.Pin(t.Context(), other, "a"); err != nil {
		t.Fatal(err)
	}
	n, r := beside(t, d)
	answer := func(op sent, at int64) {
		op.back(&nonce.Result{Nonces: []int64{at}, Attempts: []int64{1}}, nonce.Answered)
	}
	first := n.send(allocate(signer))
	answer(<-r.got, 0)
	results(first) // the worker knows the way
	own := d.nameIn(other)
	began, open := d.holdCommit(own)
	ps := n.send(allocate(own))
	<-began
	ps = append(ps, n.send(allocate(signer), allocate(signer))...)
	if len(r.got) != 2 {
		t.Fatalf("%d of 2 were sent during the commit", len(r.got))
	}
	ps = append(ps, n.send(parse(t, "status"), allocate(signer))...)
	if len(r.got) != 2 {
		t.Error("a request was sent before the one that came before it had left the worker")
	}
	answer(<-r.got, 1)
	answer(<-r.got, 2)
	open()
	answer(<-r.got, 3)
	if got := fmt.Sprint(results(ps)); got != "[0#1 1#1 2#1 next 0 floor 0 held 0 released 0 consumed 0 3#1]" {
		t.Errorf("got %s", got)
	}
}

// TestWhatMayHaveBeenDoneBeforeALaterOneIsNotDoneBehindIt: of two marks the first was not
// answered, and the second was.
func TestWhatMayHaveBeenDoneBeforeALaterOneIsNotDoneBehindIt(t *testing.T) {
	n, r := beside(t, newDisk())
	ps := n.send(parse(t, "allocate id=x"), parse(t, "allocate id=y"), parse(t, "allocate id=z"))
	op1, op2, op3 := <-r.got, <-r.got, <-r.got
	op1.back(new(nonce.Result), nonce.Expired)
	op3.back(&nonce.Result{Err: nonce.ErrNotFound}, nonce.Answered)
	op2.back(&nonce.Result{Nonces: []int64{8}, Attempts: []int64{1}}, nonce.Doubtful)
	if got := fmt.Sprint(results(ps)); got != "[unknown unknown not_found]" {
		t.Errorf("got %s", got)
	}
}

// A group that waits for another node, and whose last op has just come back, is
// forgotten by the eviction, and split in two.
func TestAGroupThatWaitsForAnotherNodeIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		n, r := beside(t, d, func(c *service.Config) { c.MaxSigners = 1 })
		first := n.send(parse(t, "allocate"), parse(t, "status"), parse(t, "allocate"), parse(t, "status"))
		op1 := <-r.got
		synctest.Wait() // the rest waits
		mine, _ := d.others()
		began, open := d.holdCommit(mine)
		plug := n.send(allocate(mine))
		<-began
		// op1 is answered while another batch of the worker is under way.
		op1.back(&nonce.Result{Nonces: []int64{0}, Attempts: []int64{1}}, nonce.Answered)
		later := n.send(parse(t, "allocate"), parse(t, "status"))
		open()
		<-plug[0].done
		synctest.Wait()
		for i := int64(1); len(r.got) > 0; i++ {
			op := <-r.got
			op.back(&nonce.Result{Nonces: []int64{i}, Attempts: []int64{1}}, nonce.Answered)
			synctest.Wait()
		}
		for i, p := range append(first, later...) {
			if !p.answered() {
				t.Errorf("op %d (%v) is never answered", i, p.op.Kind)
			}
		}
	})
}
