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
			if got := show(f, err); got != want {
				t.Errorf("%s\n got %s\nwant %s", frame, got, want)
			}
			if err != nil && len(f.Calls) != 0 {
				t.Errorf("%s: %d calls beside an error", frame, len(f.Calls))
			}
		}
	}
}

func TestAFrameKeepsTheMemoryOfFewCalls(t *testing.T) {
	var f Frame
	for _, n := range []int{10_000, 1} {
		if err := f.Decode([]byte("[" + strings.Repeat("1,", n-1) + "1]")); err != nil {
			t.Fatal(err)
		}
	}
	if cap(f.Calls) > keptCalls {
		t.Errorf("%d calls kept", cap(f.Calls))
	}
}

// What is nested too deeply is valid JSON, and who sent it is to be told the rule.
func TestNestingHasALimit(t *testing.T) {
	nest := func(depth int) string { return strings.Repeat(`[`, depth) + strings.Repeat(`]`, depth) }
	var f Frame
	for _, test := range []struct {
		name, before, after string
		around              int
	}{
		{"a batch", "", "", 0},
		{"params", `{"jsonrpc":"2.0","id":1,"method":"x\"[{","params":`, "}", 1},
		{"another member", `{"jsonrpc":"2.0","id":1,"method":"x","trace":`, "}", 1},
		{"params in a batch", `[{"jsonrpc":"2.0","id":1,"method":"x","params":`, "}]", 2},
	} {
		if err := f.Decode([]byte(test.before + nest(10_000-test.around) + test.after)); err != nil {
			t.Errorf("%s, 10000 deep: %v", test.name, err)
		}
		err := f.Decode([]byte(test.before + nest(10_001-test.around) + test.after))
		want := fmt.Sprintf("parse_error: arrays and objects must be nested at most 10000 deep; the frame is deeper at byte %d",
			len(test.before)+10_000-test.around)
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
}
