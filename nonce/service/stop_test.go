package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// TestStopEndsInTimeWhenTheStoreHangs: a store that answers nothing any more holds each batch up until
// its calls time out. Stop then ends when its own time is over: what was being committed is unknown,
// the rest did not happen. Reads are given up, too: each signer that is new would wait for its own.
func TestStopEndsInTimeWhenTheStoreHangs(t *testing.T) {
	for what, test := range map[string]struct{ op, first string }{"commits": {"allocate", "unknown"}, "reads": {"allocate signer=new-%d", "none"}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, newDisk(), "a", maxBatch(1))
				n.want("allocate -> 0#1")
				n.disk.onBefore(silent)
				var ps []*pending
				for i := range 30 {
					ps = append(ps, n.send(parse(t, strings.ReplaceAll(test.op, "%d", fmt.Sprint(i))))...)
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				if err := n.Service.Stop(ctx); !errors.Is(err, service.ErrCutShort) || time.Since(began) > 15*time.Second {
					t.Errorf("got %v after %v, want %v after 15s", err, time.Since(began), service.ErrCutShort)
				}
				for i, p := range ps {
					want := "none"
					if i == 0 { // its call was under way
						want = test.first
					}
					if got := p.wait(); got != want {
						t.Errorf("op %d: got %q, want %q", i, got, want)
					}
				}
			})
		})
	}
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
