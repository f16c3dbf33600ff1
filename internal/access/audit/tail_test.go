package audit

import (
	"log/slog"
	"testing"

	"noncegate/test/lab/expect"
)

// The last lines are kept for those who look, a bounded number of them, in their order.
func TestTheLastLinesAreKept(t *testing.T) {
	l, err := New(slog.DiscardHandler, Config{Level: All, Queue: 3 * Kept, LoginsRefused: 1, CallsRefused: 1})
	expect.Must(t, err)
	if lines, oldest := l.Tail(0, 10); lines != nil || oldest != 0 {
		t.Errorf("of none: %v from %d", lines, oldest)
	}
	for n := range int64(Kept + 5) {
		l.Add(Entry{Event: Call, Nonce: n + 1})
	}
	expect.Must(t, l.Stop(t.Context()))
	for _, c := range []struct {
		after       int64
		limit       int
		first, last int64
	}{{0, 10, Kept - 4, Kept + 5}, {0, 5000, 6, Kept + 5}, {Kept + 3, 10, Kept + 4, Kept + 5}} {
		lines, oldest := l.Tail(c.after, c.limit)
		if oldest != 6 || int64(len(lines)) != c.last-c.first+1 {
			t.Fatalf("%+v: %d lines from %d", c, len(lines), oldest)
		}
		for i, line := range lines {
			if line.Seq != c.first+int64(i) || line.Nonce != line.Seq {
				t.Fatalf("%+v: line %d is %+v", c, i, line)
			}
		}
	}
	if lines, _ := l.Tail(Kept+5, 10); len(lines) != 0 {
		t.Errorf("behind the last: %v", lines)
	}
	if lines, oldest := (*Log)(nil).Tail(0, 10); lines != nil || oldest != 0 {
		t.Errorf("of an audit that is off: %v", lines)
	}
}
