package service_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
)

// TestNoHoldIsEndedEarlyByTheStoresClockHoweverThatSteps: back and forth by more than a
// lease. In the end all are.
func TestNoHoldIsEndedEarlyByTheStoresClockHoweverThatSteps(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 5))
			d := newDisk()
			short := func(c *service.Config) { c.MaxHold, c.Rules.MaxLive = time.Minute, nonce.MaxLive }
			nodes := []*node{
				start(t, d, "a", looking, sweepEvery(time.Second), short), start(t, d, "b", looking, sweepEvery(time.Second), short),
				start(t, d, "c", looking, sweepEvery(time.Second), short, basicMode),
			}
			until := map[string]time.Time{}
			for range 300 {
				pass(time.Duration(r.IntN(3000)) * time.Millisecond)
				op := parse(t, fmt.Sprintf("allocate hold=%dms signer=s%d", 1000+r.IntN(40_000), r.IntN(20)))
				if got := nodes[r.IntN(3)].do(op); op.Err == nil {
					until[op.Signer+" "+got] = op.HeldUntil
				}
				if r.IntN(30) == 0 {
					d.ahead.Add(int64(time.Duration(r.IntN(60)-30) * time.Second))
				}
			}
			pass(10 * time.Minute)
			ended := 0
			for _, n := range nodes {
				for _, e := range n.events.all {
					held, known := until[fmt.Sprintf("%s %d#%d", e.Signer, e.Nonce, e.Attempt)]
					if e.Type != nonce.EventExpired || !known {
						continue
					}
					if ended++; e.At.Before(held.Add(time.Second)) {
						t.Errorf("%s %d#%d was held until %v and ended at %v", e.Signer, e.Nonce, e.Attempt, held, e.At)
					}
				}
			}
			if ended < len(until)/2 {
				t.Errorf("of %d holds %d were seen to end", len(until), ended)
			}
			for i := range 20 {
				if rows := d.rows(t, fmt.Sprint("s", i)); strings.Contains(rows, "HELD") {
					t.Errorf("s%d has %s after all is over", i, rows)
				}
			}
		})
	}
}

// TestEndingHoldsIsPacedBesideRequests: a thousand of a hundred signers are over when requests
// come.
func TestEndingHoldsIsPacedBesideRequests(t *testing.T) {
	for name, memory := range map[string]int{"remembered": 0, "forgotten": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDisk()
				n := start(t, d, "a", sweepEvery(time.Second), maxBatch(16), slots(10_000), func(c *service.Config) { c.MaxSigners = memory })
				for i := range 1000 {
					n.run(fmt.Sprintf("allocate hold=5s signer=over%d", i%100))
				}
				began, open := d.holdCommit("plug")
				plug := n.send(allocate("plug"))
				<-began
				var ps []*pending
				for i := range 400 {
					ps = append(ps, n.send(allocate(fmt.Sprint("s", i%100)))...)
				}
				time.Sleep(8 * time.Second)
				asked, batches := 0, 0
				var first, last time.Time
				var mu sync.Mutex
				d.onBefore(func(c memstore.Call) error {
					mu.Lock()
					over, others := 0, 0
					for _, w := range c.Writes {
						if strings.HasPrefix(w.Name, "over") {
							over++
						} else {
							others++
						}
					}
					switch {
					case over > 8:
						t.Errorf("%d signers in a batch", over)
					case others > 0:
						batches, asked = batches+1, asked+over
					}
					if over > 0 {
						if last = time.Now(); first.IsZero() {
							first = last
						}
					}
					mu.Unlock()
					time.Sleep(time.Millisecond) // the commit
					return nil
				})
				open()
				results(ps)
				pass(3 * time.Second)
				took := last.Sub(first) // at 20,000 a second
				if got := n.fig.get(&n.fig.swept); got != 1000 || asked == 0 || batches < 20 || took < 45*time.Millisecond || took > time.Second {
					t.Errorf("%d of 1000 were ended in %v, those of %d signers beside requests in %d batches", got, took, asked, batches)
				}
				results(plug)
			})
		})
	}
}

// TestWhatIsLeftOfAHoldIsByTheStoresClock: a's machine was suspended, its monotonic clock stood
// still, and the commit is the first that tells. Its client counts from when it asked.
func TestWhatIsLeftOfAHoldIsByTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		a := start(t, d, "a")
		a.want("allocate -> 0#1")
		d.ahead.Add(int64(30 * time.Second))
		op := &noncetest.Op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1, Hold: time.Minute}}
		if err := a.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		left := op.HeldUntil.Sub(time.Now().Add(time.Duration(d.ahead.Load())))
		if op.HoldLeft > left || op.HoldLeft < left-time.Second {
			t.Errorf("told that %v are left, and by the store's clock it is %v", op.HoldLeft, left)
		}
	})
}
