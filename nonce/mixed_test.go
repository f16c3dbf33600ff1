package nonce_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
)

// handOut is one nonce as somebody was given it.
type handOut struct {
	signer         string
	nonce, attempt int64
}

// history is what all clients of a run saw.
type history struct {
	mu    sync.Mutex         // guards all below
	given map[handOut]string // to which request
	kept  map[handOut]string // what its holder knows: "held", "used", "held or used"; absent when it gave it back or cannot tell
	acked int

	lowest bool // clients end their lowest hold first, and surely, so that there is something to prune
}

// faults makes calls break now and then, before or after they took effect.
func (d *disk) faults(seed uint64) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	hit := func(oneIn int) bool {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(oneIn) == 0
	}
	writes := func(c memstore.Call) bool { return c.Op == memstore.OpCommit || c.Op == memstore.OpLocked }
	d.onBefore(func(c memstore.Call) error {
		switch {
		case writes(c) && hit(40), c.Op == memstore.OpAcquire && hit(40):
			return errCut
		case hit(60):
			return &nonce.StoreError{Outcome: nonce.NotSent, Err: errCut}
		case writes(c) && hit(40):
			return &nonce.StoreError{Outcome: nonce.Aborted, Err: errCut}
		}
		return nil
	})
	d.onAfter(func(c memstore.Call) error {
		if writes(c) && hit(20) || c.Op == memstore.OpAcquire && hit(40) {
			return errCut
		}
		return nil
	})
	d.onLock(func(string) bool { return hit(20) })
}

// client runs random ops through random nodes and notes what it learns. It owns
// its hand-outs: nobody else marks them.
func (h *history) client(id int, seed uint64, nodes []*node) {
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	var mine []handOut
	for i := range 150 {
		if h.lowest {
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // of a bubble's time, for the pruners
		}
		n := nodes[r.IntN(len(nodes))]
		if len(mine) == 0 || r.IntN(2) == 0 && !(h.lowest && len(mine) > 4) {
			mine = append(mine, h.allocate(n, r, fmt.Sprintf("%d-%d", id, i))...)
			continue
		}
		at := r.IntN(len(mine))
		if h.lowest {
			at = slices.IndexFunc(mine, func(g handOut) bool { return g.nonce == slices.MinFunc(mine, byNonce).nonce })
		}
		if ended := h.mark(n, r, mine[at]); (ended || !h.lowest) && r.IntN(3) > 0 {
			mine[at] = mine[len(mine)-1]
			mine = mine[:len(mine)-1]
		}
	}
}

func byNonce(a, b handOut) int { return cmp.Compare(a.nonce, b.nonce) }

// allocate asks until it is told ok or gives up; with a request id it asks again
// on whatever node, and must be given the same.
func (h *history) allocate(n *node, r *rand.Rand, id string) []handOut {
	signer := fmt.Sprintf("s%d", r.IntN(3))
	op := &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: 1 + r.IntN(3)}
	if r.IntN(2) == 0 {
		op.RequestID = id
	}
	if n.Do(context.Background(), op) != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked++
	var out []handOut
	for i := range op.Nonces {
		g := handOut{signer, op.Nonces[i], op.Attempts[i]}
		if to, twice := h.given[g]; twice {
			n.t.Errorf("%v was given to %s and to %s", g, to, id)
		}
		h.given[g], h.kept[g] = id, "held"
		out = append(out, g)
	}
	if op.RequestID == "" {
		return out
	}
	again := &nonce.Op{Kind: nonce.KindAllocate, Signer: signer, Count: op.Count, RequestID: id}
	h.mu.Unlock()
	err := n.Do(context.Background(), again)
	h.mu.Lock()
	if _, ended := errors.AsType[*nonce.ConflictError](err); ended || err == nil && result(again) != result(op) {
		n.t.Errorf("request %s: got %s, then %s", id, result(op), result(again))
	}
	return out
}

// mark reports whether the hold has ended for sure.
func (h *history) mark(n *node, r *rand.Rand, g handOut) bool {
	op := &nonce.Op{Signer: g.signer, Nonce: g.nonce, Attempt: g.attempt, Kind: nonce.KindMarkRecyclable}
	if r.IntN(3) == 0 {
		op.Kind, op.TxHash = nonce.KindMarkUsed, nonce.TxHash{1}
	}
	h.mu.Lock()
	was := h.kept[g]
	if op.Kind == nonce.KindMarkRecyclable {
		delete(h.kept, g) // from now on somebody may be given it
	}
	h.mu.Unlock()
	err := n.Do(context.Background(), op)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && op.Kind == nonce.KindMarkUsed:
		h.kept[g] = "used"
	case op.Kind == nonce.KindMarkUsed && was == "held":
		h.kept[g] = "held or used"
	case err != nil && was == "used" && op.Kind == nonce.KindMarkRecyclable:
		h.kept[g] = "used"
	case err == nil && was == "used":
		n.t.Errorf("%v was used and then given back", g)
	}
	_, conflict := errors.AsType[*nonce.ConflictError](err)
	return err == nil || conflict
}

// check compares the history with what the store ended with.
func (h *history) check(t *testing.T, d *disk) {
	for g, how := range h.kept {
		if to, ok := h.given[handOut{g.signer, g.nonce, g.attempt + 1}]; ok {
			t.Errorf("%v is %s and was handed out again to %s", g, how, to)
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("s%d", i)
		page, err := d.List(t.Context(), nonce.ListQuery{Signer: name, Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		snaps, err := d.Load(t.Context(), []nonce.Need{{Signer: name}})
		if err != nil {
			t.Fatal(err)
		}
		h.checkSigner(t, snaps[0], page.Rows)
	}
}

func (h *history) checkSigner(t *testing.T, s nonce.Snapshot, rows []nonce.Row) {
	if int64(len(rows)) != s.Next-s.Pruned {
		t.Errorf("%s: got %d rows, want one for each nonce from %d to %d", s.Signer, len(rows), s.Pruned, s.Next)
	}
	held := int64(0)
	for i, r := range rows {
		if r.Nonce != s.Pruned+int64(i) {
			t.Fatalf("%s: nonce %d is lost", s.Signer, i)
		}
		if r.Status == nonce.Held {
			held++
		}
		for a := range r.Attempt {
			how := h.kept[handOut{s.Signer, r.Nonce, a + 1}]
			if how == "used" && (r.Status != nonce.Consumed || r.Attempt != a+1) || strings.HasPrefix(how, "held") && a+1 != r.Attempt {
				t.Errorf("%s: its holder knows %d#%d as %s, the row is %s", s.Signer, r.Nonce, a+1, how, row(r))
			}
		}
	}
	for g := range h.given {
		switch {
		case g.signer != s.Signer:
		case g.nonce < s.Pruned:
			if h.kept[g] == "held" {
				t.Errorf("%v is held and was pruned", g)
			}
		case g.nonce >= s.Next || rows[g.nonce-s.Pruned].Attempt < g.attempt:
			t.Errorf("%v was handed out, the store does not know it", g)
		}
	}
	if held != s.Held {
		t.Errorf("%s: counts %d held, has %d rows HELD", s.Signer, s.Held, held)
	}
}

// TestNoNonceHasTwoHoldersInMixedModes runs clients against two worker-queue
// nodes and a basic one on one store that fails now and then, while the leases
// end now and then. Holds are longer than the run.
func TestNoNonceHasTwoHoldersInMixedModes(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDisk()
			long := func(c *nonce.Config) { c.DefaultHold, c.MaxHold, c.QueueCapacity = 10*time.Hour, 10*time.Hour, 1000 }
			nodes := []*node{
				start(t, d, "a", long, workers(2)), start(t, d, "b", long, callerRuns, places(2)), start(t, d, "c", long, basicMode),
			}
			d.faults(seed)
			h := &history{given: map[handOut]string{}, kept: map[handOut]string{}}
			var wg sync.WaitGroup
			for id := range 8 {
				wg.Go(func() { h.client(id, seed, nodes) })
			}
			wg.Go(func() {
				for range 30 {
					nodes[2].run("allocate signer=clock")
					d.ahead.Add(int64(nodes[0].cfg.LeaseTTL) + 1)
				}
			})
			wg.Wait()
			d.onBefore(nil)
			d.onAfter(nil)
			d.onLock(nil)
			if h.acked < 100 {
				t.Fatalf("only %d allocates were answered: the run proves nothing", h.acked)
			}
			h.check(t, d)
		})
	}
}
