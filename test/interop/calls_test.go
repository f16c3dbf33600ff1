package interop

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/ethereum/go-ethereum/rpc"
)

const (
	signer = "eip155:1:0x52908400098527886e0f7030069857d2e4169ee7"
	txHash = "0x1111111111111111111111111111111111111111111111111111111111111111"
)

// object is a JSON object as a client writes it down.
type object = map[string]any

// hold is what a program would keep of an answer to nonce_allocate.
type hold struct {
	Nonce   uint64 `json:"nonce"`
	Attempt uint64 `json:"attempt"`
}

// status is what a program would keep of an answer to nonce_status.
type status struct {
	Next     uint64 `json:"next"`
	Held     uint64 `json:"held"`
	Released uint64 `json:"released"`
	Consumed uint64 `json:"consumed"`
}

// call calls a method that must succeed.
func call[T any](t *testing.T, client *rpc.Client, method string, args ...any) (result T) {
	t.Helper()
	if err := client.CallContext(t.Context(), &result, method, args...); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	return result
}

// steps is a life of one signer that uses each method and each parameter by position, as
// go-ethereum's client sends them. The scenarios of a chain send one object.
var steps = []struct {
	method string
	params []any
	want   string // with what differs from run to run masked
}{
	{"nonce_setFloor", []any{signer, "0x7"}, `{"signer":"SIGNER","floor":7,"next":7}`},
	{"nonce_allocate", []any{signer},
		`{"signer":"SIGNER","nonce":7,"attempt":1,"fencingToken":"NUMBER","heldUntil":"TIME","holdMs":60000}`},
	{"nonce_allocate", []any{signer, 2, "order-1", 30_000},
		`{"signer":"SIGNER","nonce":8,"attempt":1,"fencingToken":"NUMBER","heldUntil":"TIME","holdMs":30000,` +
			`"nonces":[{"nonce":8,"attempt":1},{"nonce":9,"attempt":1}]}`},
	{"nonce_markUsed", []any{signer, 7, txHash}, `{"signer":"SIGNER","nonce":7,"attempt":1,"status":"CONSUMED","txHash":"` + txHash + `"}`},
	{"nonce_markRecyclable", []any{signer, 8, "gas too low"}, `{"signer":"SIGNER","nonce":8,"attempt":1,"status":"RELEASED"}`},
	{"nonce_list", []any{signer, "RELEASED"},
		`{"allocations":[{"nonce":8,"status":"RELEASED","attempt":1,"reason":"gas too low","requestId":"order-1","updatedAt":"TIME"}]}`},
	{"nonce_allocate", []any{signer, nil, nil, 2_000},
		`{"signer":"SIGNER","nonce":8,"attempt":2,"fencingToken":"NUMBER","heldUntil":"TIME","holdMs":2000}`},
	{"nonce_markUsed", []any{signer, "0x8", txHash, 2}, `{"signer":"SIGNER","nonce":8,"attempt":2,"status":"CONSUMED","txHash":"` + txHash + `"}`},
	{"nonce_list", []any{signer, nil, 8, 1},
		`{"allocations":[{"nonce":8,"status":"CONSUMED","attempt":2,"txHash":"` + txHash + `","updatedAt":"TIME"}],"nextFrom":9}`},
	{"nonce_status", []any{signer},
		`{"signer":"SIGNER","next":10,"floor":7,"held":1,"unknown":0,"released":0,"consumed":9,"lowestHeld":9,"owner":"NODE","ownerUrl":"URL",` +
			`"fencingToken":"NUMBER","version":"NUMBER","leaseUntil":"TIME","engine":"reliable"}`},
}

func TestGoEthereumsClientCallsEveryMethod(t *testing.T) {
	t.Parallel()
	client := start(t).dial()
	for _, s := range steps {
		if got := mask(string(call[json.RawMessage](t, client, s.method, s.params...))); got != s.want {
			t.Errorf("%s:\n got %s\nwant %s", s.method, got, s.want)
		}
	}
	info := call[object](t, client, "gateway_info")
	if info["store"] != "sqlite" || info["engine"] != "reliable" || info["mode"] != "worker-queue" || info["incarnation"] != 1.0 {
		t.Errorf("gateway_info: got %v", info)
	}
	if stats := call[object](t, client, "gateway_stats"); stats["commitMs"] == nil {
		t.Errorf("gateway_stats: got %v", stats)
	}
}

// mask replaces what differs from run to run by a word for it, where it is of the right kind.
func mask(text string) string {
	for _, of := range []struct{ kind, word string }{
		{`"(fencingToken|version)":[1-9]\d*`, `"$1":"NUMBER"`},
		{`"(heldUntil|updatedAt|leaseUntil)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`, `"$1":"TIME"`},
		{`"owner":"[^"]+"`, `"owner":"NODE"`},
		{`"ownerUrl":"ws://[^"]+"`, `"ownerUrl":"URL"`},
		{`"signer":"` + signer + `"`, `"signer":"SIGNER"`},
	} {
		text = regexp.MustCompile(of.kind).ReplaceAllString(text, of.word)
	}
	return text
}
