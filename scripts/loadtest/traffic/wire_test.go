//go:build unix

package traffic

import (
	"fmt"
	"testing"

	"noncegate/wire"
)

func TestRequestsAreWhatTheProtocolAsksFor(t *testing.T) {
	const big = int64(1<<63 - 1)
	for want, r := range map[string]request{
		fmt.Sprintf(`{"signer":%q}`, Signer(0xabc)): {nonceOf: nonceOf{account: 0xabc}},
		fmt.Sprintf(`{"signer":%q,"nonce":5,"attempt":2,"txHash":%q}`, Signer(big), txHash(nonceOf{big, 5, 2}, 3)): {method: MarkUsed,
			nonceOf: nonceOf{big, 5, 2}},
		fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":1}`, Signer(1), big): {method: MarkRecyclable,
			nonceOf: nonceOf{1, big, 1}},
		fmt.Sprintf(`{"signer":%q}`, Signer(2)): {method: Status,
			nonceOf: nonceOf{account: 2}},
	} {
		text := appendRequest(nil, firstID, &r, 3)
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":100000,"method":%q,"params":%s}`, wireNames[r.method], want)
		if string(text) != want || len(text) > maxRequestBytes-14 {
			t.Errorf("request %s, want %s", text, want)
		}
		var f wire.Frame
		if e := f.Decode(text); e != nil || f.Calls[0].Err != nil {
			t.Errorf("request %s is not valid: %v", text, e)
		}
	}
}

func TestRepliesAreUnderstood(t *testing.T) {
	for text, want := range map[string]reply{
		`{"jsonrpc":"2.0","id":100001,"result":{"nonce":5,"attempt":2,"holdMs":60000,"nonces":[{"nonce":6,"attempt":1}]}}`: {id: 100001},
		`{"jsonrpc":"2.0","id":100001,"result":{"holdMs":60000,"attempt":2,"nonce":5}} `:                                   {id: 100001},
		`{"jsonrpc":"2.0","id":100002,"error":{"code":-32005,"message":"m",` +
			`"data":{"reason":"server_busy"}}}`: {id: 100002, failed: true},
	} {
		got, err := parseReply([]byte(text))
		if err != nil || got.id != want.id || got.failed != want.failed {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if want.failed {
			if got.refusal() != "server_busy" {
				t.Errorf("%s: %q; want server_busy", text, got.refusal())
			}
			continue
		}
		var of nonceOf
		if holdMs, err := got.handedOut(&of); err != nil || of != (nonceOf{0, 5, 2}) || holdMs != 60000 {
			t.Errorf("%s: %+v, %d, %v; want nonce 5, attempt 2, 60000", text, of, holdMs, err)
		}
	}
}

func TestWhatIsNoReplyIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "hello", "{}", `{"id":null,"result":1}`, `{"id":1}`, `{"id":1,"result":1,"error":{}}`,
		`{"jsonrpc":"2.0","id":,"result":{}}`, `{"jsonrpc":"2.0","id":"a","result":{}}`,
		`{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}`,
	} {
		if r, err := parseReply([]byte(text)); err == nil {
			t.Errorf("%s was taken for %+v", text, r)
		}
	}
	for _, text := range []string{`{}`, `{"nonce":-1,"attempt":1,"holdMs":1}`, `5`} {
		r := reply{body: []byte(text + "}")}
		if _, err := r.handedOut(new(nonceOf)); err == nil {
			t.Errorf("%s was taken for a hand-out", text)
		}
	}
	if got := (&reply{failed: true, body: []byte(`{"code":1}}`)}).refusal(); got != "error without reason" {
		t.Errorf("refusal %q, want that it has no reason", got)
	}
}
