package wire

import (
	"reflect"
	"strings"
	"testing"
)

const signer = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

// decoders is every decoder of params, by its method.
var decoders = map[string]func([]byte) (any, *Error){
	MethodAllocate:       erase(DecodeAllocate),
	MethodMarkUsed:       erase(DecodeMarkUsed),
	MethodMarkRecyclable: erase(DecodeMarkRecyclable),
	MethodMarkSigned:     erase(DecodeMarkSigned),
	MethodExtend:         erase(DecodeExtend),
	MethodRepair:         erase(DecodeRepair),
	MethodStatus:         erase(DecodeStatus),
	MethodList:           erase(DecodeList),
	MethodSetFloor:       erase(DecodeSetFloor),
	MethodSubscribe:      erase(DecodeSubscribe),
	MethodUnsubscribe:    erase(DecodeUnsubscribe),
	MethodInfo:           func(p []byte) (any, *Error) { return nil, DecodeNone(p) },
}

func erase[T any](decode func([]byte) (T, *Error)) func([]byte) (any, *Error) {
	return func(params []byte) (any, *Error) { return decode(params) }
}

func TestAcceptedParams(t *testing.T) {
	const max = 1<<63 - 1
	tests := []struct {
		method, params string
		want           any
	}{
		{MethodAllocate, `{"signer":"a"}`, AllocateParams{Signer: "a", Count: 1}},
		{MethodAllocate, ` [ {"signer":"a"} ] `, AllocateParams{Signer: "a", Count: 1}},
		{MethodAllocate, `["a"]`, AllocateParams{Signer: "a", Count: 1}},
		{MethodAllocate, `["a",null,null,null,null]`, AllocateParams{Signer: "a", Count: 1}},
		{MethodAllocate, `{"signer":"a","count":null,"requestId":null,"holdMs":null,"guard":null}`, AllocateParams{Signer: "a", Count: 1}},
		{MethodAllocate, `["a",3,"r",5000,{"key":"k"}]`,
			AllocateParams{Signer: "a", Count: 3, RequestID: "r", HoldMs: 5000, Guard: &Guard{Key: "k", IntervalMs: 10000}}},
		{MethodAllocate, `{"guard":{"keep":true,"intervalMs":600000,"key":"k"},"holdMs":"0x1","requestId":"r","count":"0xFf","signer":"a"}`,
			AllocateParams{Signer: "a", Count: 255, RequestID: "r", HoldMs: 1, Guard: &Guard{Key: "k", IntervalMs: 600000, Keep: true}}},
		{MethodAllocate, `{"signer":"\u0061\n","count":"\u0030x1"}`, AllocateParams{Signer: "a\n", Count: 1}},
		{MethodAllocate, `{"signer":""}`, AllocateParams{Count: 1}},
		{MethodAllocate, `["a",null,null,null,null,true]`, AllocateParams{Signer: "a", Count: 1, RecordFirst: true}},
		{MethodAllocate, `{"signer":"a","recordFirst":null}`, AllocateParams{Signer: "a", Count: 1}},
		{MethodMarkUsed, `["a",1]`, MarkUsedParams{Signer: "a", Nonce: 1, Attempt: 1}},
		{MethodMarkUsed, `["a",1,null,2]`, MarkUsedParams{Signer: "a", Nonce: 1, Attempt: 2}},
		{MethodMarkUsed, `{"signer":"a","nonce":0,"txHash":"0x1"}`, MarkUsedParams{Signer: "a", TxHash: "0x1", Attempt: 1}},
		{MethodMarkUsed, `["a","0x7fffffffffffffff","0x1",2]`, MarkUsedParams{Signer: "a", Nonce: max, TxHash: "0x1", Attempt: 2}},
		{MethodMarkUsed, `["a",9223372036854775807,"0x1",null,{"key":"k","intervalMs":100}]`,
			MarkUsedParams{Signer: "a", Nonce: max, TxHash: "0x1", Attempt: 1, Guard: &Guard{Key: "k", IntervalMs: 100}}},
		{MethodMarkRecyclable, `["a","0x0"]`, MarkRecyclableParams{Signer: "a", Attempt: 1}},
		{MethodMarkRecyclable, `{"signer":"a","nonce":1,"reason":"dropped","attempt":2}`,
			MarkRecyclableParams{Signer: "a", Nonce: 1, Reason: "dropped", Attempt: 2}},
		{MethodMarkRecyclable, `["a",1,null,null,null,true]`, MarkRecyclableParams{Signer: "a", Nonce: 1, Attempt: 1, Unsent: true}},
		{MethodMarkRecyclable, `{"signer":"a","nonce":1,"forwarded":true,"txHash":"0x1","markAny":true}`,
			MarkRecyclableParams{Signer: "a", Nonce: 1, Attempt: 1, Forwarded: true, TxHash: "0x1", MarkAny: true}},
		{MethodMarkSigned, `["a","0x2","0x1"]`, MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Attempt: 1}},
		{MethodMarkSigned, `["a",2,"0x1",3,{"key":"k"}]`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Attempt: 3, Guard: &Guard{Key: "k", IntervalMs: 10000}}},
		{MethodMarkSigned, `{"signer":"a","nonce":2,"txHash":"0x1","forwarded":true,"take":true}`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Forwarded: true, Take: true}},
		{MethodMarkSigned, `{"signer":"a","nonce":2,"txHash":"0x1","forwarded":true,"attempt":0}`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Forwarded: true}},
		{MethodMarkSigned, `{"signer":"a","nonce":2,"txHash":"0x1","forwarded":true,"attempt":4}`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Forwarded: true, Attempt: 4}},
		{MethodMarkRecyclable, `{"signer":"a","nonce":1,"forwarded":true,"keep":true,"txHash":"0x1"}`,
			MarkRecyclableParams{Signer: "a", Nonce: 1, Attempt: 1, Forwarded: true, Keep: true, TxHash: "0x1"}},
		{MethodMarkSigned, `{"signer":"a","nonce":2,"txHash":"0x1","forwarded":true,"over":"0x2"}`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Forwarded: true, Over: "0x2"}},
		{MethodExtend, `["a",1,5000]`, ExtendParams{Signer: "a", Nonce: 1, HoldMs: 5000, Attempt: 1}},
		{MethodExtend, `["a",1,"0x1",2]`, ExtendParams{Signer: "a", Nonce: 1, HoldMs: 1, Attempt: 2}},
		{MethodExtend, `{"signer":"a","nonce":1,"holdMs":1,"principal":"00000000000000ff","markAny":true}`,
			ExtendParams{Signer: "a", Nonce: 1, HoldMs: 1, Attempt: 1, Principal: "00000000000000ff", MarkAny: true}},
		{MethodRepair, `["a"]`, RepairParams{Signer: "a"}},
		{MethodRepair, `["a",null,5000]`, RepairParams{Signer: "a", HoldMs: 5000}},
		{MethodRepair, `["a",null,null,"r"]`, RepairParams{Signer: "a", RequestID: "r"}},
		{MethodMarkSigned, `{"signer":"a","nonce":2,"txHash":"0x1","forwarded":true,"take":true,"maxOpen":3}`,
			MarkSignedParams{Signer: "a", Nonce: 2, TxHash: "0x1", Forwarded: true, Take: true, MaxOpen: 3}},
		{MethodRepair, `["a",0,5000]`, RepairParams{Signer: "a", Nonce: new(int64), HoldMs: 5000}},
		{MethodStatus, `["a"]`, StatusParams{Signer: "a"}},
		{MethodList, `["a"]`, ListParams{Signer: "a", Limit: 100}},
		{MethodList, `{"signer":"a","status":"HELD","from":5,"limit":1000}`, ListParams{Signer: "a", Status: "HELD", From: 5, Limit: 1000}},
		{MethodList, `["a","UNKNOWN"]`, ListParams{Signer: "a", Status: "UNKNOWN", Limit: 100}},
		{MethodSetFloor, `["a",7]`, SetFloorParams{Signer: "a", Floor: 7}},
		{MethodSubscribe, `["events"]`, SubscribeParams{Topic: "events"}},
		{MethodSubscribe, `["events",null]`, SubscribeParams{Topic: "events"}},
		{MethodSubscribe, `["events",{}]`, SubscribeParams{Topic: "events"}},
		{MethodSubscribe, `["events",{"signers":["a","b"]}]`, SubscribeParams{Topic: "events", Signers: []string{"a", "b"}}},
		{MethodSubscribe, `{}`, SubscribeParams{Topic: "events"}},
		{MethodSubscribe, `[{"signers":["a"]}]`, SubscribeParams{Topic: "events", Signers: []string{"a"}}},
		{MethodUnsubscribe, `["0x1"]`, "0x1"},
		{MethodUnsubscribe, `{"id":"0x1"}`, "0x1"},
		{MethodInfo, ``, nil},
		{MethodInfo, `[]`, nil},
		{MethodInfo, `{}`, nil},
		{MethodInfo, `[{}]`, nil},
	}
	for _, test := range tests {
		got, err := decoders[test.method]([]byte(test.params))
		if err != nil {
			t.Errorf("%s %s: %v", test.method, test.params, err)
		} else if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %s: got %+v, want %+v", test.method, test.params, got, test.want)
		}
	}
}

func TestRefusedParamsNameFieldAndRule(t *testing.T) {
	tests := []struct{ method, params, want string }{
		// the form
		{MethodAllocate, ``, "signer: is required"},
		{MethodAllocate, `[]`, "signer: is required"},
		{MethodAllocate, `null`, "params: must be an object or an array"},
		{MethodAllocate, `"a"`, "params: must be an object or an array"},
		{MethodAllocate, `7`, "params: must be an object or an array"},
		{MethodAllocate, `{"signer":"a"`, "params: must be valid JSON"},
		{MethodAllocate, `{"signer":"a"} 1`, "params: must be valid JSON"},
		{MethodAllocate, `["a"`, "params: must be valid JSON"},
		{MethodAllocate, `[`, "params: must be valid JSON"},
		{MethodAllocate, `["a"]["b"]`, "params: must be valid JSON"},
		{MethodAllocate, "[{\"signer\":\"a\"}]\u00a0", "params: must be valid JSON"},
		{MethodAllocate, `[{"signer":"a"}x`, "params: must be valid JSON"},
		{MethodAllocate, "{\"signer\":\"\xff\"}", "params: must be valid JSON"},
		{MethodAllocate, `[{"signer":"a"},{"signer":"b"}]`, "signer: must be a string"},
		{MethodAllocate, `["a",1,"r",5,null,null,null]`, "params: 7 given by position, at most 6 allowed"},
		{MethodMarkUsed, `["a",1,null,1,null,true]`, "params: 6 given by position, at most 5 allowed"},
		{MethodExtend, `["a",1,1,1,null]`, "params: 5 given by position, at most 4 allowed"},
		{MethodRepair, `["a",1,1,null,null]`, "params: 5 given by position, at most 4 allowed"},
		{MethodStatus, `["a","b","c"]`, "params: 3 given by position, at most 1 allowed"},
		{MethodInfo, `[null]`, "params: 1 given by position, at most 0 allowed"},
		{MethodInfo, `{"a":1}`, "a: unknown name"},

		// names
		{MethodAllocate, `{"signer":"a","cuont":1}`, "cuont: unknown name"},
		{MethodAllocate, `{"Signer":"a"}`, "Signer: unknown name"},
		{MethodAllocate, `{"signer":"a","":1}`, ": unknown name"},
		{MethodAllocate, `{"signer":"a","a/b~c":1}`, "a/b~c: unknown name"},
		{MethodAllocate, `{"` + strings.Repeat("é", 40) + `":1}`, strings.Repeat("é", 32) + "…: unknown name"},
		{MethodAllocate, `{"signer":"a","signer":"b"}`, "signer: given twice"},
		{MethodAllocate, `{"signer":"a","s\u0069gner":"b"}`, "signer: given twice"},
		{MethodAllocate, `[{"signer":"a","signer":"b"}]`, "signer: given twice"},
		{MethodAllocate, `{"signer":"a","guard":{"key":"k","key":"k"}}`, "guard.key: given twice"},
		{MethodAllocate, `{"signer":"a","guard":{"kay":"k"}}`, "guard.kay: unknown name"},

		{MethodAllocate, `["a",1,"r",5,{"key":"k","key":"k"}]`, "guard.key: given twice"},
		{MethodSubscribe, `["events",{"signers":["a"],"signers":["b"]}]`, "signers: given twice"},
		{MethodInfo, `{"a":1,"a":2}`, "a: unknown name"},

		// unpaired surrogates
		{MethodAllocate, `{"signer":"cut \ud83d"}`, "signer: " + unpairedSurrogate},
		{MethodAllocate, `[{"signer":"\udc00 cut"}]`, "signer: " + unpairedSurrogate},
		{MethodAllocate, `["\ud83d\ud83d"]`, "signer: " + unpairedSurrogate},
		{MethodAllocate, `["a","\ud83d"]`, "count: " + unpairedSurrogate},
		{MethodAllocate, `["a",1,"r",5,{"key":"\ud83d"}]`, "guard.key: " + unpairedSurrogate},
		{MethodAllocate, `{"signer":"a","\ud83d":1}`, "params: " + unpairedSurrogate},
		{MethodAllocate, `{"signer":"a","guard":{"\ud83d":1}}`, "guard: " + unpairedSurrogate},
		{MethodAllocate, `{"signer":"a","cuont":"\ud83d"}`, "cuont: unknown name"},
		{MethodMarkRecyclable, `["a",1,"cut \ud83d"]`, "reason: " + unpairedSurrogate},
		{MethodSubscribe, `["\ud83d"]`, "topic: must be events"},
		{MethodSubscribe, `["events",{"signers":["a","\ud83d"]}]`, "signers.1: " + unpairedSurrogate},
		{MethodSubscribe, `{"signers":["\ud83d"]}`, "signers.0: " + unpairedSurrogate},
		{MethodUnsubscribe, `["\ud83d"]`, "id: " + unpairedSurrogate},
		{MethodInfo, `["\ud83d"]`, "params: 1 given by position, at most 0 allowed"},

		// strings
		{MethodAllocate, `{"count":1}`, "signer: is required"},
		{MethodAllocate, `{"signer":null}`, "signer: is required"},
		{MethodAllocate, `[null,1]`, "signer: is required"},
		{MethodAllocate, `{"signer":1}`, "signer: must be a string"},
		{MethodAllocate, `{"signer":["a"]}`, "signer: must be a string"},
		{MethodAllocate, `{"signer":"a","requestId":7}`, "requestId: must be a string"},
		{MethodAllocate, `{"signer":"a","requestId":""}`, "requestId: must not be empty"},
		{MethodMarkUsed, `["a",1,""]`, "txHash: must not be empty"},
		{MethodMarkSigned, `["a",1]`, "txHash: is required"},
		{MethodMarkSigned, `["a",1,null,1]`, "txHash: is required"},
		{MethodMarkRecyclable, `{"signer":"a","nonce":1,"txHash":""}`, "txHash: must not be empty"},
		{MethodMarkSigned, `{"signer":"a","nonce":1,"txHash":"0x1","take":true}`, "take: is for transactions that are forwarded"},
		{MethodAllocate, `{"signer":"a","recordFirst":1}`, "recordFirst: must be true or false"},
		{MethodMarkRecyclable, `{"signer":"a","nonce":1,"unsent":"yes"}`, "unsent: must be true or false"},
		{MethodRepair, `[]`, "signer: is required"},
		{MethodRepair, `["a",1,1,""]`, "requestId: must not be empty"},
		{MethodMarkSigned, `{"signer":"a","nonce":1,"txHash":"0x1","forwarded":true,"maxOpen":1}`, "maxOpen: is for nonces that are taken"},
		{MethodMarkUsed, `["a",1,true]`, "txHash: must be a string"},
		{MethodMarkRecyclable, `["a",1,{}]`, "reason: must be a string"},
		{MethodList, `["a","held"]`, "status: must be HELD or RELEASED or CONSUMED or UNKNOWN"},
		{MethodList, `["a",""]`, "status: must be HELD or RELEASED or CONSUMED or UNKNOWN"},
		{MethodUnsubscribe, `[]`, "id: is required"},
		{MethodUnsubscribe, `[7]`, "id: must be a string"},

		// numbers
		{MethodMarkUsed, `{"signer":"a","txHash":"0x1"}`, "nonce: is required"},
		{MethodMarkUsed, `["a",null,"0x1"]`, "nonce: is required"},
		{MethodMarkUsed, `["a",true,"0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a",[],"0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a","7","0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a","","0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a","0X7","0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a","-0x7","0x1"]`, `nonce: must be a number or a "0x" quantity`},
		{MethodMarkUsed, `["a",1.5,"0x1"]`, "nonce: must be a whole number without fraction or exponent"},
		{MethodMarkUsed, `["a",1.0,"0x1"]`, "nonce: must be a whole number without fraction or exponent"},
		{MethodMarkUsed, `["a",1e3,"0x1"]`, "nonce: must be a whole number without fraction or exponent"},
		{MethodMarkUsed, `["a",-1,"0x1"]`, "nonce: must not be negative"},
		{MethodMarkUsed, `["a",-0.5,"0x1"]`, "nonce: must not be negative"},
		{MethodMarkUsed, `["a",9223372036854775808,"0x1"]`, "nonce: must be at most 9223372036854775807"},
		{MethodMarkUsed, `["a",99999999999999999999999999999999999999999,"0x1"]`, "nonce: must be at most 9223372036854775807"},
		{MethodMarkUsed, `["a","0x8000000000000000","0x1"]`, "nonce: must be at most 9223372036854775807"},
		{MethodMarkUsed, `["a","0x","0x1"]`, `nonce: must have a digit after "0x"`},
		{MethodMarkUsed, `["a","0x00","0x1"]`, `nonce: must not have leading zeros after "0x"`},
		{MethodMarkUsed, `["a","0x07","0x1"]`, `nonce: must not have leading zeros after "0x"`},
		{MethodMarkUsed, `["a","0x1g","0x1"]`, `nonce: must have only hexadecimal digits after "0x"`},
		{MethodMarkUsed, `["a","0x1_0","0x1"]`, `nonce: must have only hexadecimal digits after "0x"`},
		{MethodMarkUsed, `["a","0x+1","0x1"]`, `nonce: must have only hexadecimal digits after "0x"`},
		{MethodMarkUsed, `["a","0x1 ","0x1"]`, `nonce: must have only hexadecimal digits after "0x"`},
		{MethodSetFloor, `["a",-1]`, "floor: must not be negative"},
		{MethodSetFloor, `["a"]`, "floor: is required"},
		{MethodMarkUsed, `["a",1,"0x1",0]`, "attempt: must be at least 1"},
		{MethodMarkRecyclable, `["a",1,null,"0x0"]`, "attempt: must be at least 1"},
		{MethodMarkSigned, `["a",1,"0x1",0]`, "attempt: must be at least 1"},
		{MethodExtend, `["a",1,1,0]`, "attempt: must be at least 1"},
		{MethodExtend, `["a",1]`, "holdMs: is required"},
		{MethodExtend, `["a",1,null]`, "holdMs: is required"},
		{MethodExtend, `["a",1,0]`, "holdMs: must be at least 1"},
		{MethodExtend, `["a",null,1]`, "nonce: is required"},
		{MethodRepair, `["a",-1]`, "nonce: must not be negative"},
		{MethodRepair, `["a",1,0]`, "holdMs: must be at least 1"},
		{MethodAllocate, `{"signer":"a","count":0}`, "count: must be at least 1"},
		{MethodAllocate, `{"signer":"a","count":-9223372036854775808}`, "count: must not be negative"},
		{MethodAllocate, `{"signer":"a","holdMs":0}`, "holdMs: must be at least 1"},
		{MethodList, `{"signer":"a","limit":0}`, "limit: must be at least 1"},
		{MethodList, `{"signer":"a","limit":1001}`, "limit: must be at most 1000"},
		{MethodList, `{"signer":"a","from":-1}`, "from: must not be negative"},

		// guard
		{MethodAllocate, `{"signer":"a","guard":"k"}`, "guard: must be an object"},
		{MethodAllocate, `{"signer":"a","guard":{}}`, "guard.key: is required"},
		{MethodAllocate, `{"signer":"a","guard":{"key":""}}`, "guard.key: must not be empty"},
		{MethodAllocate, `{"signer":"a","guard":{"key":"k","intervalMs":99}}`, "guard.intervalMs: must be at least 100"},
		{MethodMarkUsed, `["a",1,"0x1",1,{"key":"k","intervalMs":600001}]`, "guard.intervalMs: must be at most 600000"},
		{MethodMarkRecyclable, `["a",1,"r",1,{"key":"k","keep":1}]`, "guard.keep: must be true or false"},

		// subscriptions
		{MethodSubscribe, ``, "topic: is required"},
		{MethodSubscribe, `[]`, "topic: is required"},
		{MethodSubscribe, `[null]`, "topic: is required"},
		{MethodSubscribe, `["newHeads"]`, "topic: must be events"},
		{MethodSubscribe, `[7]`, "topic: must be a string"},
		{MethodSubscribe, `["events",["a"]]`, "filter: must be an object"},
		{MethodSubscribe, `["events",{"signer":"a"}]`, "signer: unknown name"},
		{MethodSubscribe, `["events",{"signers":"a"}]`, "signers: must be an array of strings"},
		{MethodSubscribe, `["events",{"signers":[]}]`, "signers: must not be empty"},
		{MethodSubscribe, `["events",{"signers":["a",7]}]`, "signers.1: must be a string"},
		{MethodSubscribe, `["events",{"signers":["a",null]}]`, "signers: must be an array of strings"},
		{MethodSubscribe, `["events",{},{}]`, "params: 3 given by position, at most 2 allowed"},
		{MethodSubscribe, `{"topic":"events"}`, "topic: unknown name"},
	}
	for _, test := range tests {
		_, err := decoders[test.method]([]byte(test.params))
		if err == nil {
			t.Errorf("%s %s: accepted, want %q", test.method, test.params, test.want)
			continue
		}
		if err.Code != CodeInvalidParams || err.Data.Reason != "invalid_params" || err.Message != "invalid_params: "+test.want {
			t.Errorf("%s %s:\n got %d %s %q\nwant %q", test.method, test.params, err.Code, err.Data.Reason, err.Message, test.want)
		}
		if want, _, _ := strings.Cut(test.want, ": "); err.Data.Field != want {
			t.Errorf("%s %s: got field %q, want %q", test.method, test.params, err.Data.Field, want)
		}
	}
}
