package service_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

func TestStopFinishesWhatIsQueuedAndGivesTheLeasesBack(t *testing.T) {
	n := start(t, newDisk(), "a")
	began, open := n.disk.holdCommit(signer)
	ps := n.send(allocate(signer))
	<-began
	ps = append(ps, n.send(allocate(signer), parse(t, "used 0#1"), allocate("x"))...)
	stopped := make(chan struct{})
	go func() { n.Stop(); close(stopped) }()
	open()
	if got, want := results(ps), []string{"0#1", "1#1", "CONSUMED", "0#1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	<-stopped
	n.Stop()
	for _, name := range []string{signer, "x"} {
		if s := n.disk.summary(t, name); s.Lease.Holder.Node != "" || s.Lease.Token != 2 {
			t.Errorf("%s: got owner %q, token %d, want none and 2", name, s.Lease.Holder.Node, s.Lease.Token)
		}
	}
	if got := n.run("allocate"); got != "draining" {
		t.Errorf("after Stop: got %q, want draining", got)
	}
	if err := n.Ready(t.Context()); !errors.Is(err, nonce.ErrDraining) {
		t.Errorf("after Stop: got %v, want draining", err)
	}
}

func TestStopRunsWhatWasQueuedJustBefore(t *testing.T) {
	for range 200 {
		n := start(t, newDisk(), "a")
		ps := n.send(allocate(signer))
		n.Stop()
		select {
		case <-ps[0].done:
		default:
			t.Fatal("Stop returned before an op had ended")
		}
		if got := ps[0].wait(); got != "0#1" {
			t.Fatalf("got %q", got)
		}
	}
}

func TestEachStopReturnsOnlyWhenAllIsQuiet(t *testing.T) {
	n := start(t, newDisk(), "a")
	n.want("allocate -> 0#1")
	releasing, goOn := make(chan struct{}), make(chan struct{})
	n.disk.onBefore(func(c memstore.Call) error {
		if c.Op == memstore.OpRelease {
			close(releasing)
			<-goOn
		}
		return nil
	})
	var quiet atomic.Bool
	var wg sync.WaitGroup
	wg.Go(n.Stop)
	<-releasing
	wg.Go(func() {
		n.Stop()
		if !quiet.Load() {
			t.Error("the second Stop returned before the leases were given back")
		}
	})
	n.disk.onAfter(func(memstore.Call) error { quiet.Store(true); return nil })
	close(goOn)
	wg.Wait()
}

func TestSubmitsThatMeetAStopAreRunOrRefused(t *testing.T) {
	for range 50 {
		n := start(t, newDisk(), "a", workers(2), places(1000))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for got := ""; got != "draining"; {
					if got = n.do(allocate(fmt.Sprintf("s%d", i))); got != "draining" && !strings.HasSuffix(got, "#1") {
						t.Errorf("got %q", got)
					}
				}
			})
		}
		n.do(allocate("first"))
		n.Stop()
		wg.Wait()
	}
}
