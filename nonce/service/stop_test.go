package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce/memstore"
	"noncegate/nonce/service"
)

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
// the rest did not happen. Reads are given up, too: each signer that is new would wait for its own. A call
// that ends by no time-out, as of a file on a disk that hangs, is not waited for.
func TestStopEndsInTimeWhenTheStoreHangs(t *testing.T) {
	for what, test := range map[string]struct{ op, first string }{
		"commits": {"allocate", "unknown"}, "reads": {"allocate signer=new-%d", "none"}, "a call that never ends": {"allocate", ""},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, newDisk(), "a", maxBatch(1))
				n.want("allocate -> 0#1")
				goOn := make(chan struct{})
				defer close(goOn)
				n.disk.onBefore(func(c memstore.Call) error {
					if test.first == "" {
						<-goOn
						return nil
					}
					return silent(c)
				})
				var ps []*pending
				for i := range 30 {
					ps = append(ps, n.send(parse(t, strings.ReplaceAll(test.op, "%d", fmt.Sprint(i))))...)
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				if err := n.Service.Stop(ctx); !errors.Is(err, service.ErrCutShort) || time.Since(began) > 16*time.Second {
					t.Errorf("got %v after %v, want %v after 15s", err, time.Since(began), service.ErrCutShort)
				}
				for i, p := range ps {
					if test.first == "" {
						break
					}
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
