package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

func TestAnAnswerFillsTheOpAsTheServiceWould(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		until := time.Date(2026, 11, 20, 18, 33, 56, 123e6, time.UTC)
		mark := func(k nonce.Kind) *nonce.Op { return &nonce.Op{Kind: k, Signer: "s", Nonce: 4, Attempt: 1} }
		h1, h2 := hashOf(1), hashOf(2)
		both := nonce.TxHashes("").Append(h2).Append(h1)
		const hold = `"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500`
		hashed := func(k nonce.Kind, h nonce.TxHash) *nonce.Op {
			return &nonce.Op{Kind: k, Signer: "s", Nonce: 4, Attempt: 1, TxHash: h}
		}
		for _, c := range []struct {
			op     *nonce.Op
			result string
			want   nonce.Op // what matters of it
		}{
			{&nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 1},
				`{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500,"new":1}`,
				nonce.Op{Nonces: []int64{7}, Attempts: []int64{3}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond}},
			{&nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 2},
				`{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":0,` +
					`"nonces":[{"nonce":7,"attempt":3},{"nonce":9,"attempt":1}]}`,
				nonce.Op{Nonces: []int64{7, 9}, Attempts: []int64{3, 1}, Token: 9, HeldUntil: until}},
			{&nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 1},
				`{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,` + hold + `,"reissued":{"attempt":2,"reason":"unseen"}}`,
				nonce.Op{Nonces: []int64{7}, Attempts: []int64{3}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond,
					Earlier: []*nonce.Earlier{{Attempt: 2, Reason: "unseen"}}}},
			{&nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 2},
				`{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,` + hold + `,"reissued":{"attempt":2,"reason":"unseen"},` +
					`"nonces":[{"nonce":7,"attempt":3,"reissued":{"attempt":2,"reason":"unseen"}},{"nonce":9,"attempt":2,"reissued":{"attempt":1,"reason":"repair","txHash":"` +
					h1.String() + `"}}]}`,
				nonce.Op{Nonces: []int64{7, 9}, Attempts: []int64{3, 2}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond,
					Earlier: []*nonce.Earlier{{Attempt: 2, Reason: "unseen"}, {Attempt: 1, Reason: "repair", TxHash: h1}}}},
			{&nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 2}, // nothing of the one before is left
				`{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,` + hold + `,"nonces":[{"nonce":7,"attempt":3},{"nonce":9,"attempt":2}]}`,
				nonce.Op{Nonces: []int64{7, 9}, Attempts: []int64{3, 2}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond}},
			{mark(nonce.KindMarkUsed), `{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED"}`, nonce.Op{Attempt: 1, Status: nonce.Consumed}},
			{hashed(nonce.KindMarkUsed, h1), `{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h1.String() + `"}`,
				nonce.Op{Attempt: 1, Status: nonce.Consumed, Hashes: nonce.TxHashes("").Append(h1)}},
			{hashed(nonce.KindMarkUsed, h2), `{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h2.String() +
				`","txHashes":["` + h2.String() + `","` + h1.String() + `"],"replaced":"` + h1.String() + `"}`,
				nonce.Op{Attempt: 1, Status: nonce.Consumed, Hashes: both, Replaced: h1}},
			{hashed(nonce.KindMarkSigned, h1), `{"signer":"s","nonce":4,"attempt":1,"status":"HELD","txHash":"` + h1.String() + `",` + hold + `}`,
				nonce.Op{Attempt: 1, Status: nonce.Held, Hashes: nonce.TxHashes("").Append(h1), HeldUntil: until, HoldLeft: 1500 * time.Millisecond}},
			{&nonce.Op{Kind: nonce.KindMarkSigned, Signer: "s", Nonce: 4, TxHash: h1, Forwarded: true, Take: true},
				`{"signer":"s","nonce":4,"attempt":6,"status":"CONSUMED","txHash":"` + h1.String() + `","reissued":{"attempt":5,"reason":"unseen"}}`,
				nonce.Op{Attempt: 6, Status: nonce.Consumed, Hashes: nonce.TxHashes("").Append(h1), Earlier: []*nonce.Earlier{{Attempt: 5, Reason: "unseen"}}}},
			{mark(nonce.KindExtend), `{"signer":"s","nonce":4,"attempt":1,"fencingToken":9,` + hold + `}`,
				nonce.Op{Attempt: 1, Status: nonce.Held, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond}},
			{&nonce.Op{Kind: nonce.KindRepair, Signer: "s", Nonce: -1},
				`{"signer":"s","nonce":3,"attempt":5,"fencingToken":9,` + hold + `,"was":{"status":"UNKNOWN","attempt":4,"reason":"unknown"},` +
					`"reissued":{"attempt":3,"reason":"unseen"},"txHashes":["` + h2.String() + `","` + h1.String() + `"],"offer":{"maxFeePerGas":"0x77359400"}}`,
				nonce.Op{Status: nonce.Held, Nonces: []int64{3}, Attempts: []int64{5}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond, Hashes: both,
					Before: &nonce.Before{Status: nonce.Held, Attempt: 4, Reason: "unknown"}, Earlier: []*nonce.Earlier{{Attempt: 3, Reason: "unseen"}}, Offer: &nonce.Offer{MaxFeePerGas: "0x77359400"}}},
			{&nonce.Op{Kind: nonce.KindRepair, Signer: "s", Nonce: 3},
				`{"signer":"s","nonce":3,"attempt":5,"fencingToken":9,` + hold + `,"was":{"status":"CONSUMED","attempt":0}}`,
				nonce.Op{Status: nonce.Held, Nonces: []int64{3}, Attempts: []int64{5}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond,
					Before: &nonce.Before{Status: nonce.Consumed}}},
			{&nonce.Op{Kind: nonce.KindRepair, Signer: "s", Nonce: 3, RequestID: "known"}, `{"signer":"s","nonce":3,"attempt":5,"fencingToken":9,` + hold + `}`,
				nonce.Op{Status: nonce.Held, Nonces: []int64{3}, Attempts: []int64{5}, Token: 9, HeldUntil: until, HoldLeft: 1500 * time.Millisecond}},
			{mark(nonce.KindMarkRecyclable), `{"signer":"s","nonce":4,"attempt":1,"status":"RELEASED"}`, nonce.Op{Attempt: 1, Status: nonce.Released}},
			{&nonce.Op{Kind: nonce.KindSetFloor, Signer: "s", Floor: 3}, `{"signer":"s","floor":5,"next":8}`, nonce.Op{Floor: 5, Next: 8}},
		} {
			w.forward("a", c.op)
			f.Answer(<-f.Requests, json.RawMessage(c.result))
			w.wantBack(c.op, nonce.Answered, nil)
			got := nonce.Op{
				Err: c.op.Err, Nonces: c.op.Nonces, Attempts: c.op.Attempts, Token: c.op.Token, HeldUntil: c.op.HeldUntil,
				HoldLeft: c.op.HoldLeft, Status: c.op.Status, Floor: c.op.Floor, Next: c.op.Next, Attempt: c.op.Attempt,
				Hashes: c.op.Hashes, Replaced: c.op.Replaced, Before: c.op.Before, Earlier: c.op.Earlier, Offer: c.op.Offer,
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s\ngot  %+v\nwant %+v", c.result, got, c.want)
			}
		}
	})
}

func hashOf(n byte) (h nonce.TxHash) {
	h[31] = n
	return h
}

// An answer that does not fit what was asked may be that to another request.
func TestAnAnswerThatDoesNotFitIsNonsense(t *testing.T) {
	h1, h2 := hashOf(1).String(), hashOf(2).String()
	const hold = `"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500`
	used := &nonce.Op{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 4, Attempt: 1, TxHash: hashOf(1)}
	signed := &nonce.Op{Kind: nonce.KindMarkSigned, Signer: "s", Nonce: 4, Attempt: 1, TxHash: hashOf(1)}
	release := &nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: 4, Attempt: 1}
	extend := &nonce.Op{Kind: nonce.KindExtend, Signer: "s", Nonce: 4, Attempt: 1}
	repair := &nonce.Op{Kind: nonce.KindRepair, Signer: "s", Nonce: 4}
	allocate := &nonce.Op{Kind: nonce.KindAllocate, Signer: "s", Count: 1}
	nine := `["` + strings.Repeat(h1+`","`, 8) + h1 + `"]`
	for result, op := range map[string]*nonce.Op{
		`{"signer":"t","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h1 + `"}`:                                                used,
		`{"signer":"s","nonce":5,"attempt":1,"status":"CONSUMED","txHash":"` + h1 + `"}`:                                                used,
		`{"signer":"s","nonce":4,"attempt":2,"status":"CONSUMED","txHash":"` + h1 + `"}`:                                                used,
		`{"signer":"s","nonce":4,"status":"CONSUMED","txHash":"` + h1 + `"}`:                                                            used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"HELD","txHash":"` + h1 + `"}`:                                                    used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"RELEASED","txHash":"` + h1 + `"}`:                                                used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h2 + `"}`:                                                used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED"}`:                                                                      used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"0x12"}`:                                                      used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHashes":` + nine + `}`:                                              used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h2 + `","txHashes":["` + h1 + `"]}`:                      used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHashes":["` + h1 + `","` + h1 + `"]}`:                               used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"CONSUMED","txHash":"` + h1 + `","replaced":"` + h2 + `"}`:                        used,
		`{"signer":"s","nonce":4,"attempt":1,"status":"RELEASED","txHash":"` + h1 + `",` + hold + `}`:                                   signed,
		`{"signer":"s","nonce":4,"attempt":1,"status":"UNKNOWN","txHash":"` + h1 + `",` + hold + `}`:                                    signed,
		`{"signer":"s","nonce":4,"attempt":1,"status":"HELD","txHash":"` + h1 + `"}`:                                                    signed,
		`{"signer":"s","nonce":4,"attempt":1,"status":"HELD","txHash":"` + h1 + `","heldUntil":"2026-11-20T18:33:56.123Z","holdMs":-1}`: signed,
		`{"signer":"s","nonce":4,"attempt":1,"status":"HELD"}`:                                                                          release,
		`{"signer":"s","nonce":4,"attempt":3,"status":"RELEASED"}`:                                                                      release,
		`{"signer":"s","nonce":4,"attempt":2,"fencingToken":9,` + hold + `}`:                                                            extend,
		`{"signer":"s","nonce":5,"attempt":1,"fencingToken":9,` + hold + `}`:                                                            extend,
		`{"signer":"s","nonce":4,"attempt":1,"fencingToken":9,"holdMs":1}`:                                                              extend,
		`{"signer":"s","nonce":5,"attempt":3,` + hold + `}`:                                                                             repair,
		`{"signer":"s","nonce":4,"attempt":0,` + hold + `}`:                                                                             repair,
		`{"signer":"s","nonce":4,"attempt":3}`:                                                                                          repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"was":{"status":"HELD","attempt":3}}`:                                         repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"was":{"status":"ODD","attempt":1}}`:                                          repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"was":{"status":"UNKNOWN","attempt":1}}`:                                      repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"was":{"status":"HELD","attempt":-1}}`:                                        repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"txHashes":` + nine + `}`:                                                     repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"offer":{"gasPrice":"7 gwei"}}`:                                               repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"offer":{"gasPrice":"0x` + strings.Repeat("f", 65) + `"}}`:                    repair,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"reissued":{"attempt":3,"reason":"unseen"}}`:                                  allocate,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"reissued":{"attempt":0,"reason":"unseen"}}`:                                  allocate,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"reissued":{"attempt":2,"reason":"odd"}}`:                                     allocate,
		`{"signer":"s","nonce":4,"attempt":3,` + hold + `,"reissued":{"attempt":2,"reason":"unseen","txHash":"0x1"}}`:                   allocate,
	} {
		a, err := new(results).understand(askedBy(op), &frame{Result: wire.Raw(result)})
		if !errors.Is(err, errNonsense) {
			t.Errorf("%v %s: got %+v, %v", op.Kind, result, a, err)
		}
	}
	window := &wire.Error{Code: wire.CodeHoldLimit, Data: &wire.ErrorData{Limit: 3, Cause: wire.CauseWindow}}
	if _, err := new(results).understand(askedBy(allocate), &frame{Error: window}); !errors.Is(err, errNonsense) {
		t.Errorf("a window without its lowest nonce: %v", err)
	}
}

func TestARefusalSaysWhatTheOtherNodeSaid(t *testing.T) {
	hash, _ := nonce.ParseTxHash("0x" + strings.Repeat("ab", 32))
	until := time.Date(2026, 11, 20, 18, 33, 56, 123e6, time.UTC)
	n, at := int64(4), wire.Time(until)
	busy := &wire.Error{Code: wire.CodeServerBusy, Message: "server_busy: so it is", Data: &wire.ErrorData{Reason: "server_busy", Stage: "worker", RetryAfterMs: 50}}
	for _, c := range []struct {
		code    int
		reason  string
		data    wire.ErrorData
		verdict nonce.Verdict
		want    error
	}{
		{wire.CodeNotOwner, "not_owner", wire.ErrorData{OwnerNode: "b", OwnerURL: "ws://b"}, nonce.Bounced, &nonce.NotOwnerError{Node: "b", URL: "ws://b"}},
		{wire.CodeFenced, "fenced", wire.ErrorData{}, nonce.Bounced, nonce.ErrFenced},
		{wire.CodeDraining, "draining", wire.ErrorData{}, nonce.Bounced, nonce.ErrDraining},
		{wire.CodeNotFound, "not_found", wire.ErrorData{}, nonce.Answered, nonce.ErrNotFound},
		{wire.CodeForbidden, "forbidden", wire.ErrorData{}, nonce.Answered, nonce.ErrNotHolder},
		{wire.CodeHoldLimit, "hold_limit", wire.ErrorData{Limit: 5, Signer: "s"}, nonce.Answered, &nonce.HoldLimitError{Limit: 5}},
		{wire.CodeHoldLimit, "hold_limit", wire.ErrorData{Limit: 6}, nonce.Answered, &nonce.HoldLimitError{Limit: 6, OfPrincipal: true}},
		{wire.CodeHoldLimit, "hold_limit", wire.ErrorData{Limit: 16, Signer: "s", Cause: wire.CauseWindow, Nonce: &n}, nonce.Answered,
			&nonce.HoldLimitError{Limit: 16, Window: true, Lowest: 4}},
		{wire.CodeNotFound, "not_found", wire.ErrorData{Cause: wire.CauseNewSigner}, nonce.Answered, nonce.ErrNewSigner},
		{wire.CodeConflict, "conflict", wire.ErrorData{Nonce: &n, Status: "UNKNOWN", Attempt: 2, HeldUntil: &at}, nonce.Answered,
			&nonce.ConflictError{Sentence: "so it is", Nonce: 4, Status: nonce.Held, Unknown: true, Attempt: 2, HeldUntil: until}},
		{wire.CodeConflict, "conflict", wire.ErrorData{Nonces: []wire.HoldState{{Nonce: 4, Attempt: 2, Status: "UNKNOWN"}}}, nonce.Answered,
			&nonce.ConflictError{Sentence: "so it is", Nonce: -1, Holds: []nonce.HoldState{{Nonce: 4, Attempt: 2, Status: nonce.Held, Unknown: true}}}},
		{wire.CodeServerBusy, "server_busy", *busy.Data, nonce.Answered, busy},
		{wire.CodeConflict, "conflict", wire.ErrorData{Nonce: &n, Status: "CONSUMED", Attempt: 2, TxHash: hash.String(), HeldUntil: &at}, nonce.Answered,
			&nonce.ConflictError{Sentence: "so it is", Nonce: 4, Status: nonce.Consumed, Attempt: 2, TxHash: hash, HeldUntil: until}},
		{wire.CodeConflict, "conflict", wire.ErrorData{Nonces: []wire.HoldState{{Nonce: 4, Attempt: 2, Status: "RELEASED"}}}, nonce.Answered,
			&nonce.ConflictError{Sentence: "so it is", Nonce: -1, Holds: []nonce.HoldState{{Nonce: 4, Attempt: 2, Status: nonce.Released}}}},
	} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			op := allocation("s")
			w.forward("a", op)
			f.Reject(f.Next(wire.MethodAllocate), c.code, c.reason, c.data)
			w.wantBack(op, c.verdict, nil)
			if !reflect.DeepEqual(op.Err, c.want) {
				t.Errorf("%s: got %#v, want %#v", c.reason, op.Err, c.want)
			}
		})
	}
}

// What cannot be understood may have been the answer to anything.
func TestNonsenseMakesEverythingDoubtfulInItsOrder(t *testing.T) {
	grant := `"attempt":1,"heldUntil":"2026-11-20T18:00:00.000Z"`
	for name, message := range map[string]string{
		"not JSON":             `{`,
		"no result":            `{"jsonrpc":"2.0","id":ID}`,
		"a null result":        `{"jsonrpc":"2.0","id":ID,"result":null}`,
		"another signer":       `{"jsonrpc":"2.0","id":ID,"result":{"signer":"t","nonce":1,` + grant + `}}`,
		"no attempt":           `{"jsonrpc":"2.0","id":ID,"result":{"signer":"2","nonce":1,"heldUntil":"2026-11-20T18:00:00.000Z"}}`,
		"no deadline":          `{"jsonrpc":"2.0","id":ID,"result":{"signer":"2","nonce":1,"attempt":1}}`,
		"a negative nonce":     `{"jsonrpc":"2.0","id":ID,"result":{"signer":"2","nonce":-1,` + grant + `}}`,
		"too many nonces":      `{"jsonrpc":"2.0","id":ID,"result":{"signer":"2","nonce":1,` + grant + `,"nonces":[{"nonce":1,"attempt":1},{"nonce":2,"attempt":1}]}}`,
		"another result":       `{"jsonrpc":"2.0","id":ID,"result":"0x1"}`,
		"a refusal of nothing": `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse_error: x","data":{"reason":"parse_error"}}}`,
		"no reason":            `{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"x"}}`,
		"a long error":         `{"jsonrpc":"2.0","id":ID,"error":{"code":-32005,"message":"` + strings.Repeat("x", 1000) + `","data":{"reason":"x"}}}`,
		"a strange id":         `{"jsonrpc":"2.0","id":"1","result":1}`,
		"no event":             `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":{}}}`,
		"a hold of no state":   `{"jsonrpc":"2.0","id":ID,"error":{"code":-32013,"message":"x","data":{"reason":"conflict","nonces":[{"nonce":1,"attempt":1,"status":"ODD"}]}}}`,
	} {
		linked(t, Config{}, func(t *testing.T, w *world, f *far) {
			ops := []*nonce.Op{allocation("1"), allocation("2"), allocation("3")}
			var id string
			for i, op := range ops {
				w.forward("a", op)
				if r := f.Next(wire.MethodAllocate); i == 1 {
					id = string(r.ID)
				}
			}
			f.Send("%s", strings.ReplaceAll(message, "ID", id))
			for _, op := range ops {
				b := <-w.svc.back
				if b.op != op || b.verdict != nonce.Doubtful {
					t.Errorf("%s: op %s came back with verdict %d, %v", name, b.op.Signer, b.verdict, b.op.Err)
				}
			}
			if err := <-f.Ended; !strings.Contains(err.Error(), "1002") {
				t.Errorf("%s: the link ended with %v, want 1002", name, err)
			}
		})
	}
}

// Nobody else may touch an op that the writer reads, or that is routed elsewhere.
func TestAnAnswerToWhatWasNotSentIsNoAnswer(t *testing.T) {
	linked(t, Config{}, func(t *testing.T, w *world, f *far) {
		f.StopReading()
		w.forward("a", allocation("0"))
		synctest.Wait() // it was read
		sent, queued := allocation("1"), allocation("2")
		w.forward("a", sent)
		synctest.Wait() // hangs in its write
		w.forward("a", queued)
		p := w.table.Load().peers["a"]
		p.mu.Lock()
		id := p.inflight.slots[p.inflight.slots[0].prev].id
		p.mu.Unlock()
		grant(f, received{ID: json.RawMessage(fmt.Sprint(id)), Params: json.RawMessage(`{"signer":"2"}`)}, 1)
		<-w.svc.back
		w.wantBack(sent, nonce.Doubtful, errNonsense)
		w.wantBack(queued, nonce.Bounced, nonce.ErrPeerAway)
	})
}
