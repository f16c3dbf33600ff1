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
	reused := Frame{MaxBatch: 8}
	for _, c := range pairs(t, "frames.txt", 68) {
		frame, want := strings.TrimPrefix(c[0], "> "), strings.TrimPrefix(c[1], "< ")
		fresh := Frame{MaxBatch: 8}
		for _, f := range []*Frame{&fresh, &reused} {
			data := []byte(frame)
			err := f.Decode(data)
			clear(data) // nothing of the frame may be referred to
			if got := show(f, err); got != want {
				t.Errorf("%s\n got %s\nwant %s", frame, got, want)
			}
			if err != nil && len(f.Calls) != 0 {
				t.Errorf("%s: %d calls beside an error", frame, len(f.Calls))
			}
		}
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
	deep := strings.Repeat("[", 1<<20)
	for _, data := range []string{deep, `{"a":` + deep, request1("1", `,"method":"x","params":`+deep)} {
		if err := f.Decode([]byte(data)); err == nil || err.Code != CodeParseError {
			t.Errorf("%.20s…: %v", data, err)
		}
	}
	if _, err := DecodeAllocate([]byte(deep)); err == nil || err.Message != "invalid_params: params: must be valid JSON" {
		t.Errorf("got %v", err)
	}
}
