package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"noncegate/nonce"
	"noncegate/wire"
)

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
