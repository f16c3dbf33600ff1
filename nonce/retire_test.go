package nonce_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// TestARetiredNodeThatIsNamedAsTheOwnerAsksAgain: another node names the owner it knew
// for as long as it has requests under way there, and by then that one has retired.
func TestARetiredNodeThatIsNamedAsTheOwnerAsksAgain(t *testing.T) {
	c := newCluster(t, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	a.want("allocate -> 0#1")
	underWay, held := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(held) })
	c.set(func() {
		tries := 0
		c.before = func(to string, _ *nonce.Op) {
			if to == "a" {
				close(underWay)
				<-held
			} else if tries++; tries == 3 {
				goOn()
			}
		}
	})
	ofB := b.send(parse(t, "allocate"))
	<-underWay
	a.Retire()
	c.set(func() { c.prefer = func(string) string { return "b" } })
	ofA := a.send(parse(t, "allocate"))
	got := results(ofA)
	goOn() // in any case
	if got = append(got, results(ofB)...); !slices.Equal(got, []string{"1#1", "2#1"}) && !slices.Equal(got, []string{"2#1", "1#1"}) {
		t.Errorf("the clients of a and b were told %q, want the next two nonces", got)
	}
}

// TestALeaseThatIsAboutToEndIsGivenBackToo: its node does not trust it any more, and
// nobody else can have it before it has ended.
func TestALeaseThatIsAboutToEndIsGivenBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "a", "b")
		a, b := c.nodes["a"], c.nodes["b"]
		a.want("allocate -> 0#1")
		time.Sleep(a.cfg.LeaseTTL - lease.Margin(a.cfg.LeaseTTL)/2)
		c.set(func() { c.prefer = func(string) string { return "b" } })
		a.Retire()
		began := time.Now()
		b.want("allocate -> 1#1")
		if took := time.Since(began); took != 0 {
			t.Errorf("b had to wait %v", took)
		}
	})
}

// TestASignerThatANodeIsAboutToAcquireAsItRetiresIsServedElsewhere: it was to settle
// here when the batch began.
func TestASignerThatANodeIsAboutToAcquireAsItRetiresIsServedElsewhere(t *testing.T) {
	c := newClusterOf(t, workers(2), "a", "b")
	a := c.nodes["a"]
	in := func(lane int) string {
		for i := 0; ; i++ {
			if s := fmt.Sprint("s", i); a.Lane(s) == lane {
				return s
			}
		}
	}
	first, second := in(0), in(1)
	a.want("allocate signer=" + first + " -> 0#1")
	released := make(chan struct{})
	c.disk.onBefore(func(call memstore.Call) error {
		if call.Op == memstore.OpRelease && call.Holder.Node == "a" {
			close(released)
			c.disk.onBefore(nil)
		}
		return nil
	})
	var retire sync.WaitGroup
	defer retire.Wait()
	c.set(func() {
		begun := false
		c.prefer = func(string) string {
			if begun {
				return "b"
			}
			begun = true
			retire.Go(a.Retire) // it gives the first lane up, and then waits for this one
			<-released
			return "a"
		}
	})
	a.want("allocate signer=" + second + " -> 0#1")
	if got := c.disk.summary(t, second).Lease.Holder.Node; got != "b" {
		t.Errorf("%q has the lease, want b", got)
	}
}
