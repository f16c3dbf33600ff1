package service_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/service"
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

	pruned bool // the history is pruned meanwhile
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
		n := nodes[r.IntN(len(nodes))]
		if len(mine) == 0 || r.IntN(2) == 0 {
			mine = append(mine, h.allocate(n, r, fmt.Sprintf("%d-%d", id, i))...)
			continue
		}
		at := r.IntN(len(mine))
		if h.mark(n, r, mine[at]); r.IntN(3) > 0 {
			mine[at] = mine[len(mine)-1]
			mine = mine[:len(mine)-1]
		}
	}
}

// allocate asks until it is told ok or gives up; with a request id it asks again
// on whatever node, and must be given the same.
func (h *history) allocate(n *node, r *rand.Rand, id string) []handOut {
	signer := fmt.Sprintf("s%d", r.IntN(3))
	op := &noncetest.Op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: 1 + r.IntN(3)}}
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
	again := &noncetest.Op{Request: nonce.Request{Kind: nonce.KindAllocate, Signer: signer, Count: op.Count, RequestID: id}}
	h.mu.Unlock()
	err := n.Do(context.Background(), again)
	h.mu.Lock()
	if _, ended := errors.AsType[*nonce.ConflictError](err); ended || err == nil && result(again) != result(op) {
		n.t.Errorf("request %s: got %s, then %s", id, result(op), result(again))
	}
	return out
}

func (h *history) mark(n *node, r *rand.Rand, g handOut) {
	op := &noncetest.Op{Request: nonce.Request{Signer: g.signer, Nonce: g.nonce, Attempt: g.attempt, Kind: nonce.KindMarkRecyclable}}
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
		h.checkSigner(t, name, d.load(t, name).Signer, page.Rows)
	}
}

// checkSigner: of what is pruned only that it is consumed is known.
func (h *history) checkSigner(t *testing.T, name string, s nonce.Signer, rows []nonce.Row) {
	at := make(map[int64]nonce.Row)
	for _, r := range rows {
		at[r.Nonce] = r
		for a := range r.Attempt {
			how := h.kept[handOut{name, r.Nonce, a + 1}]
			if how == "used" && (r.Status != nonce.Consumed || r.Attempt != a+1) || strings.HasPrefix(how, "held") && a+1 != r.Attempt {
				t.Errorf("%s: its holder knows %d#%d as %s, the row is %s", name, r.Nonce, a+1, how, row(r))
			}
		}
	}
	for n := range s.Next {
		if _, known := at[n]; !known && !h.pruned {
			t.Fatalf("%s: nonce %d is lost", name, n)
		}
	}
	for g := range h.given {
		r, known := at[g.nonce]
		switch {
		case g.signer != name:
		case g.nonce >= s.Next || known && r.Attempt < g.attempt:
			t.Errorf("%v was handed out, the store does not know it", g)
		case !known && h.kept[g] == "held":
			t.Errorf("%v is held and was pruned", g)
		}
	}
}

// TestNoNonceHasTwoHoldersInMixedModes runs clients against two worker-queue nodes and a
// basic one on one store that fails now and then, while the leases end now and then, shards
// are taken away, and the history is pruned. Holds are longer than the run.
func TestNoNonceHasTwoHoldersInMixedModes(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newDisk()
			long := func(c *service.Config) {
				c.Rules.DefaultHold, c.Rules.MaxLive, c.MaxHold, c.QueueCapacity = 10*time.Hour, 4096, 10*time.Hour, 1000
				c.WatchEvery = 20 * time.Millisecond
			}
			nodes := []*node{
				start(t, d, "a", long, workers(2)), start(t, d, "b", long, callerRuns, slots(2)), start(t, d, "c", long, basicMode),
			}
			d.faults(seed)
			h := &history{given: map[handOut]string{}, kept: map[handOut]string{}, pruned: seed%2 == 1}
			var wg sync.WaitGroup
			for id := range 8 {
				wg.Go(func() { h.client(id, seed, nodes) })
			}
			wg.Go(func() {
				for i := range 30 {
					nodes[2].run("allocate signer=clock")
					switch i % 3 {
					case 0:
						d.ahead.Add(int64(nodes[0].cfg.LeaseTTL) + 1)
					case 1:
						d.takeAway(fmt.Sprintf("s%d", i/3%3))
					default:
						if h.pruned {
							_, _ = d.Prune(context.Background(), d.clock().Add(time.Hour), 1000)
						}
					}
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
