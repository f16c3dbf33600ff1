package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-json/jsontext"

	"noncegate/test/lab/expect"
)

var (
	allocateByName = []byte(`{"signer":"` + signer + `","count":1,"requestId":"5b6f1c9e-4a6c-4e0e-9d8f-0c1d2e3f4a5b","holdMs":30000}`)
	allocateFrame  = []byte(`{"jsonrpc":"2.0","id":12345,"method":"nonce_allocate","params":` + string(allocateByName) + `}`)
)

// names is every name of every type of the protocol.
var names = func() (all []string) {
	for _, m := range messages() {
		for field := range reflect.TypeOf(m).Elem().Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all = append(all, name)
		}
	}
	return all
}()

// FuzzTypesAgainstEncodingJSON holds the codec against encoding/json, for the
// type of the protocol that kind picks. Where data is JSON without names given
// twice, both accept it or neither does, into equal values; and equal values are
// written alike.
func FuzzTypesAgainstEncodingJSON(f *testing.F) {
	for i := range messages() {
		f.Add(uint8(i), []byte(`{"signer":"é\u2028<&>","nonce":1,"attempt":9007199254740993,"heldUntil":"2026-11-20T18:33:56.123456Z"}`))
		f.Add(uint8(i), []byte(`{"allocations":[{"nonce":-1,"heldUntil":null,"updatedAt":"2026-11-20T18:33:56+01:00"}],"nextFrom":0,"nonces":[]}`))
		f.Add(uint8(i), []byte(`{"gap":{"nonce":1,"since":"2026-11-20T18:33:56.123456Z","blocked":2},"was":{"status":"UNKNOWN"},"txHashes":["0x1"],"final":0,"chain":{"final":null}}`))
		f.Add(uint8(i), []byte(`{"limits":{"maxCount":256},"commitMs":{"count":1,"p50":0.1,"p95":1e21,"p99":1e-7,"max":-0},"lowestHeld":0}`))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		ours := messages()[int(kind)%len(messages())]
		std := reflect.New(reflect.TypeOf(ours).Elem()).Interface()
		stdErr := json.Unmarshal(data, std)
		ourErr := Unmarshal(data, ours)
		if jsontext.Value(data).IsValid() && !hasOtherCase(data) {
			if (ourErr == nil) != (stdErr == nil) {
				t.Fatalf("%T: we say %v, encoding/json %v", ours, ourErr, stdErr)
			}
			if ourErr == nil && !reflect.DeepEqual(ours, std) {
				t.Fatalf("%T: got %+v, encoding/json %+v", ours, ours, std)
			}
		}
		if ourErr == nil {
			sameText(t, ours)
		}
		if stdErr == nil {
			sameText(t, std)
		}
	})
}

// hasOtherCase reports whether a name is one of ours but for its case, which
// encoding/json accepts and we do not.
func hasOtherCase(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if err != nil {
			return false
		}
		word, ok := token.(string)
		if ok && !slices.Contains(names, word) && slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, word) }) {
			return true
		}
	}
}

// sameText fails unless v is written as encoding/json writes it, but for what
// that escapes for JavaScript, and an empty list, which is [] and not null.
func sameText(t *testing.T, v any) {
	t.Helper()
	if list, ok := v.(*ListResult); ok && list.Allocations == nil {
		list.Allocations = []Allocation{}
	}
	ours, err := Marshal(v)
	var std bytes.Buffer
	enc := json.NewEncoder(&std)
	enc.SetEscapeHTML(false)
	stdErr := enc.Encode(v)
	if err != nil || stdErr != nil {
		t.Fatalf("%T: we say %v, encoding/json %v", v, err, stdErr)
	}
	want := bytes.TrimSuffix(std.Bytes(), []byte("\n"))
	want = bytes.ReplaceAll(want, []byte(`\u2028`), []byte("\u2028"))
	want = bytes.ReplaceAll(want, []byte(`\u2029`), []byte("\u2029"))
	want = bytes.ReplaceAll(want, []byte(`\ufffd`), []byte("\ufffd"))
	if !bytes.Equal(ours, want) && !bytes.Contains(want, []byte(`\\u`)) {
		t.Fatalf("%T:\n got %s\nwant %s", v, ours, want)
	}
}

// FuzzResultAgainstEncodingJSON writes the hot reply from its parts, with strings
// that need not be UTF-8.
func FuzzResultAgainstEncodingJSON(f *testing.F) {
	f.Add("a", int64(0), int64(1), int64(math.MaxInt64), 3)
	f.Add("\xff\x00\u2028\"\\", int64(-1), int64(math.MinInt64), int64(1), 0)
	f.Fuzz(func(t *testing.T, signer string, nonce, attempt, token int64, many int) {
		r := &AllocateResult{Signer: signer, Nonce: nonce, Attempt: attempt, FencingToken: token, HeldUntil: moment}
		for i := range min(many, 20) {
			r.Nonces = append(r.Nonces, NonceAttempt{Nonce: nonce + int64(i), Attempt: attempt})
		}
		sameText(t, r)
		sameText(t, &Event{Type: signer, Signer: signer, Version: nonce, Missed: attempt, At: moment})
		sameText(t, &Error{Message: signer, Data: &ErrorData{Nonce: &nonce, Limit: token, HeldUntil: &moment}})
	})
}

// FuzzFrame: no frame makes the decoder panic, what it says is consistent, and only
// what is no JSON in UTF-8, or too deep, is refused as such.
func FuzzFrame(f *testing.F) {
	f.Add(allocateFrame)
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"x"},null,{"id":1,"id":2}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"cut \ud83d","a":1}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\udc00","method":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var frame Frame
		err := frame.Decode(data)
		if err != nil {
			if len(frame.Calls) != 0 {
				t.Fatalf("calls beside %v", err)
			}
			if err.Code == CodeParseError && json.Valid(data) && utf8.Valid(data) {
				t.Fatalf("%v, but it is JSON", err)
			}
			return
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			t.Fatal("accepted, but it is not JSON")
		}
		if !frame.Batch && len(frame.Calls) != 1 || len(frame.Calls) == 0 {
			t.Fatalf("%d calls", len(frame.Calls))
		}
		for _, c := range frame.Calls {
			checkCall(t, c)
		}
		checkNeighbours(t, data)
	})
}

// checkNeighbours fails if data, which is JSON, harms the requests that it is between.
func checkNeighbours(t *testing.T, data []byte) {
	const neighbour = `{"jsonrpc":"2.0","id":1,"method":"x"}`
	var frame Frame
	batch := []byte("[" + neighbour + "," + string(data) + "," + neighbour + "]")
	if !json.Valid(batch) {
		return // it is as deep as may be already
	}
	if err := frame.Decode(batch); err != nil {
		t.Fatalf("in a batch: %v", err)
	}
	if n := len(frame.Calls); n != 3 || frame.Calls[0].Err != nil || frame.Calls[2].Err != nil || string(frame.Calls[2].ID) != "1" {
		t.Fatalf("%d calls: %+v", n, frame.Calls)
	}
}

// checkCall fails unless c can be answered and, when valid, is the same after
// being written and read again.
func checkCall(t *testing.T, c Call) {
	if c.Err != nil {
		if !validID(c.ID) || c.Err.Code != CodeInvalidRequest || !json.Valid(AppendError(nil, c.ID, c.Err)) {
			t.Fatalf("refused with id %q: %v", c.ID, c.Err)
		}
		return
	}
	type member = map[string]any
	m := member{"jsonrpc": "2.0", "method": string(c.Method)}
	if c.ID != nil {
		m["id"] = json.RawMessage(c.ID)
	}
	if c.Params != nil {
		m["params"] = json.RawMessage(c.Params)
	}
	text, err := json.Marshal(m)
	expect.Must(t, err)
	var again Frame
	if err := again.Decode(text); err != nil || again.Calls[0].Err != nil || string(again.Calls[0].Method) != string(c.Method) {
		t.Fatalf("%s: %v, %+v", text, err, again.Calls)
	}
	if (again.Calls[0].ID == nil) != (c.ID == nil) || (again.Calls[0].Params == nil) != (c.Params == nil) {
		t.Fatalf("%s: got %+v, want %+v", text, again.Calls[0], c)
	}
}

// FuzzParams: no params that are JSON make a decoder panic; a refusal names a field and is
// invalid_params; what is accepted is the same after being written and read
// again.
func FuzzParams(f *testing.F) {
	for method := range decoders {
		for _, seed := range []string{
			string(allocateByName), `["a",1,"0x1",1,{"key":"k","intervalMs":"0x64","keep":true}]`, `[{"signer":"a","nonce":"0x1f"}]`,
			`["events",{"signers":["a"]}]`, `{"id":"0x1"}`, `["a","HELD",0,1000]`, `[null]`, ``,
			`["a",null,5000]`, `["a",1,"0x1f4",2]`,
		} {
			f.Add(method, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, method string, params []byte) {
		decode, ok := decoders[method]
		if !ok || len(params) > 0 && (!jsontext.Value(params).IsValid(lenient) || !utf8.Valid(params)) {
			return
		}
		value, err := decode(params)
		if err != nil {
			if err.Code != CodeInvalidParams || !strings.HasPrefix(err.Message, "invalid_params: "+err.Data.Field+": ") {
				t.Fatalf("refused with %d %q, field %q", err.Code, err.Message, err.Data.Field)
			}
			return
		}
		if len(params) > 0 && !jsontext.Value(params).IsValid() {
			t.Fatal("accepted, but a name is given twice or a surrogate unpaired")
		}
		text, merr := Marshal(value)
		if merr != nil {
			t.Fatal(merr)
		}
		again, err := decode(text)
		if err != nil || !reflect.DeepEqual(value, again) {
			t.Fatalf("%s: got %+v, %v; want %+v", text, again, err, value)
		}
	})
}
