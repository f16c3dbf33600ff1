package service_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

func TestOneSignersOperationsNeverInterleave(t *testing.T) {
	d := newDisk()
	n := start(t, d, "a", workers(4), slots(1000))
	var under sync.Map
	d.onBefore(func(c memstore.Call) error {
		for _, ch := range c.Writes {
			if _, twice := under.LoadOrStore(ch.Name, true); twice {
				t.Errorf("two commits of %s at once", ch.Name)
			}
		}
		return nil
	})
	d.onAfter(func(c memstore.Call) error {
		for _, ch := range c.Writes {
			under.Delete(ch.Name)
		}
		return nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				n.do(allocate(fmt.Sprintf("s%d", i%3)))
			}
		})
	}
	wg.Wait()
	for i := range 3 {
		if s := d.summary(t, fmt.Sprintf("s%d", i)); s.Next != s.Held {
			t.Errorf("got next %d, held %d", s.Next, s.Held)
		}
	}
}

func TestACancelledPlaceIsGivenBack(t *testing.T) {
	n := start(t, newDisk(), "a", slots(1))
	slot, _ := n.Reserve(signer, 0)
	slot.Cancel()
	if used, capacity := n.Queued(); used != 0 || capacity != 1 {
		t.Errorf("got %d slots of %d taken", used, capacity)
	}
	n.want("allocate -> 0#1")
}

func TestWithCallerRunsAFullQueueIsRunByItsCallerInOrder(t *testing.T) {
	n := start(t, newDisk(), "a", slots(2), callerRuns)
	began, open := n.disk.holdCommit("plug")
	plug := n.send(allocate("plug"))
	<-began
	queued := n.send(allocate(signer))
	var ps []*pending
	submitted := make(chan struct{})
	own := []*noncetest.Op{parse(t, "release 0#1"), allocate(signer), parse(t, "used 0#2")}
	slot, ok := n.Reserve(signer, 0)
	if !ok {
		t.Fatal("caller-runs refused a slot")
	}
	go func() { // the read goroutine of a connection: its second op follows its first
		defer close(submitted)
		for i, op := range own {
			if i > 0 {
				slot, _ = n.Reserve(op.Signer, 0)
			}
			p := n.submit(slot, newPending(op))
			ps = append(ps, p)
			select {
			case <-p.done:
			default:
				if i == 0 { // later ones may find a slot
					t.Error("its caller went on before its op was run")
				}
			}
		}
	}()
	select {
	case <-submitted:
		t.Error("the caller did not wait for its turn")
	default:
	}
	open()
	<-submitted
	got := append(results(queued), results(ps)...)
	if want := []string{"0#1", "RELEASED", "0#2", "CONSUMED"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	results(plug)
}

// again is an op that is submitted again whenever it ends, until stop.
type again struct {
	n    *node
	stop atomic.Bool
	wg   sync.WaitGroup
}

func (a *again) submit(name string) {
	slot, _ := a.n.Reserve(name, 0)
	p := newPending(allocate(name))
	p.then = func() {
		if a.stop.Load() {
			a.wg.Done()
		} else {
			a.submit(name)
		}
	}
	a.n.submit(slot, p)
}

func TestWithCallerRunsACallerReturnsThoughTheQueueIsNeverEmpty(t *testing.T) {
	n := start(t, newDisk(), "a", slots(2), callerRuns, maxBatch(1))
	began, open := n.disk.holdCommit("one")
	busy := &again{n: n}
	busy.wg.Add(2)
	busy.submit("one")
	<-began
	busy.submit("two")
	slot, _ := n.Reserve(signer, 0)
	open()
	p := newPending(allocate(signer))
	n.submit(slot, p)
	if got := p.wait(); got != "0#1" {
		t.Errorf("got %q", got)
	}
	busy.stop.Store(true)
	busy.wg.Wait()
}

func TestTheWorkOfACallerThatIsGoneIsSkipped(t *testing.T) {
	for name, mode := range map[string]func(*service.Config){"worker": func(*service.Config) {}, "basic": basicMode} {
		t.Run(name, func(t *testing.T) {
			n := start(t, newDisk(), "a", mode)
			open := func() {}
			if name == "worker" {
				var began <-chan struct{}
				began, open = n.disk.holdCommit("plug")
				n.send(allocate("plug"))
				<-began
			}
			var ps []*pending
			for i := range 3 {
				slot, _ := n.Reserve(signer, 0)
				p := newPending(allocate(signer))
				p.gone.Store(i == 1)
				ps = append(ps, p)
				n.submit(slot, p)
			}
			open()
			if got, want := results(ps), []string{"0#1", "gone", "1#1"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestInModeBasicACallerThatIsGoneMeanwhileIsSkipped: while others of its signer were served.
func TestInModeBasicACallerThatIsGoneMeanwhileIsSkipped(t *testing.T) {
	n := start(t, newDisk(), "a", basicMode)
	second := newPending(allocate(signer))
	n.disk.onAfter(once(memstore.OpLocked, signer, func(memstore.Call) error {
		second.gone.Store(true)
		return nil
	}))
	began, open := n.disk.hold(memstore.OpLocked, signer)
	slot, _ := n.Reserve(signer, 0)
	var submitted sync.WaitGroup
	submitted.Go(func() { n.do(allocate(signer)) })
	<-began
	submitted.Go(func() { n.submit(slot, second) })
	for range 1000 { // it waits for the first
		runtime.Gosched()
	}
	open()
	submitted.Wait()
	if got := second.wait(); got != "gone" {
		t.Error(got)
	}
}
