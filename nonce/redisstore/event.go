package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"noncegate/nonce"
)

// An event is written as bytes: the version of this form, flags, key, token, version
// before, time in microseconds, cursor, floor, holds, signer; the rows; the request
// ids. Numbers are unsigned varints in their shortest form, texts have their length
// before them. A row is a byte of what it has, nonce, attempt, and, where it says so,
// its holder in eight bytes, its deadline in microseconds after the event, its hash, how
// many hashes that replaced and those, its reason. An event says all there is to say: one
// that is longer, shorter or otherwise is refused, also by programs that do not know of
// something that it has.

const (
	eventForm = 1

	flagBelowFloor = 1

	rowStatus = 3 // the bits of nonce.Status
	rowFresh  = 1 << 2
	rowHash   = 1 << 3
	rowReason = 1 << 4
	rowHolder = 1 << 5
	rowBefore = 1 << 6 // hashes that were replaced
	rowBits   = 1<<7 - 1

	minRowBytes     = 3
	minRequestBytes = 1 + 1 + 16 + 1
)

// ErrEvent is the cause where something in the stream is no event of this program.
var ErrEvent = errors.New("no event in a form that is known here")

// encodeEvent makes the event of a change that is committed at now.
func encodeEvent(now time.Time, c *nonce.Change) string {
	b := make([]byte, 0, 64+len(c.Signer)+24*len(c.Rows)+48*len(c.Requests))
	flags := byte(0)
	if c.BelowFloor {
		flags = flagBelowFloor
	}
	b = append(b, eventForm, flags)
	for _, n := range [...]int64{c.ID, c.Token, c.Version, now.UnixMicro(), c.Next, c.Floor, c.Held} {
		b = number(b, n)
	}
	b = text(b, c.Signer)
	b = number(b, int64(len(c.Rows)))
	for i := range c.Rows {
		b = encodeRow(b, now, &c.Rows[i])
	}
	b = number(b, int64(len(c.Requests)))
	for i := range c.Requests {
		r := &c.Requests[i]
		b = append(text(b, r.ID), r.Hash[:]...)
		b = number(b, int64(len(r.Nonces)))
		for j, n := range r.Nonces {
			b = number(number(b, n), r.Attempts[j])
		}
	}
	return string(b)
}

func encodeRow(b []byte, now time.Time, r *nonce.RowChange) []byte {
	head := byte(r.Status)
	if r.Fresh {
		head |= rowFresh
	}
	if r.TxHash != (nonce.TxHash{}) {
		if head |= rowHash; r.Replaced != "" {
			head |= rowBefore
		}
	}
	if r.Reason != "" {
		head |= rowReason
	}
	if r.Holder != 0 {
		head |= rowHolder
	}
	b = number(number(append(b, head), r.Nonce), r.Attempt)
	if head&rowHolder != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(r.Holder))
	}
	if r.Status == nonce.Held {
		b = number(b, now.Add(r.Hold).UnixMicro()-now.UnixMicro())
	}
	if head&rowHash != 0 {
		b = append(b, r.TxHash[:]...)
	}
	if head&rowBefore != 0 {
		b = append(number(b, int64(r.Replaced.Len())), r.Replaced...)
	}
	if head&rowReason != 0 {
		b = text(b, r.Reason)
	}
	return b
}

func number(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(n)) }

func text(b []byte, s string) []byte { return append(number(b, int64(len(s))), s...) }

// decodeEvent reads an event. Its error wraps ErrEvent.
func decodeEvent(s string) (nonce.FlushEvent, error) {
	r := reader{left: s}
	var e nonce.FlushEvent
	if form := r.byte(); form != eventForm {
		return e, fmt.Errorf("form %d: %w", form, ErrEvent)
	}
	flags := r.byte()
	e.BelowFloor = flags == flagBelowFloor
	r.bad = r.bad || flags > flagBelowFloor
	e.ID, e.Token, e.From = r.number(), r.number(), r.number()
	r.bad = r.bad || e.From == math.MaxInt64
	e.To = e.From + 1
	at := r.number()
	e.At = time.UnixMicro(at)
	e.Next, e.Floor, e.Held = r.number(), r.number(), r.number()
	e.Signer = r.text()
	if n := r.count(minRowBytes); n > 0 {
		e.Rows = make([]nonce.FlushRow, 0, n)
		for range n {
			e.Rows = append(e.Rows, r.row(e.Token, at))
		}
	}
	if n := r.count(minRequestBytes); n > 0 {
		e.Requests = make([]nonce.Remembered, 0, n)
		for range n {
			e.Requests = append(e.Requests, nonce.Remembered{Request: r.request(), At: e.At})
		}
	}
	if r.bad || r.left != "" {
		return nonce.FlushEvent{}, fmt.Errorf("%d bytes, %d of them left over: %w", len(s), len(r.left), ErrEvent)
	}
	return e, nil
}

// reader takes an event apart. Once bad it gives zeros.
type reader struct {
	left string
	bad  bool
}

func (r *reader) fail() { r.bad, r.left = true, "" }

func (r *reader) take(n int64) string {
	if n < 0 || n > int64(len(r.left)) {
		r.fail()
		return ""
	}
	s := r.left[:n]
	r.left = r.left[n:]
	return s
}

func (r *reader) byte() byte {
	if s := r.take(1); s != "" {
		return s[0]
	}
	return 0
}

// number reads one of 63 bits.
func (r *reader) number() int64 {
	var n uint64
	for i := 0; i < len(r.left) && i < 9; i++ {
		c := r.left[i]
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break // not the shortest form
			}
			r.left = r.left[i+1:]
			return int64(n)
		}
	}
	r.fail()
	return 0
}

// count reads how many follow that have at least so many bytes each.
func (r *reader) count(size int) int64 {
	n := r.number()
	if n > int64(len(r.left)/size) {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) text() string { return r.take(r.number()) }

func (r *reader) row(token, at int64) nonce.FlushRow {
	head := r.byte()
	row := nonce.FlushRow{Fresh: head&rowFresh != 0, Status: nonce.Status(head & rowStatus), Token: token}
	row.Nonce, row.Attempt = r.number(), r.number()
	if head&rowHolder != 0 {
		for _, c := range []byte(r.take(8)) {
			row.Holder = row.Holder<<8 | nonce.Principal(c)
		}
		r.bad = r.bad || row.Holder == 0
	}
	if row.Status == nonce.Held {
		after := r.number()
		r.bad = r.bad || after > math.MaxInt64/1000 || after > math.MaxInt64-at // a time.Duration
		row.HeldUntil = time.UnixMicro(at + after)
	}
	if head&rowHash != 0 {
		r.bad = copy(row.TxHash[:], r.take(int64(len(row.TxHash)))) == 0 || row.TxHash == nonce.TxHash{} || r.bad
	}
	if head&rowBefore != 0 {
		n := r.count(len(row.TxHash))
		row.Replaced = nonce.TxHashes(r.take(n * int64(len(row.TxHash))))
		r.bad = r.bad || n == 0 || head&rowHash == 0
	}
	if head&rowReason != 0 {
		row.Reason = r.text()
		r.bad = r.bad || row.Reason == ""
	}
	r.bad = r.bad || row.Status == 0 || head > rowBits
	return row
}

func (r *reader) request() nonce.Request {
	req := nonce.Request{ID: r.text()}
	copy(req.Hash[:], r.take(int64(len(req.Hash))))
	n := r.count(2)
	req.Nonces, req.Attempts = make([]int64, 0, n), make([]int64, 0, n)
	for range n {
		req.Nonces, req.Attempts = append(req.Nonces, r.number()), append(req.Attempts, r.number())
	}
	return req
}
