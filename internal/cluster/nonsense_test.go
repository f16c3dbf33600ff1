package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/events"
	"noncegate/nonce"
)

func hashOf(n byte) (h nonce.TxHash) {
	h[31] = n
	return h
}

// A result that does not fit what was asked may be that of another request, or half of one.
func TestAResultThatDoesNotFitIsNonsense(t *testing.T) {
	used := nonce.Request{Kind: nonce.KindMarkUsed, Nonce: 4, Attempt: 1, TxHash: hashOf(1)}
	signed := nonce.Request{Kind: nonce.KindMarkSigned, Nonce: 4, Attempt: 1, TxHash: hashOf(1)}
	release := nonce.Request{Kind: nonce.KindMarkRecyclable, Nonce: 4, Attempt: 1}
	extend := nonce.Request{Kind: nonce.KindExtend, Nonce: 4, Attempt: 1}
	repair := nonce.Request{Kind: nonce.KindRepair, Nonce: 4}
	one, two := nonce.Request{Kind: nonce.KindAllocate, Count: 1}, nonce.Request{Kind: nonce.KindAllocate, Count: 2}
	floor, list := nonce.Request{Kind: nonce.KindSetFloor, Floor: 5}, nonce.Request{Kind: nonce.KindList}
	good := held(4)
	with := func(change func(*nonce.Result)) nonce.Result {
		r := good
		change(&r)
		return r
	}
	h1, h2 := nonce.TxHashes("").Append(hashOf(1)), nonce.TxHashes("").Append(hashOf(2))
	after := func(reason string) []*nonce.Earlier { return []*nonce.Earlier{{Attempt: 1, Reason: reason}} }
	for name, c := range map[string]struct {
		q    nonce.Request
		a    nonce.Result
		fits bool
	}{
		"one":                    {one, good, true},
		"none":                   {one, nonce.Result{}, false},
		"one of two":             {two, good, false},
		"without an attempt":     {one, with(func(r *nonce.Result) { r.Attempts = nil }), false},
		"attempt 0":              {one, with(func(r *nonce.Result) { r.Attempts = []int64{0} }), false},
		"a negative nonce":       {one, with(func(r *nonce.Result) { r.Nonces = []int64{-1} }), false},
		"no deadline":            {one, with(func(r *nonce.Result) { r.HeldUntil = time.Time{} }), false},
		"less than no time left": {one, with(func(r *nonce.Result) { r.HoldLeft = -1 }), false},
		"descending":             {two, with(func(r *nonce.Result) { r.Nonces, r.Attempts = []int64{4, 3}, []int64{1, 1} }), false},
		"twice":                  {two, with(func(r *nonce.Result) { r.Nonces, r.Attempts = []int64{4, 4}, []int64{1, 1} }), false},
		"after an earlier hold": {one, with(func(r *nonce.Result) {
			r.Attempts, r.Earlier = []int64{2}, after(nonce.ReasonUnseen)
		}), true},
		"after a later hold":        {one, with(func(r *nonce.Result) { r.Earlier = after(nonce.ReasonUnseen) }), false},
		"after a hold of no kind":   {one, with(func(r *nonce.Result) { r.Attempts, r.Earlier = []int64{2}, after("x") }), false},
		"earlier holds of others":   {one, with(func(r *nonce.Result) { r.Earlier = []*nonce.Earlier{nil, nil} }), false},
		"used":                      {used, nonce.Result{Status: nonce.Consumed, Attempt: 1, Hashes: h1}, true},
		"used, and held":            {used, nonce.Result{Status: nonce.Held, Attempt: 1, Hashes: h1}, false},
		"another attempt":           {used, nonce.Result{Status: nonce.Consumed, Attempt: 2, Hashes: h1}, false},
		"without the hash":          {used, nonce.Result{Status: nonce.Consumed, Attempt: 1}, false},
		"no status":                 {release, nonce.Result{Attempt: 1}, false},
		"released":                  {release, nonce.Result{Status: nonce.Released, Attempt: 1}, true},
		"released, and still held":  {release, nonce.Result{Status: nonce.Held, Attempt: 1}, false},
		"signed without a deadline": {signed, nonce.Result{Status: nonce.Held, Attempt: 1, Hashes: h1}, false},
		"signed another":            {signed, nonce.Result{Status: nonce.Consumed, Attempt: 1, Hashes: h2}, false},
		"extended":                  {extend, with(func(r *nonce.Result) { r.Attempt = 1 }), true},
		"extended another attempt":  {extend, with(func(r *nonce.Result) { r.Attempt = 2 }), false},
		"extended to never":         {extend, nonce.Result{Attempt: 1}, false},
		"repaired":                  {repair, good, true},
		"repaired another":          {repair, held(5), false},
		"a floor":                   {floor, nonce.Result{Floor: 7, Next: 8}, true},
		"a floor below":             {floor, nonce.Result{Floor: 4, Next: 8}, false},
		"a read of nothing":         {list, nonce.Result{}, false},
		"a read":                    {list, nonce.Result{Said: &nonce.ChainSaid{}}, true},
		"what its id stands for":    {one, nonce.Result{Err: &nonce.ConflictError{Nonce: -1, Holds: make([]nonce.HoldState, 2)}}, true},
		"a node that forwards":      {one, nonce.Result{Err: nonce.ErrPeerAway}, false},
	} {
		if err := fits(&c.q, &c.a); (err == nil) != c.fits || err != nil && !errors.Is(err, errNonsense) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What cannot be understood may have been the answer to anything: the link ends, what was sent is in
// doubt, and nothing else happens.
func TestNonsenseMakesEverythingDoubtfulInItsOrder(t *testing.T) {
	for name, message := range map[string]func(r received) []byte{
		"an empty item":             func(received) []byte { return []byte{0} },
		"an item of the other side": func(received) []byte { return []byte{itRequest, 1, 1} },
		"half a result":             func(r received) []byte { b := answerTo(r, held(1)); return b[:len(b)-1] },
		"a number without an end":   func(received) []byte { return []byte{itResult, 0xff, 0xff} },
		"an unknown error": func(r received) []byte {
			b := answerTo(r, nonce.Result{Err: nonce.ErrBusy})
			b[len(b)-1] = 99
			return b
		},
		"a result of another":        func(r received) []byte { r.sum++; return answerTo(r, held(1)) },
		"a request that was not":     func(r received) []byte { r.id += 100; return answerTo(r, held(1)) },
		"a result that does not fit": func(r received) []byte { return answerTo(r, nonce.Result{Status: nonce.Consumed, Attempt: 1}) },
		"an interest of nobody's":    func(received) []byte { return []byte{itHave, 1} },
		"an event of no signer": func(received) []byte {
			return nonce.AppendEvent([]byte{itEvent, 0}, &nonce.Event{Type: nonce.EventUsed})
		},
		"a long message": func(received) []byte { return bytes.Repeat([]byte{itHave, 1}, maxFrame) },
	} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			ops := []*asked{w.allocation("1"), w.allocation("2"), w.allocation("3")}
			var bad []byte
			for i, o := range ops {
				w.forward(o)
				if r := f.next(nonce.KindAllocate); i == 1 {
					bad = message(r)
				}
			}
			_ = f.ws.WriteMessage(websocket.BinaryMessage, bad) // of the long one not all is taken
			for _, o := range ops {
				w.wantBack(o, nonce.Doubtful, nil)
			}
			if err := <-f.ended; name != "a long message" && !strings.Contains(err.Error(), "1002") || w.logged("link to node lost") != 1 {
				t.Errorf("%s: the link ended with %v, want 1002; %s", name, err, w.log)
			}
		})
	}
}

// TestAResultComesOnce: the second one is of no request.
func TestAResultComesOnce(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		first, second := w.allocation("1"), w.allocation("2")
		w.forward(first)
		answer := answerTo(f.next(nonce.KindAllocate), held(1))
		w.forward(second)
		f.next(nonce.KindAllocate)
		f.send(append(answer, answer...))
		w.wantBack(first, nonce.Answered, nil)
		w.wantBack(second, nonce.Doubtful, errNonsense)
	})
}

// Nobody else may touch an op that the writer reads, or that is routed elsewhere.
func TestAResultOfWhatWasNotSentIsNone(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		f.stopReading()
		w.forward(w.allocation("0"))
		synctest.Wait() // it was read
		sent, queued := w.allocation("1"), w.allocation("2")
		w.forward(sent)
		synctest.Wait() // hangs in its write
		w.forward(queued)
		p := w.known()["a"]
		p.mu.Lock()
		id := p.inflight.lastID
		p.mu.Unlock()
		f.grant(received{id: id}, 1)
		<-w.back
		w.wantBack(sent, nonce.Doubtful, errNonsense)
		w.wantBack(queued, nonce.Bounced, nonce.ErrPeerAway)
	})
}

// FuzzTake: whatever another node sends is understood, and fits what was asked, or ends the link.
// Nothing comes back twice.
func FuzzTake(f *testing.F) {
	const one = 1
	q := nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1}
	f.Add(answerTo(received{id: one}, held(3)))
	f.Add(append(answerTo(received{id: one}, nonce.Result{Err: nonce.ErrFenced}), itHave, 1))
	f.Add(nonce.AppendEvent([]byte{itEvent, 2}, &nonce.Event{Type: nonce.EventUsed, Signer: "s"}))
	f.Add(binary.AppendUvarint([]byte{itResult}, one+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &Router{ctx: t.Context(), cfg: Config{Queue: 4}, metrics: NewMetrics(prometheus.NewRegistry()), local: Local{Events: new(sink), Service: new(owner)}}
		r.interest.Store(new(interest))
		r.moved = make(chan struct{})
		back := make(chan *asked, 10)
		p := newPeer(r, node("there", 1))
		p.subs.asked = &interest{seq: 2, Interest: events.Interest{All: true}}
		for range 2 {
			o := &asked{Request: q, to: back}
			p.inflight.add(op{&o.Request, 0, o}, time.Time{})
		}
		p.inflight.takeQueued().stage = sent
		l := &link{peer: p, wakers: make(wakers)}
		if err := l.take(data); err != nil && !errors.Is(err, errNonsense) {
			t.Fatalf("%x ends the link with %v", data, err)
		}
		if len(back)+p.inflight.order.Len() != 2 || len(back) > 1 {
			t.Errorf("%d came back and %d are under way, of 2, of which one was sent", len(back), p.inflight.order.Len())
		}
	})
}

// FuzzAddress: what a node advertises is made into an address where links are, or refused.
func FuzzAddress(f *testing.F) {
	for _, raw := range []string{
		"ws://gateway-1.internal:8080/ws", "http://127.0.0.1:8080", "https://[::1]/", "wss://user:pass@host/ws", "ws://", "%",
		"ws://localhost:1/a?b#c",
	} {
		f.Add(raw, true)
		f.Add(raw, false)
	}
	f.Fuzz(func(t *testing.T, raw string, anywhere bool) {
		got, err := address(raw, anywhere)
		if err != nil {
			if got != "" || !errors.Is(err, errAddress) && !errors.Is(err, errNoSecret) {
				t.Fatalf("%q: %q, %v", raw, got, err)
			}
			return
		}
		if !strings.HasPrefix(got, "ws://") && !strings.HasPrefix(got, "wss://") {
			t.Fatalf("%q became %q", raw, got)
		}
		if again, err := address(got, anywhere); err != nil || again != got {
			t.Errorf("%q became %q, and that %q, %v", raw, got, again, err)
		}
	})
}
