package wire

import (
	"fmt"
	"strings"
	"testing"
)

func request1(id, rest string) string {
	return `{"jsonrpc":"2.0","id":` + id + rest + `}`
}

// show renders a frame as one line: a call as id method params, an invalid one
// as id !message.
func show(f *Frame, err *Error) string {
	if err != nil {
		return fmt.Sprintf("%d %s", err.Code, err.Message)
	}
	var b strings.Builder
	if f.Batch {
		b.WriteString("batch ")
	}
	for i, c := range f.Calls {
		if i > 0 {
			b.WriteString(" | ")
		}
		id := string(c.ID)
		if c.ID == nil {
			id = "-"
		}
		if c.Err != nil {
			fmt.Fprintf(&b, "%s !%d %s", id, c.Err.Code, c.Err.Message)
			continue
		}
		fmt.Fprintf(&b, "%s %s", id, c.Method)
		if c.Params != nil {
			fmt.Fprintf(&b, " %s", c.Params)
		}
	}
	return b.String()
}

func TestFrames(t *testing.T) {
	const invalid = "!-32600 invalid_request: "
	tests := []struct{ name, frame, want string }{
		{"by name", request1("1", `,"method":"nonce_allocate","params":{"signer":"a"}`), `1 nonce_allocate {"signer":"a"}`},
		{"spaces and any order", " { \"params\" : [ 1 ] , \"method\":\"x\",\"id\" : \"a\\n\" ,\"jsonrpc\":\"2.0\"}\n", `"a\n" x [ 1 ]`},
		{"other members are ignored", request1("1", `,"method":"x","trace":{"a":1}`), "1 x"},
		{"notification", `{"jsonrpc":"2.0","method":"x"}`, "- x"},
		{"id null is answered", request1("null", `,"method":"x"`), "null x"},
		{"negative id", request1("-5", `,"method":"x"`), "-5 x"},
		{"long id", request1("123456789012345678901234567890", `,"method":"x"`), "123456789012345678901234567890 x"},
		{"escaped method", request1("1", `,"method":"nonce\u005fstatus"`), "1 nonce_status"},
		{"null params", request1("1", `,"method":"x","params":null`), "1 x"},

		{"fractional id", request1("1.5", `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"exponent id", request1("1e3", `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"object id", request1("{}", `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"array id", request1("[1]", `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"boolean id", request1("true", `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"no version", `{"id":7,"method":"x"}`, "7 " + invalid + `jsonrpc: must be "2.0"`},
		{"old version", `{"jsonrpc":"1.0","id":7,"method":"x"}`, "7 " + invalid + `jsonrpc: must be "2.0"`},
		{"numeric version", `{"jsonrpc":2.0,"id":7,"method":"x"}`, "7 " + invalid + `jsonrpc: must be "2.0"`},
		{"names are matched by case", `{"jsonrpc":"2.0","ID":7,"Method":"x"}`, "null " + invalid + "method: is required"},
		{"no method", request1("7", ""), "7 " + invalid + "method: is required"},
		{"numeric method", request1("7", `,"method":1`), "7 " + invalid + "method: must be a string"},
		{"null method", request1("7", `,"method":null`), "7 " + invalid + "method: must be a string"},
		{"params of a string", request1("7", `,"method":"x","params":"bar"`), "7 " + invalid + "params: must be an object or an array"},
		{"member twice", request1("7", `,"method":"x","method":"y"`), "7 " + invalid + "method: given twice"},
		{"member twice with an escape", request1("7", `,"method":"x","meth\u006fd":"y"`), "7 " + invalid + "method: given twice"},
		{"two members twice", request1("7", `,"method":"x","params":[],"params":[],"method":"y"`), "7 " + invalid + "params: given twice"},
		{"other member twice", request1("7", `,"method":"x","trace":1,"trace":2`), "7 " + invalid + "trace: given twice"},
		{"member twice behind a param twice", `{"jsonrpc":"2.0","method":"x","params":{"a":1,"a":2},"id":1,"id":2}`, "2 " + invalid + "id: given twice"},
		{"param twice is for the method", request1("7", `,"method":"x","params":[{"a":1,"a":2}]`), `7 x [{"a":1,"a":2}]`},
		{"param twice of a notification", `{"jsonrpc":"2.0","method":"x","params":{"a":1,"a":2}}`, `- x {"a":1,"a":2}`},
		{"name twice inside of another member", request1("7", `,"method":"x","trace":{"a":1,"a":2}`), "7 x"},
		{"member twice, odd id", request1("[7]", `,"method":"x","method":"y"`), "null " + invalid + "method: given twice"},
		{"number", "5", "null " + invalid + "a request must be an object"},
		{"null", " null", "null " + invalid + "a request must be an object"},
		{"string", `"x"`, "null " + invalid + "a request must be an object"},

		{"empty", "", "-32700 parse_error: the frame is not valid JSON at byte 0"},
		{"half", `{"jsonrpc"`, "-32700 parse_error: the frame is not valid JSON at byte 10"},
		{"trailing", `{"a":1} x`, "-32700 parse_error: the frame is not valid JSON at byte 8"},
		{"two values", `{"a":1}{}`, "-32700 parse_error: the frame is not valid JSON at byte 7"},
		{"number and more", `5 6`, "-32700 parse_error: the frame is not valid JSON at byte 2"},
		{"twice and broken", `{"a":1,"a":2,}`, "-32700 parse_error: the frame is not valid JSON at byte 12"},

		{"unpaired surrogate in a param", request1("7", `,"method":"x","params":{"a":"cut \ud83d"}`), `7 x {"a":"cut \ud83d"}`},
		{"in a name of params", request1("7", `,"method":"x","params":{"\ud83d":1}`), `7 x {"\ud83d":1}`},
		{"in params of a notification", `{"jsonrpc":"2.0","method":"x","params":["\ud83d"]}`, `- x ["\ud83d"]`},
		{"in the id", request1(`"\ud800"`, `,"method":"x"`), "null " + invalid + "id: " + unpairedSurrogate},
		{"in the id, twice", `{"jsonrpc":"2.0","method":"x","id":1,"id":"\ud800"}`, "null " + invalid + "id: given twice"},
		{"in an object for an id", request1(`{"a":"\ud800"}`, `,"method":"x"`), "null " + invalid + "id: must be a string, a whole number or null"},
		{"in the method", request1("7", `,"method":"x\udc00"`), "7 " + invalid + "method: " + unpairedSurrogate},
		{"in the version", `{"jsonrpc":"2.0\udc00","id":7,"method":"x"}`, "7 " + invalid + `jsonrpc: must be "2.0"`},
		{"in params that are a string", request1("7", `,"method":"x","params":"\ud83d"`), "7 " + invalid + "params: must be an object or an array"},
		{"in another member", request1("7", `,"method":"x","trace":"\ud83d\ud83d"`), "7 x"},
		{"in the name of another member", request1("7", `,"method":"x","\ud83d":1`), "7 x"},
		{"in a string that is no request", `"\ud83d"`, "null " + invalid + "a request must be an object"},
		{"in one of a batch", "[" + request1("1", `,"method":"x"`) + "," + request1("2", `,"method":"y","params":["\ud83d"]`) + `,{"\ud83d":1},"\ud83d",` + request1("3", `,"method":"z"`) + "]",
			`batch 1 x | 2 y ["\ud83d"] | null ` + invalid + `jsonrpc: must be "2.0" | null ` + invalid + "a request must be an object | 3 z"},
		{"a pair", request1("7", `,"method":"x","params":["\ud83d\ude00"]`), `7 x ["\ud83d\ude00"]`},
		{"half an escape", request1("7", `,"method":"x","params":["\ud8"]`), "-32700 parse_error: the frame is not valid JSON at byte 48"},
		{"unpaired, and invalid UTF-8", request1("7", `,"method":"x","params":["\ud83d`+"\xff\"]"), "-32700 parse_error: the frame is not valid UTF-8"},
		{"invalid UTF-8 in a batch", "[" + request1("1", `,"method":"x"`) + ",\"\xff\"]", "-32700 parse_error: the frame is not valid UTF-8"},
		{"invalid UTF-8 in a request of a batch", "[" + request1("1", `,"method":"x"`) + `,{"jsonrpc":"2.0","id":2,"method":"x","params":["` + "\xff\"]}]", "-32700 parse_error: the frame is not valid UTF-8"},

		{"invalid UTF-8", request1("\"\xff\"", `,"method":"x"`), "-32700 parse_error: the frame is not valid UTF-8"},

		{"batch", "[" + request1("1", `,"method":"x"`) + ` , {"jsonrpc":"2.0","method":"y","params":[]}]`, "batch 1 x | - y []"},
		{"batch of one", "[" + request1("1", `,"method":"x"`) + "]", "batch 1 x"},
		{"batch with strangers", `[1,null,"x",[],` + request1("1", `,"method":"x"`) + `,{"foo":"boo"},{"id":3,"id":4}]`,
			"batch " + strings.Repeat("null "+invalid+"a request must be an object | ", 4) + `1 x | null ` + invalid +
				`jsonrpc: must be "2.0" | 4 ` + invalid + "id: given twice"},
		{"empty batch", " [ ] ", "-32600 invalid_request: the batch is empty"},
		{"batch too long", "[1,2,3,4,5,6,7,8,9]", "-32600 invalid_request: the batch has more than 8 requests"},
		{"broken batch", "[" + request1("1", `,"method":"x"`) + `,{"jsonrpc":]`, "-32700 parse_error: the frame is not valid JSON at byte 50"},
		{"batch not closed", "[1", "-32700 parse_error: the frame is not valid JSON at byte 2"},
		{"batch with a comma too many", "[1,]", "-32700 parse_error: the frame is not valid JSON at byte 2"},
		{"batch and more", "[1] [2]", "-32700 parse_error: the frame is not valid JSON at byte 4"},
		{"batch and garbage", "[1]x", "-32700 parse_error: the frame is not valid JSON at byte 3"},
	}
	reused := Frame{MaxBatch: 8}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			fresh := Frame{MaxBatch: 8}
			for _, f := range []*Frame{&fresh, &reused} {
				data := []byte(test.frame)
				err := f.Decode(data)
				clear(data) // nothing of the frame may be referred to
				if got := show(f, err); got != test.want {
					t.Errorf("%s\n got %s\nwant %s", test.frame, got, test.want)
				}
				if err != nil && len(f.Calls) != 0 {
					t.Errorf("%d calls beside an error", len(f.Calls))
				}
			}
		})
	}
}

func TestAFrameKeepsNoLargeMemory(t *testing.T) {
	var f Frame
	long := strings.Repeat("a", 100_000)
	big := request1(`"`+long+`"`, `,"method":"x","params":["`+long+`"]`)
	for _, data := range []string{big, "[" + strings.Repeat(big+",", 3) + big + "]", "[" + strings.Repeat("1,", 10_000) + "1]"} {
		if err := f.Decode([]byte(data)); err != nil {
			t.Fatal(err)
		}
		for range keptCalls { // each decoding clears the slots it uses
			if err := f.Decode([]byte("[" + strings.Repeat("1,", keptCalls-1) + "1]")); err != nil {
				t.Fatal(err)
			}
		}
		kept := 0
		for _, r := range f.requests[:cap(f.requests)] {
			kept += cap(r.ID) + cap(r.Params) + cap(r.Method) + cap(r.Version)
		}
		if kept > keptCalls*4*keptBytes || len(f.requests) > keptCalls || cap(f.Calls) > 2*keptCalls {
			t.Errorf("%d bytes, %d slots, %d calls kept", kept, cap(f.requests), cap(f.Calls))
		}
	}
}

// What is nested too deeply is valid JSON, and who sent it is to be told the rule.
func TestNestingHasALimit(t *testing.T) {
	nest := func(depth int) string { return strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) }
	var f Frame
	for _, test := range []struct{ name, before, after string }{
		{"a batch", "", ""},
		{"params", `{"jsonrpc":"2.0","id":1,"method":"x\"[{","params":`, "}"},
		{"another member", `{"jsonrpc":"2.0","id":1,"method":"x","trace":`, "}"},
		{"params in a batch", `[{"jsonrpc":"2.0","id":1,"method":"x","params":`, "}]"},
	} {
		around := nesting([]byte(test.before))
		if err := f.Decode([]byte(test.before + nest(10_000-around) + test.after)); err != nil {
			t.Errorf("%s, 10000 deep: %v", test.name, err)
		}
		err := f.Decode([]byte(test.before + nest(10_001-around) + test.after))
		want := fmt.Sprintf("parse_error: arrays and objects must be nested at most 10000 deep; the frame is deeper at byte %d", len(test.before)+10_000-around)
		if err == nil || err.Code != CodeParseError || err.Message != want {
			t.Errorf("%s, 10001 deep:\n got %v\nwant %s", test.name, err, want)
		}
	}
	if err := f.Decode([]byte(strings.Repeat("[", 9_000))); err == nil || err.Message != "parse_error: the frame is not valid JSON at byte 9000" {
		t.Errorf("9000 that are not closed: %v", err)
	}
}

func TestHostileFramesAreRefused(t *testing.T) {
	const size = 1 << 20
	deep := strings.Repeat("[", size)
	var wide strings.Builder
	wide.WriteString(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":0`)
	for i := 0; wide.Len() < size; i++ {
		fmt.Fprintf(&wide, `,"n%d":1`, i)
	}
	wide.WriteString("}}")
	f := Frame{MaxBatch: 100}
	for _, data := range []string{deep, `{"a":` + deep, request1("1", `,"method":"x","params":`+deep)} {
		if err := f.Decode([]byte(data)); err == nil || err.Code != CodeParseError {
			t.Errorf("%.20s…: %v", data, err)
		}
	}
	if err := f.Decode([]byte(wide.String())); err != nil || f.Calls[0].Err != nil {
		t.Fatalf("%v", err)
	}
	if _, err := DecodeAllocate(f.Calls[0].Params); err == nil || err.Data.Field != "a" {
		t.Errorf("got %v", err)
	}
	if _, err := DecodeAllocate([]byte(deep)); err == nil || err.Message != "invalid_params: params: must be valid JSON" {
		t.Errorf("got %v", err)
	}
}
