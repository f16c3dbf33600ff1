package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// returns counts what comes back.
type returns struct {
	t    *testing.T
	back []*op
}

func (r *returns) Return(op *op, v nonce.Verdict) nonce.Waker {
	if slices.Contains(r.back, op) {
		r.t.Fatal("an op came back twice")
	}
	r.back = append(r.back, op)
	if v != nonce.Answered || op.Err != nil {
		return nil
	}
	switch op.Kind {
	case nonce.KindAllocate:
		if len(op.Nonces) != op.Count || len(op.Attempts) != op.Count || !slices.IsSorted(op.Nonces) || op.Nonces[0] < 0 || slices.Min(op.Attempts) < 1 || op.HoldLeft < 0 || op.HeldUntil.IsZero() {
			r.t.Fatalf("an allocation of %d came back as nonces %v, attempts %v until %v", op.Count, op.Nonces, op.Attempts, op.HeldUntil)
		}
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable, nonce.KindMarkSigned:
		if op.Status == 0 || op.Result.Attempt < 1 || op.Hashes.Len() > nonce.MaxHashes || op.Kind == nonce.KindMarkSigned && !op.Hashes.Contains(op.TxHash) {
			r.t.Fatalf("a mark came back as %v, attempt %d, with %d hashes", op.Status, op.Result.Attempt, op.Hashes.Len())
		}
	case nonce.KindExtend:
		if op.Result.Attempt != 1 || op.HeldUntil.IsZero() || op.HoldLeft < 0 {
			r.t.Fatalf("a hold came back until %v, attempt %d", op.HeldUntil, op.Result.Attempt)
		}
	case nonce.KindRepair:
		if len(op.Nonces) != 1 || op.Nonces[0] < 0 || op.Attempts[0] < 1 || op.HeldUntil.IsZero() || op.Hashes.Len() > nonce.MaxHashes ||
			op.Before != nil && op.Before.Attempt >= op.Attempts[0] {
			r.t.Fatalf("a repair came back as %v, attempt %v", op.Nonces, op.Attempts)
		}
	}
	return nil
}

// told takes events.
type told struct{ t *testing.T }

func (s told) Remote(signer string, event []byte, missed int64) {
	var e wire.Event
	if err := wire.Unmarshal(event, &e); signer == "" || err == nil && (e.Signer != signer || e.Missed > 0) {
		s.t.Fatalf("an event of %q, %d missed: %s", signer, missed, event)
	}
}

func (told) Lost() {}

// FuzzReceive: whatever another node sends, three messages of it, is understood, and
// fits what was asked, or ends the link. Nothing comes back twice.
func FuzzReceive(f *testing.F) {
	const (
		allocate = 1<<slotBits + 1 + iota
		many
		markUsed
		recyclable
		floor
		queuedOnly
		signed
		extend
		repair
	)
	const hash = "0x00000000000000000000000000000000000000000000000000000000000000ff"
	answer := func(id uint64, result string) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result)
	}
	refusal := func(id uint64, code int, data string) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"conflict: so it is","data":%s}}`, id, code, data)
	}
	event := []byte(`{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":{"type":"used","signer":"s","nonce":4,"attempt":1,"version":3,"at":"2026-11-20T18:33:56.123Z","missed":2}}}`)
	f.Add(answer(allocate, `{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500}`),
		answer(many, `{"signer":"s","nonce":7,"attempt":3,"heldUntil":"2026-11-20T18:33:56.123Z","nonces":[{"nonce":7,"attempt":3},{"nonce":9,"attempt":1}]}`), event)
	f.Add(answer(signed, `{"signer":"s","nonce":4,"attempt":3,"status":"HELD","txHash":"`+hash+`","heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500}`),
		answer(extend, `{"signer":"s","nonce":4,"attempt":1,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500}`),
		answer(repair, `{"signer":"s","nonce":4,"attempt":3,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500,`+
			`"was":{"status":"UNKNOWN","attempt":2,"reason":"unknown"},"txHashes":["`+hash+`"],"offer":{"gasPrice":"0x1"}}`))
	f.Add(answer(signed, `{"signer":"s","nonce":4,"attempt":3,"status":"CONSUMED","txHash":"0x`+strings.Repeat("ab", 32)+`","txHashes":["0x`+strings.Repeat("ab", 32)+`","`+hash+`"],"replaced":"`+hash+`"}`),
		refusal(repair, wire.CodeHoldLimit, `{"reason":"hold_limit","cause":"window","nonce":4,"limit":16}`), refusal(extend, wire.CodeConflict, `{"reason":"conflict","nonce":4,"status":"UNKNOWN","attempt":1}`))
	f.Add(answer(markUsed, `{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"`+hash+`"}`), answer(recyclable, `{"signer":"s","nonce":4,"attempt":1,"status":"RELEASED"}`),
		answer(floor, `{"signer":"s","floor":5,"next":8}`))
	f.Add(refusal(markUsed, wire.CodeConflict, `{"reason":"conflict","nonce":4,"status":"CONSUMED","attempt":2,"txHash":"0x`+strings.Repeat("ab", 32)+`","heldUntil":"2026-11-20T18:33:56.123Z"}`),
		refusal(many, wire.CodeConflict, `{"reason":"conflict","nonces":[{"nonce":4,"attempt":1,"status":"HELD"}]}`), refusal(allocate, wire.CodeUnavailable, `{"reason":"unavailable","outcome":"none"}`))
	f.Add(answer(controlBit|1, `"0x2"`), []byte(`{"id":null,"error":{"code":-32700,"message":"parse_error: x"}}`), answer(queuedOnly, `true`))
	f.Add(refusal(allocate, wire.CodeNotOwner, `{"reason":"not_owner","ownerNode":"b","ownerUrl":"ws://b"}`), refusal(allocate, wire.CodeDraining, `{}`), []byte(`{"method":"later"}`))
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		back := &returns{t: t}
		r, err := New("here", Config{}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
		expect.Must(t, err)
		r.events = told{t}
		p := &peer{r: r, id: "there", wake: make(chan struct{}, 1)}
		for i, op := range []*op{
			{Request: &nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1}}, {Request: &nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 2}},
			{Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 4, Attempt: 1}}, {Request: &nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: 4, Attempt: 1}},
			{Request: &nonce.Request{Kind: nonce.KindSetFloor, Signer: "s", Floor: 5}}, {Request: &nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1}},
			{Request: &nonce.Request{Kind: nonce.KindMarkSigned, Signer: "s", Nonce: 4, TxHash: nonce.TxHash{31: 0xff}, Forwarded: true, Take: true}},
			{Request: &nonce.Request{Kind: nonce.KindExtend, Signer: "s", Nonce: 4, Attempt: 1}}, {Request: &nonce.Request{Kind: nonce.KindRepair, Signer: "s", Nonce: -1}},
		} {
			op.of = &caller{returner: back, op: op}
			p.inflight.add(op, time.Time{})
			p.inflight.slots[i+1].stage = sent
		}
		p.inflight.slots[6].stage = queued
		p.subs = subscribed{id: "0x1", asking: controlBit | 1, lastID: 1, asked: r.interests.now()}
		l := &link{peer: p}
		for _, data := range [][]byte{first, second, third} {
			if err := l.receive(data); err != nil {
				if !errors.Is(err, errNonsense) {
					t.Fatalf("%q ends the link with %v", data, err)
				}
				break
			}
		}
		if len(back.back)+p.inflight.n != 9 {
			t.Errorf("%d came back and %d are under way, of 9", len(back.back), p.inflight.n)
		}
	})
}

// FuzzAddress: what a node advertises is made into an address that is the same when it
// is read again, and on loopback where it has to be.
func FuzzAddress(f *testing.F) {
	for _, raw := range []string{"ws://gateway-1.internal:8080/ws", "http://127.0.0.1:8080", "https://[::1]/", "wss://user:pass@host/ws", "ws://", "%", "ws://localhost:1/a?b#c"} {
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
