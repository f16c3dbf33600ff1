package redisstore

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"noncegate/nonce"
)

var eventAt = time.UnixMicro(1_900_000_000_123_456)

// fullChange has one of everything.
func fullChange() nonce.Change {
	return nonce.Change{
		ID: 7, Signer: "eip155:1:0xab", Token: 1 << 40, Version: 3<<32 + 17, Next: math.MaxInt64, Floor: 12, Held: 2, BelowFloor: true,
		Rows: []nonce.RowChange{
			{Nonce: 0, Fresh: true, Status: nonce.Held, Attempt: 3 << 20, Hold: 90 * time.Second, Holder: 1<<63 | 5},
			{Nonce: 1 << 60, FromStatus: nonce.Held, Status: nonce.Consumed, Attempt: 1, Holder: 7, TxHash: nonce.TxHash{1, 2, 3}},
			{Nonce: 5, Status: nonce.Consumed, Attempt: 2, TxHash: nonce.TxHash{4}, Reason: nonce.ReasonBelowFloor},
			{Nonce: 6, Status: nonce.Released, Attempt: 2, Reason: "nonce too low, Ü"},
			{Nonce: 7, Status: nonce.Released, Attempt: 2},
			{Nonce: 8, Status: nonce.Held, Attempt: 2, Hold: time.Second, TxHash: nonce.TxHash{1}, Replaced: hashes(7), Reason: nonce.ReasonForwarded},
			{Nonce: 9, Status: nonce.Held, Attempt: 2, Hold: time.Second, Reason: nonce.ReasonUnknown},
			{Nonce: 10, FromStatus: nonce.Consumed, FromAttempt: 2, Status: nonce.Held, Attempt: 3, Hold: time.Second, Reason: nonce.ReasonRepair},
			{Nonce: 11, Status: nonce.Released, Attempt: 2, TxHash: nonce.TxHash{1}, Replaced: hashes(1)},
		},
		Requests: []nonce.Request{
			{ID: "one", Hash: [16]byte{1}, Nonces: []int64{0}, Attempts: []int64{3 << 20}},
			{ID: "none", Hash: [16]byte{2}, Nonces: []int64{}, Attempts: []int64{}},
		},
	}
}

func TestAnEventSaysWhatWasCommitted(t *testing.T) {
	c := fullChange()
	got, err := decodeEvent(encodeEvent(eventAt, &c))
	if err != nil {
		t.Fatal(err)
	}
	want := nonce.FlushEvent{
		ID: c.ID, Signer: c.Signer, Token: c.Token, From: c.Version, To: c.Version + 1, At: eventAt,
		Next: c.Next, Floor: c.Floor, Held: c.Held, BelowFloor: true,
	}
	for _, r := range c.Rows {
		row := nonce.FlushRow{Nonce: r.Nonce, Fresh: r.Fresh, Status: r.Status, Attempt: r.Attempt, Token: c.Token, Holder: r.Holder, TxHash: r.TxHash, Replaced: r.Replaced, Reason: r.Reason}
		if r.Status == nonce.Held {
			row.HeldUntil = eventAt.Add(r.Hold)
		}
		want.Rows = append(want.Rows, row)
	}
	for _, r := range c.Requests {
		want.Requests = append(want.Requests, nonce.Remembered{Request: r, At: eventAt})
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it is\n%+v\nwant\n%+v", got, want)
	}
}

// TestAnEventOfAnOlderVersionIsRead: one that was in a stream when the program was
// replaced by this one.
func TestAnEventOfAnOlderVersionIsRead(t *testing.T) {
	hash := nonce.TxHash{1, 2, 3}
	text := "\x01\x00" + "\x07\x05\x0a\x80\x01\x03\x00\x01" + "\x02ab" +
		"\x02" + "\x25\x02\x01\x80\x00\x00\x00\x00\x00\x00\x05\x0c" + "\x1b\x00\x01" + string(hash[:]) + "\x03why" + "\x00"
	at := time.UnixMicro(128)
	want := nonce.FlushEvent{ID: 7, Signer: "ab", Token: 5, From: 10, To: 11, At: at, Next: 3, Held: 1, Rows: []nonce.FlushRow{
		{Nonce: 2, Fresh: true, Status: nonce.Held, Attempt: 1, Token: 5, Holder: 1<<63 | 5, HeldUntil: at.Add(12 * time.Microsecond)},
		{Nonce: 0, Status: nonce.Consumed, Attempt: 1, Token: 5, TxHash: hash, Reason: "why"},
	}}
	if got, err := decodeEvent(text); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it is\n%+v, %v\nwant\n%+v", got, err, want)
	}
}

func TestEveryBrokenEventIsRefused(t *testing.T) {
	c := fullChange()
	whole := encodeEvent(eventAt, &c)
	for n := range whole {
		if e, err := decodeEvent(whole[:n]); !errors.Is(err, ErrEvent) {
			t.Errorf("%d of %d bytes are taken for %+v, %v", n, len(whole), e, err)
		}
	}
	for name, s := range map[string]string{
		"one more byte":     whole + "\x00",
		"another form":      "\x02" + whole[1:],
		"unknown flags":     "\x01\x02" + whole[2:],
		"a row of nobody":   strings.Replace(whole, "\x80\x00\x00\x00\x00\x00\x00\x05", "\x00\x00\x00\x00\x00\x00\x00\x00", 1),
		"a longer number":   strings.Replace(whole, "\x01\x01\x07", "\x01\x01\x87\x00", 1),
		"nothing replaced":  strings.Replace(whole, "\x07"+string(hashes(7)), "\x00", 1),
		"one hash less":     strings.Replace(whole, "\x07"+string(hashes(7)), "\x07"+string(hashes(6)), 1),
		"a number too long": "\x01\x00" + strings.Repeat("\xff", 9) + "\x01" + whole[3:],
	} {
		if e, err := decodeEvent(s); !errors.Is(err, ErrEvent) {
			t.Errorf("%s is taken for %+v, %v", name, e, err)
		}
	}
}

// FuzzDecodeEvent: whatever is taken for an event is exactly what would be written
// for it.
func FuzzDecodeEvent(f *testing.F) {
	c := fullChange()
	f.Add(encodeEvent(eventAt, &c))
	f.Add(encodeEvent(eventAt, &nonce.Change{}))
	f.Fuzz(func(t *testing.T, s string) {
		e, err := decodeEvent(s)
		if err != nil {
			return
		}
		c := nonce.Change{
			ID: e.ID, Signer: e.Signer, Token: e.Token, Version: e.From, Next: e.Next, Floor: e.Floor, Held: e.Held, BelowFloor: e.BelowFloor,
		}
		for _, r := range e.Rows {
			change := nonce.RowChange{Nonce: r.Nonce, Fresh: r.Fresh, Status: r.Status, Attempt: r.Attempt, Holder: r.Holder, TxHash: r.TxHash, Replaced: r.Replaced, Reason: r.Reason}
			if r.Status == nonce.Held {
				change.Hold = time.Duration(r.HeldUntil.UnixMicro()-e.At.UnixMicro()) * time.Microsecond
			}
			c.Rows = append(c.Rows, change)
		}
		for _, r := range e.Requests {
			c.Requests = append(c.Requests, r.Request)
		}
		if again := encodeEvent(e.At, &c); again != s {
			t.Errorf("%q is read as %+v, which is written %q", s, e, again)
		}
	})
}
