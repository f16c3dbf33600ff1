package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
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
		n := start(t, newDisk(), "a", workers(2), slots(1000))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k, got := 0, ""; got != "draining"; k++ {
					if got = n.do(allocate(fmt.Sprintf("s%d-%d", i, k))); got != "draining" && got != "0#1" {
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

// A store that answers nothing any more holds each batch up until its calls time out. Stop then
// ends when its own time is over: what was being committed is unknown, the rest did not happen.
func TestStopEndsInTimeWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", maxBatch(1))
		n.want("allocate -> 0#1")
		n.disk.onBefore(func(c memstore.Call) error {
			<-c.Done
			return errCut
		})
		var ps []*pending
		for range 30 {
			ps = append(ps, n.send(allocate(signer))...)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := n.Service.Stop(ctx); !errors.Is(err, service.ErrCutShort) {
			t.Errorf("got %v, want %v", err, service.ErrCutShort)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		for i, p := range ps {
			want := "none"
			if i == 0 { // its commit was under way
				want = "unknown"
			}
			if got := p.wait(); got != want {
				t.Errorf("op %d: got %q, want %q", i, got, want)
			}
		}
	})
}

// A read, too, is given up when Stop's time is over: each signer that is new would wait for its own.
func TestStopGivesUpReadsWhenTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a", maxBatch(1))
		n.want("allocate -> 0#1")
		n.disk.onBefore(func(c memstore.Call) error {
			<-c.Done
			return errCut
		})
		var ps []*pending
		for i := range 30 {
			ps = append(ps, n.send(allocate(fmt.Sprint("new-", i)))...)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		if err := n.Service.Stop(ctx); err != service.ErrCutShort || time.Since(began) > 15*time.Second {
			t.Errorf("got %v after %v, want %v after 15s", err, time.Since(began), service.ErrCutShort)
		}
		for i, p := range ps {
			if got := p.wait(); got != "none" {
				t.Errorf("op %d: got %q, want none", i, got)
			}
		}
	})
}

// Stop does not wait for a call that ends by no time-out, as of a file on a disk that hangs.
func TestStopDoesNotWaitForACallThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, newDisk(), "a")
		goOn := make(chan struct{})
		n.disk.onBefore(func(c memstore.Call) error {
			if c.Op == memstore.OpCommit {
				<-goOn
			}
			return nil
		})
		n.send(allocate(signer))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		if err := n.Service.Stop(ctx); !errors.Is(err, service.ErrCutShort) || time.Since(began) > 21*time.Second {
			t.Errorf("got %v after %v, want %v after 21s", err, time.Since(began), service.ErrCutShort)
		}
		close(goOn)
	})
}
