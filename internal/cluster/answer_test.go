package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"noncegate/nonce"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func hashOf(n byte) (h nonce.TxHash) {
	h[31] = n
	return h
}

// An answer that does not fit what was asked may be that to another request.
func TestAnAnswerThatDoesNotFitIsNonsense(t *testing.T) {
	h1, allocate := hashOf(1).String(), &op{Request: &nonce.Request{Kind: nonce.KindAllocate, Signer: "s", Count: 1}}
	ops := map[string]*op{
		"used":     {Request: &nonce.Request{Kind: nonce.KindMarkUsed, Signer: "s", Nonce: 4, Attempt: 1, TxHash: hashOf(1)}},
		"signed":   {Request: &nonce.Request{Kind: nonce.KindMarkSigned, Signer: "s", Nonce: 4, Attempt: 1, TxHash: hashOf(1)}},
		"release":  {Request: &nonce.Request{Kind: nonce.KindMarkRecyclable, Signer: "s", Nonce: 4, Attempt: 1}},
		"extend":   {Request: &nonce.Request{Kind: nonce.KindExtend, Signer: "s", Nonce: 4, Attempt: 1}},
		"repair":   {Request: &nonce.Request{Kind: nonce.KindRepair, Signer: "s", Nonce: 4}},
		"allocate": allocate,
	}
	whole := strings.NewReplacer("H1", h1, "H2", hashOf(2).String(), "NINE", `["`+strings.Repeat(h1+`","`, 8)+h1+`"]`,
		"HOLD", `"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500`)
	text, err := os.ReadFile("testdata/nonsense")
	expect.Must(t, err)
	seen := 0
	for line := range strings.Lines(string(text)) {
		of, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of == "#" {
			continue
		}
		seen++
		a, err := new(results).understand(askedBy(ops[of]), &frame{Result: wire.Raw(whole.Replace(result))})
		if !errors.Is(err, errNonsense) {
			t.Errorf("%s: got %+v, %v", line, a, err)
		}
	}
	if seen < 36 {
		t.Errorf("%d answers", seen)
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
			ops := []*op{allocation("1"), allocation("2"), allocation("3")}
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
