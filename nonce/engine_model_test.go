package nonce_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fasttest"
)

var (
	modelSeeds = flag.Int("seeds", 25, "how many histories of the performance engine are run")
	modelFirst = flag.Uint64("first", 1, "the seed of the first")
)

func TestNoFaultOfRedisOrTheStoreGivesANonceTwoHolders(t *testing.T) {
	for seed := *modelFirst; seed < *modelFirst+uint64(*modelSeeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newWorld(t, seed).live() })
		})
	}
}

// live runs one history and judges it.
func (w *world) live() {
	signers := []string{"s0", "s1"}
	most, grant := []int64{3, 32, 400}[w.intn(3)], w.between(testGrant, 2*testGrant)
	remembered := func(c *nonce.Config) {
		if w.chance(4) {
			c.MaxSigners = 1
		}
		if c.Fast != nil {
			c.Fast.BlockMin, c.Fast.BlockMax, c.Fast.Grant = min(4, most), most, grant
		}
	}
	w.add("a", remembered)
	w.add("b", remembered)
	if w.chance(3) {
		w.add("c", basicMode, func(c *nonce.Config) { c.Fast = nil })
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 3 + w.intn(4) {
		all.Go(func() { w.client(ctx, signers) })
	}
	all.Go(func() { w.manage(ctx) })
	all.Go(func() { w.flush(ctx) })
	for range 1 + w.intn(2) {
		all.Go(func() { w.breakThings(ctx) })
	}
	all.Wait()
	w.settle(signers)
	w.check(signers)
	w.t.Log(w.tally())
}

// tally counts what was seen, so that a run in which nothing happened shows.
func (w *world) tally() string {
	said := map[string]int{}
	for _, s := range w.judge.all {
		word := s.op.Kind.String() + " " + strings.Fields(s.result + " -")[0]
		if s.op.Err == nil {
			word = s.op.Kind.String() + " ok"
		}
		said[word]++
	}
	out := fmt.Sprintf("%v, %d of %d meddlers were told that it is not theirs", said, w.refused.Load(), w.meddled.Load())
	for _, m := range w.nodes {
		out += fmt.Sprintf("\n%s: entered %d, left %d, lost %d, mirrored %d, scripts %d", m.name,
			m.fast.entered.Load(), m.fast.left.Load(), m.fast.lost.Load(), m.fast.mirrored.Load(), m.fast.scripts.Load())
	}
	return out
}

// pause waits, unless the run ends. It reports whether it goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// manage moves the cluster between its states. Nodes hear of it at their own time.
func (w *world) manage(ctx context.Context) {
	for pause(ctx, w.between(0, 2*time.Second)) {
		goal := []nonce.Goal{
			nonce.GoalMirror, nonce.GoalPerformance, nonce.GoalPerformance, nonce.GoalPerformance,
			nonce.GoalPerformance, nonce.GoalPerformance, nonce.GoalDrain, nonce.GoalReliable,
		}[w.intn(8)]
		if goal == nonce.GoalPerformance {
			w.disk.Accept(w.current().Identity())
		}
		for _, m := range w.nodes {
			if !w.chance(10) {
				m.goal.Store(int32(goal))
			}
			m.late.Store(w.chance(6))
		}
	}
}

func (w *world) current() *fasttest.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.server
}

// some is any server there ever was.
func (w *world) some() *fasttest.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[w.rng.IntN(len(w.all))]
}

// flush lets the store follow, now faster than Redis, now not for a while.
func (w *world) flush(ctx context.Context) {
	m := w.nodes[w.intn(len(w.nodes))]
	store := &flaky{Store: w.disk.Store, fate: func() fate { return w.storeFate(m) }, late: &w.late}
	f := fasttest.Flusher{Ledger: store, Accepted: w.disk.Accepted, TTL: time.Second, Flushed: func(signer string, version int64) {
		if w.chance(2) {
			m.Flushed(signer, version)
		}
	}}
	for pace := 5 * time.Millisecond; pause(ctx, w.between(0, pace)); {
		if w.chance(60) {
			pace = w.between(time.Millisecond, 300*time.Millisecond)
		}
		if w.chance(100) && !pause(ctx, w.between(0, 2*time.Second)) {
			return
		}
		s := w.current()
		if w.chance(20) {
			s = w.some()
		}
		limit, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, _ = f.Flush(limit, s, 1+w.intn(30))
		cancel()
	}
}

// settle ends the faults, and waits until the reliable engine serves every signer
// and nothing is in doubt.
func (w *world) settle(signers []string) {
	w.calm.Store(true)
	for _, m := range w.nodes {
		m.client.Point(w.current())
		m.goal.Store(int32(nonce.GoalDrain))
		m.late.Store(false)
		m.stand()
	}
	f := fasttest.Flusher{Ledger: w.disk.Store, TTL: time.Second}
	deadline := time.Now().Add(time.Minute)
	for {
		for n, err := 1, error(nil); n > 0 && err == nil; {
			n, err = f.Flush(w.t.Context(), w.current(), 1000)
			if err != nil {
				w.t.Errorf("flush: %v", err)
			}
		}
		quiet := true
		for _, s := range signers {
			sum := w.disk.summary(w.t, s)
			quiet = quiet && sum.Engine == nonce.Reliable && !sum.Now.Before(sum.DoubtUntil)
			w.nodes[w.intn(2)].Settle(s)
		}
		if quiet {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("signers do not come back: %+v", w.disk.summary(w.t, signers[0]))
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// check judges what was said, and what is there at the end.
func (w *world) check(signers []string) {
	for _, wrong := range w.judge.verdict() {
		w.t.Error(wrong)
	}
	for _, m := range w.nodes {
		m.stand()
		if n := m.fig.get(&m.fig.invariant) + m.fig.get(&m.fig.wentBack); n != 0 {
			w.t.Errorf("%s: %d alarms", m.name, n)
		}
		if n := m.fast.lost.Load(); n != 0 && !w.caused.Load() {
			w.t.Errorf("%s: %d signers were lost, and Redis was not", m.name, n)
		}
	}
	for _, s := range signers {
		w.checkRows(s)
		w.checkServed(s)
	}
}

// checkRows compares the marks that were answered with the rows.
func (w *world) checkRows(signer string) {
	page, err := w.disk.List(w.t.Context(), nonce.ListQuery{Signer: signer, Limit: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	rows, hashes := map[int64]nonce.Row{}, map[nonce.TxHash]bool{}
	for _, r := range page.Rows {
		rows[r.Nonce] = r
		hashes[r.TxHash] = true
	}
	open := map[nonce.TxHash]bool{}
	for _, s := range w.judge.all {
		if s.op.Kind != nonce.KindMarkUsed || s.op.Signer != signer {
			continue
		}
		r := rows[s.op.Nonce]
		if s.op.Err == nil && (r.Status != nonce.Consumed || r.TxHash != s.op.TxHash) {
			w.t.Errorf("answered, and the row is %s:\n  %v", row(r), s)
		}
		if s.op.Err == nil || s.result == "unknown" {
			open[s.op.TxHash] = true
		}
	}
	for _, s := range w.judge.all {
		if s.op.Kind == nonce.KindMarkUsed && s.op.Signer == signer && !open[s.op.TxHash] && hashes[s.op.TxHash] {
			w.t.Errorf("refused, and it happened:\n  %v", s)
		}
	}
	sum := w.disk.summary(w.t, signer)
	for n := sum.Floor; n < sum.Next; n++ {
		if _, ok := rows[n]; !ok {
			w.t.Errorf("%s: nonce %d of %d is nowhere", signer, n, sum.Next)
		}
	}
}

// checkServed finds out whether the signer is served again.
func (w *world) checkServed(signer string) {
	var last said
	for range 200 {
		for _, m := range w.nodes[:2] {
			if last = w.run(m, &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1}); last.op.Err == nil {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Errorf("%s is not served any more: %v", signer, last)
}
