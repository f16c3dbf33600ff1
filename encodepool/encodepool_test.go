package encodepool

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

// Ants starts a default pool when it is imported; what runs before the tests is
// not ours.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

func TestWrongSizesNameThePool(t *testing.T) {
	if _, err := New(Config{Workers: 1}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "encode pool") {
		t.Errorf("got %v", err)
	}
}

// header is what a reader sees of a frame.
type header struct {
	first   byte
	payload []byte
	size    int // of header and payload
	minimal bool
}

// parse reads the first frame of b as RFC 6455 describes it.
func parse(t testing.TB, b []byte) header {
	t.Helper()
	if len(b) < 2 || b[1]&0x80 != 0 {
		t.Fatalf("short or masked frame % x", b[:min(len(b), 14)])
	}
	n, at, minimal := uint64(b[1]), 2, true
	switch n {
	case 126:
		n, at = uint64(binary.BigEndian.Uint16(b[2:])), 4
		minimal = n > 125
	case 127:
		n, at = binary.BigEndian.Uint64(b[2:]), 10
		minimal = n > 0xFFFF
	}
	return header{b[0], b[at : at+int(n)], at + int(n), minimal}
}

func checkText(t testing.TB, prefix, payload []byte) {
	dst := bytes.Clone(prefix)
	dst = EndText(append(BeginText(dst), payload...), len(prefix))
	if !bytes.HasPrefix(dst, prefix) {
		t.Fatal("what stood before the frame was changed")
	}
	f := parse(t, dst[len(prefix):])
	if f.first != 0x81 || !f.minimal || !bytes.Equal(f.payload, payload) || f.size != len(dst)-len(prefix) {
		t.Fatalf("frame of %d bytes reads as %#x, %d bytes, minimal %v", len(payload), f.first, len(f.payload), f.minimal)
	}
}

func TestTextFramesOfEveryHeaderSize(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 200000} {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(i * 7)
		}
		checkText(t, nil, payload)
		checkText(t, []byte("an earlier frame"), payload)
	}
}

func FuzzTextFrame(f *testing.F) {
	f.Add([]byte("before"), []byte("{}"), uint32(1))
	f.Add([]byte{}, []byte("x"), uint32(65536))
	f.Fuzz(func(t *testing.T, prefix, payload []byte, repeat uint32) {
		checkText(t, prefix, bytes.Repeat(payload, int(repeat%(1<<17))/(len(payload)+1)))
	})
}

func TestControlFramesAreCutToTheirBound(t *testing.T) {
	f := parse(t, AppendControl(nil, OpPong, bytes.Repeat([]byte("p"), 200)))
	if f.first != 0x8A || len(f.payload) != maxControlPayload {
		t.Errorf("pong reads as %#x with %d bytes", f.first, len(f.payload))
	}
}

func TestCloseReasonIsCutBetweenCharacters(t *testing.T) {
	for _, reason := range []string{"", "slow_consumer", strings.Repeat("a", 123), strings.Repeat("a", 124), strings.Repeat("ü", 80), "a" + strings.Repeat("世", 60)} {
		f := parse(t, AppendClose(nil, 4001, reason))
		if f.first != 0x88 || binary.BigEndian.Uint16(f.payload) != 4001 {
			t.Fatalf("close frame reads as % x", f.payload)
		}
		got := string(f.payload[2:])
		if !strings.HasPrefix(reason, got) || !utf8.ValidString(got) || len(got) > 123 || (len(got) < len(reason) && len(got) < 120) {
			t.Errorf("%q was cut to %q", reason, got)
		}
	}
}
