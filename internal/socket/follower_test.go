package socket

import (
	"slices"
	"strings"
	"testing"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/rawframe"
)

const (
	opContinuation, opText, opPing, opPong = rawframe.Continuation, rawframe.Text, rawframe.Ping, rawframe.Pong

	fin, rsv1 = rawframe.Fin, 0x40
)

var must, frame, framed, text, closing = expect.Must, rawframe.Of, rawframe.Framed, rawframe.TextOf, rawframe.Closing

// However the bytes of a peer are cut, the same is seen in them.
func TestTheFramesOfAPeerAreFollowedHoweverTheyAreCut(t *testing.T) {
	half := frame(fin|opClose, "\x03")
	for _, c := range []struct {
		name  string
		bytes []byte
		want  bool
	}{
		{"a close with half a code", half, true},
		{"a close without one", frame(fin|opClose, ""), false},
		{"a close with a whole one", closing(1000, ""), false},
		{"what looks like a close inside of a message", text(string(half)), false},
		{"a message, and half a code", slices.Concat(text("[]"), half), true},
		{"16 bits of length, and half a code", slices.Concat(text(strings.Repeat(" ", 200)), half), true},
		{"64 bits of length, and half a code", slices.Concat(framed(fin|opText, []byte{127, 0, 0, 0, 0, 0, 0, 0, 3}, "[1]"), half), true},
		{"a ping of one byte, and a close without a code", slices.Concat(frame(fin|opPing, "x"), frame(fin|opClose, "")), false},
		{"half a code behind another close", slices.Concat(closing(1000, ""), half), false},
		{"the longest length, and what seems to follow", slices.Concat(framed(fin|opText, slices.Repeat([]byte{0xff}, 9), ""), half), false},
	} {
		for cut := range c.bytes {
			var f follower
			f.see(c.bytes[:cut])
			f.see(c.bytes[cut:])
			if f.half != c.want {
				t.Errorf("%s, cut at %d: got %v", c.name, cut, f.half)
			}
		}
		var f follower
		for i := range c.bytes {
			f.see(c.bytes[i : i+1])
		}
		if f.half != c.want {
			t.Errorf("%s, in bytes: got %v", c.name, f.half)
		}
	}
}

// What has come whole is known at each byte: a message in several frames with its last one.
func TestWhatHasComeWholeIsCounted(t *testing.T) {
	f, came := new(follower), uint64(0)
	for _, part := range []struct {
		bytes []byte
		last  bool
	}{
		{text("[]"), true},
		{text(strings.Repeat(" ", 200)), true},
		{frame(fin|opPing, ""), true},
		{[]byte{fin | opText, 0}, true}, // without a mask, and nothing in it
		{frame(opText, "[1,"), false},
		{frame(opContinuation, ""), false},
		{frame(fin|opContinuation, "2]"), true},
		{frame(fin|opPong, "x"), true},
	} {
		for i, b := range part.bytes {
			if _, whole := f.whole(); whole != (i == 0 && !f.open) {
				t.Errorf("%x: byte %d: whole is %v", part.bytes, i, whole)
			}
			f.see([]byte{b})
		}
		if part.last {
			came++
		}
		if n, whole := f.whole(); n != came || whole != part.last {
			t.Errorf("%x: %d have come, whole is %v; want %d, %v", part.bytes, n, whole, came, part.last)
		}
	}
	if f.see(closing(1000, "")); f.skip != 0 {
		t.Error("something is to come behind a close frame")
	}
	if _, whole := f.whole(); whole {
		t.Error("a close frame counts as taken")
	}
}
