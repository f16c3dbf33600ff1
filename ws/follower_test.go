package ws

import (
	"slices"
	"strings"
	"testing"
)

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
