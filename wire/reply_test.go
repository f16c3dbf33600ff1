package wire

import (
	"math"
	"testing"
	"time"

	"noncegate/test/lab/expect"
)

var moment = Time(time.Date(2026, 11, 20, 19, 33, 56, 123_999_999, time.FixedZone("CET", 3600)))

func TestReplies(t *testing.T) {
	allocated := &AllocateResult{Signer: "a<&>b", Nonce: 7, Attempt: 1, FencingToken: 3, HeldUntil: moment, HoldMs: 30000}
	zero := int64(0)
	tests := []struct {
		name   string
		result any
		want   string
	}{
		{"allocate", allocated, `{"signer":"a<&>b","nonce":7,"attempt":1,"fencingToken":3,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":30000}`},
		{"allocate many", &AllocateResult{HeldUntil: moment, Nonces: []NonceAttempt{{Nonce: 7, Attempt: 1}, {Nonce: 8, Attempt: 2, Reissued: &Reissued{1, ReissuedRepair, "0x1"}}}},
			`{"signer":"","nonce":0,"attempt":0,"fencingToken":0,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":0,"nonces":[{"nonce":7,"attempt":1},{"nonce":8,"attempt":2,"reissued":{"attempt":1,"reason":"repair","txHash":"0x1"}}]}`},
		{"extended", &ExtendResult{Signer: "a", Attempt: 1, HeldUntil: moment},
			`{"signer":"a","nonce":0,"attempt":1,"fencingToken":0,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":0}`},
		{"repaired", &RepairResult{Signer: "a", Attempt: 3, HeldUntil: moment, Was: &Was{Status: StatusConsumed}, Offer: &Offer{GasPrice: "0x1"}},
			`{"signer":"a","nonce":0,"attempt":3,"fencingToken":0,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":0,"was":{"status":"CONSUMED","attempt":0},"offer":{"gasPrice":"0x1"}}`},
		{"status with a chain", &StatusResult{Chain: &ChainStatus{Final: &zero, Gap: &Gap{Since: moment}}},
			`{"signer":"","next":0,"floor":0,"held":0,"unknown":0,"released":0,"consumed":0,"fencingToken":0,"version":0,` +
				`"chain":{"mined":0,"final":0,"head":0,"gap":{"nonce":0,"since":"2026-11-20T18:33:56.123Z","blocked":0}}}`},
		{"status", &StatusResult{Signer: "a", LowestHeld: &zero, LeaseUntil: &moment},
			`{"signer":"a","next":0,"floor":0,"held":0,"unknown":0,"released":0,"consumed":0,"lowestHeld":0,"fencingToken":0,"version":0,"leaseUntil":"2026-11-20T18:33:56.123Z"}`},
		{"empty list", &ListResult{}, `{"allocations":[]}`},
		{"true", true, "true"},
		{"string", "0x1", `"0x1"`},
		{"invalid UTF-8", "\xff", `"` + "\ufffd" + `"`},
	}
	for _, test := range tests {
		got, err := AppendResult([]byte("before "), []byte(`"id"`), test.result)
		want := `before {"jsonrpc":"2.0","id":"id","result":` + test.want + `}`
		if err != nil || string(got) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", test.name, got, err, want)
		}
	}
	if got := Errorf(CodeServerBusy, "%s is full", "worker").Error(); got != "server_busy: worker is full (-32005)" {
		t.Error(got)
	}
}

func TestAPageThatHasRoomIsWrittenAsAnyResult(t *testing.T) {
	next := int64(9)
	for _, page := range []*ListResult{
		{Allocations: []Allocation{}}, {Allocations: []Allocation{{Nonce: 1}, {Nonce: 2, TxHash: "0x1"}}, NextFrom: &next, Partial: true},
	} {
		got, err := AppendPage(nil, []byte("1"), page, 10_000)
		expect.Must(t, err)
		want, err := AppendResult(nil, []byte("1"), page)
		if expect.Must(t, err); string(got) != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAResultThatJSONCannotSayLeavesTheBufferAlone(t *testing.T) {
	got, err := AppendResult([]byte("before"), []byte("1"), &Figure{P50: math.NaN()})
	if err == nil || string(got) != "before" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNotifications(t *testing.T) {
	event := AppendEvent(nil, &Event{Type: EventUsed, Signer: "a", Nonce: 1, Attempt: 1, TxHash: "0x1", Version: 9, At: moment})
	const (
		head = `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x\"1","result":` +
			`{"type":"used","signer":"a","nonce":1,"attempt":1,"txHash":"0x1","version":9,"at":"2026-11-20T18:33:56.123Z"`
		tail = `}}}`
	)
	if got := string(AppendSubscription(nil, MethodSubscription, `0x"1`, event, 0)); got != head+tail {
		t.Error(got)
	}
	got := AppendSubscription([]byte("-"), MethodSubscription, `0x"1`, event, 5)
	if string(got) != "-"+head+`,"missed":5`+tail {
		t.Errorf("%s", got)
	}
	var note struct{ Params struct{ Result Event } }
	note.Params.Result.Missed = -1
	if err := Unmarshal([]byte(`{"Params":{"Result":{"missed":5,"later":1}}}`), &note); err != nil || note.Params.Result.Missed != 5 {
		t.Errorf("%+v, %v", note, err)
	}
}

func TestTimes(t *testing.T) {
	tests := map[string]string{
		"2026-11-20T18:33:56Z":                "2026-11-20T18:33:56.000Z",
		"2026-11-20T18:33:56.0019Z":           "2026-11-20T18:33:56.001Z",
		"2026-11-20T18:33:56.999999999+01:00": "2026-11-20T17:33:56.999Z",
		"0001-01-01T00:00:00Z":                "0001-01-01T00:00:00.000Z",
	}
	for in, want := range tests {
		var at Time
		expect.Must(t, Unmarshal([]byte(`"`+in+`"`), &at))
		if out, err := Marshal(at); err != nil || string(out) != `"`+want+`"` || at.String() != want {
			t.Errorf("%s: got %s, %v; want %s", in, out, err, want)
		}
	}
	for _, bad := range []string{`"2026-11-20"`, `""`, `7`} {
		if err := Unmarshal([]byte(bad), new(Time)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestRawKeepsAValueAsWritten(t *testing.T) {
	var m struct {
		A, B Raw
	}
	in := `{"A":{"x" : 1e0},"B":null}`
	if err := Unmarshal([]byte(in), &m); err != nil || string(m.A) != `{"x" : 1e0}` || string(m.B) != "null" {
		t.Errorf("%s %s %v", m.A, m.B, err)
	}
	if out, err := Marshal(&m); err != nil || string(out) != `{"A":{"x":1e0},"B":null}` {
		t.Errorf("%s %v", out, err)
	}
	if out, err := Marshal(Raw(nil)); err != nil || string(out) != "null" {
		t.Errorf("%s %v", out, err)
	}
}
