//go:build unix

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/test/lab/history"
	"noncegate/wire"
)

// The signers of a run. The hot ones get half of the calls.
const (
	signers    = 12
	hotSigners = 3
)

// maxThink bounds the time between two calls of one client: what keeps a history
// short enough for porcupine and long enough to say something.
const maxThink = 14 * time.Millisecond

// think is maxThink, or longer where a run lasts for long.
func (c *cluster) think() time.Duration {
	if c.Failover {
		return 5 * maxThink
	}
	return maxThink
}

// workload is what the clients of a run share.
type workload struct {
	cutting      atomic.Bool // some calls lose their connection before the answer
	acknowledged atomic.Int64

	mu      sync.Mutex       // guards what follows
	ids     []asked          // some of the request ids that were used
	highest map[string]int64 // by signer, what was handed out
}

// asked is an allocate that had a request id.
type asked struct {
	call history.Call // as it was asked
	node *node
}

// maxIDs bounds the request ids that are remembered to be asked again.
const maxIDs = 64

func (l *workload) remember(rnd *rand.Rand, a asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = keep(rnd, l.ids, maxIDs, a)
}

func (l *workload) someID(rnd *rand.Rand) (asked, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ids) == 0 {
		return asked{}, false
	}
	return l.ids[rnd.IntN(len(l.ids))], true
}

// gave notes what a client was given.
func (l *workload) gave(c *history.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.highest == nil {
		l.highest = make(map[string]int64)
	}
	for _, g := range c.Nonces {
		l.highest[c.Signer] = max(l.highest[c.Signer], g.Nonce)
	}
}

// above is a floor above all that clients were given of a signer.
func (l *workload) above(signer string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.highest[signer] + 1
}

// keep adds to a list, or where that is full in place of something else.
func keep[T any](rnd *rand.Rand, list []T, most int, v T) []T {
	if len(list) < most {
		return append(list, v)
	}
	list[rnd.IntN(most)] = v
	return list
}

// mine is a nonce that a client was given.
type mine struct {
	signer string
	history.Given
}

// maxPast bounds the holds kept for late and repeated marks.
const maxPast = 40

// repeat does one thing after the other, with a pause below think before each, until ctx ends. Then it closes the worker.
func (w *worker) repeat(ctx context.Context, think time.Duration, one func(context.Context)) {
	defer w.close()
	pause := func() time.Duration { return time.Duration(w.rnd.Int64N(int64(think))) }
	for lasts(ctx, pause()); ctx.Err() == nil; lasts(ctx, pause()) {
		one(ctx)
	}
}

func (w *worker) one(ctx context.Context) {
	before := len(w.calls)
	defer func() {
		for _, c := range w.calls[before:] {
			if c.Outcome == history.Happened {
				w.load.acknowledged.Add(1)
			}
		}
	}()
	switch k := w.rnd.IntN(100); {
	case k < 40 || len(w.open) == 0 && k < 75:
		w.allocate(ctx)
	case k < 45:
		w.burst(ctx)
	case k < 51:
		w.again(ctx)
	case k < 86 && len(w.open) > 0:
		w.mark(ctx)
	case k < 94:
		w.late(ctx)
	case k < 98:
		w.call(ctx, history.Call{Kind: history.Status, Signer: w.signer()})
	default:
		w.floor(ctx)
	}
}

func (w *worker) signer() string {
	n := w.rnd.IntN(hotSigners)
	if w.rnd.IntN(2) == 0 && !w.HotOnly {
		n = hotSigners + w.rnd.IntN(signers-hotSigners)
	}
	return signerName(n)
}

func signerName(i int) string { return fmt.Sprintf("signer-%02d", i) }

func hotNames() (names []string) {
	for i := range hotSigners {
		names = append(names, signerName(i))
	}
	return names
}

// node is where the next call of a signer goes: mostly to the owner, if known.
func (w *worker) node(signer string) *node {
	if n := w.owners[signer]; n != nil && w.rnd.IntN(10) < 7 {
		return n
	}
	return w.anyNode()
}

func (w *worker) call(ctx context.Context, call history.Call) (history.Call, bool) {
	return w.callAt(ctx, w.node(call.Signer), call)
}

// maxFollow bounds how often a call follows an owner.
const maxFollow = 3

func (w *worker) callAt(ctx context.Context, n *node, call history.Call) (history.Call, bool) {
	for range maxFollow {
		done, errs, err := w.do(ctx, n, w.cut(), call)
		if err != nil {
			delete(w.owners, call.Signer)
			return call, false
		}
		if errs[0] == nil || errs[0].Code != wire.CodeNotOwner || errs[0].Data == nil {
			return done[0], true
		}
		at := slices.IndexFunc(w.nodes, func(n *node) bool { return n.url == errs[0].Data.OwnerURL })
		if at < 0 {
			delete(w.owners, call.Signer)
			return done[0], true
		}
		n = w.nodes[at]
		w.owners[call.Signer] = n
	}
	return call, false
}

func (w *worker) anyNode() *node { return w.nodes[w.rnd.IntN(len(w.nodes))] }

// cut decides whether the next call loses its connection before its answer.
func (w *worker) cut() bool { return w.load.cutting.Load() && w.rnd.IntN(6) == 0 }

func (w *worker) newAllocate(signer string, withID bool) history.Call {
	c := history.Call{Kind: history.Allocate, Signer: signer, Count: 1, HoldMs: holdTTL.Milliseconds()}
	if w.rnd.IntN(5) == 0 {
		c.Count = 2 + w.rnd.IntN(2)
	}
	if w.rnd.IntN(4) == 0 {
		c.HoldMs = holdTTL.Milliseconds() + w.rnd.Int64N((maxHold - holdTTL).Milliseconds())
	}
	if withID {
		w.ids++
		c.RequestID = fmt.Sprintf("c%d-%d", w.id, w.ids)
	}
	return c
}

// allocate asks for nonces. Where nobody knows whether it happened, and it has an id, it is asked again, elsewhere too.
func (w *worker) allocate(ctx context.Context) {
	call := w.newAllocate(w.signer(), w.rnd.IntN(2) == 0)
	n := w.node(call.Signer)
	done, sent := w.callAt(ctx, n, call)
	if sent && call.RequestID != "" {
		w.load.remember(w.rnd, asked{call, n})
	}
	for range 3 {
		if !sent || call.RequestID == "" || done.Outcome == history.Happened || done.Reason == "conflict" || w.rnd.IntN(4) == 0 {
			break
		}
		done, sent = w.callAt(ctx, w.anyNode(), call)
	}
	w.got(done)
}

func (w *worker) got(calls ...history.Call) {
	for _, c := range calls {
		for _, g := range c.Nonces { // none unless it happened
			w.open = append(w.open, mine{c.Signer, g})
		}
	}
}

// burst asks for several at once over one connection, so that their order counts.
func (w *worker) burst(ctx context.Context) {
	signer := w.signer()
	calls := make([]history.Call, 2+w.rnd.IntN(4))
	for i := range calls {
		calls[i] = w.newAllocate(signer, false)
	}
	done, _, _ := w.do(ctx, w.node(signer), w.cut(), calls...)
	w.got(done...)
}

// again asks a request id once more, mostly on another node, sometimes with other parameters.
func (w *worker) again(ctx context.Context) {
	a, ok := w.load.someID(w.rnd)
	if !ok {
		return
	}
	n := a.node
	if w.rnd.IntN(3) > 0 {
		n = w.anyNode()
	}
	if w.rnd.IntN(10) == 0 {
		a.call.Count++
	}
	w.callAt(ctx, n, a.call)
}

func (w *worker) mark(ctx context.Context) {
	i := w.rnd.IntN(len(w.open))
	m := w.open[i]
	w.open[i] = w.open[len(w.open)-1]
	w.open = w.open[:len(w.open)-1]
	w.past = keep(w.rnd, w.past, maxPast, m)
	switch k := w.rnd.IntN(100); {
	case k < 80:
		call := w.used(m)
		if k >= 55 {
			call = w.free(m)
		}
		done, sent := w.call(ctx, call)
		if sent && (done.Outcome == history.Unknown || w.rnd.IntN(10) == 0) {
			w.callAt(ctx, w.anyNode(), call) // a mark may be repeated
		}
	case k < 85:
		w.do(ctx, w.node(m.signer), w.cut(), w.used(m), w.free(m)) // in this order, so the second is a conflict
	default: // left to expire
	}
}

func (w *worker) used(m mine) history.Call {
	tx := fmt.Sprintf("0x%064x", w.rnd.Uint64())
	return history.Call{Kind: history.MarkUsed, Signer: m.signer, Nonce: m.Nonce, Attempt: m.Attempt, TxHash: tx}
}

func (w *worker) free(m mine) history.Call {
	why := fmt.Sprintf("w%x", w.rnd.Uint32())
	return history.Call{Kind: history.MarkRecyclable, Signer: m.signer, Nonce: m.Nonce, Attempt: m.Attempt, Why: why}
}

// late marks what was marked before, expired, belongs to somebody else by now, or never was.
func (w *worker) late(ctx context.Context) {
	if len(w.past) == 0 {
		return
	}
	m := w.past[w.rnd.IntN(len(w.past))]
	switch w.rnd.IntN(10) {
	case 0:
		m.Attempt++
	case 1:
		m.Nonce += 50
	}
	if w.rnd.IntN(2) == 0 {
		w.call(ctx, w.used(m))
	} else {
		w.call(ctx, w.free(m))
	}
}

// floor raises a floor a little, mostly to what changes nothing. Where the store may go back a floor is somebody's word that it is safe,
// which clients do not know: attend gives those.
func (w *worker) floor(ctx context.Context) {
	if w.setsBack() || len(w.past) == 0 || w.rnd.IntN(3) > 0 {
		return
	}
	m := w.past[w.rnd.IntN(len(w.past))]
	w.call(ctx, history.Call{Kind: history.SetFloor, Signer: m.signer, Floor: max(0, m.Nonce+int64(w.rnd.IntN(4))-1)})
}
