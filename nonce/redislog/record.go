package redislog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"noncegate/nonce"
)

// The stored form of a record: a byte with the version of the form, 1, then shard, token,
// number and how many signers, as uvarints, then the changes of each, then a CRC-32C of all
// before it, 4 bytes, big endian. Texts and bytes have their length before them, lists their
// count; what was put is in the form of a row (nonce.AppendLive).
const recordVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errRecord = errors.New("the record cannot be read")

// appendRecord appends the stored form of a record.
func appendRecord(b []byte, r *nonce.LogRecord) []byte {
	from := len(b)
	b = append(b, recordVersion)
	b = number(b, int64(r.Shard))
	b = number(b, r.Token)
	b = number(b, r.Seq)
	b = number(b, int64(len(r.Changes)))
	for i := range r.Changes {
		b = appendChange(b, &r.Changes[i])
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

func number(b []byte, n int64) []byte { return binary.AppendUvarint(b, uint64(n)) } // #nosec G115 -- none is below 0

func text[T string | []byte](b []byte, s T) []byte { return append(number(b, int64(len(s))), s...) }

func appendChange(b []byte, c *nonce.LogChange) []byte {
	b = text(b, c.Name)
	b = number(number(number(b, c.Version), c.Next), c.Floor)
	put := nonce.AppendLive(nil, c.Put)
	b = text(b, put)
	b = number(b, int64(len(c.Gone)))
	for _, n := range c.Gone {
		b = number(b, n)
	}
	b = number(b, int64(len(c.History)))
	for i := range c.History {
		p := &c.History[i]
		b = number(number(b, p.Nonce), p.Attempt)
		b = binary.BigEndian.AppendUint64(b, uint64(p.Holder))
		again := int64(0)
		if p.Again {
			again = 1
		}
		b = number(b, again)
		b = text(b, nonce.JoinHashes(p.TxHash, p.Replaced))
		b = text(b, p.Reason)
	}
	b = number(b, int64(len(c.Requests)))
	for i := range c.Requests {
		q := &c.Requests[i]
		b = append(text(b, q.ID), q.Hash[:]...)
		b = number(b, int64(len(q.Nonces)))
		for i, n := range q.Nonces {
			b = number(number(b, n), q.Attempts[i])
		}
	}
	return b
}

// parseRecord reads what appendRecord wrote.
func parseRecord(b []byte) (*nonce.LogRecord, error) {
	body := len(b) - crc32.Size
	switch {
	case body < 1 || binary.BigEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], castagnoli):
		return nil, fmt.Errorf("%w: its checksum is wrong", errRecord)
	case b[0] != recordVersion:
		return nil, fmt.Errorf("%w: its form is of version %d, and this gateway knows %d", errRecord, b[0], recordVersion)
	}
	r := reader{left: b[1:body]}
	out := &nonce.LogRecord{Shard: int(r.number()), Token: r.number(), Seq: r.number()}
	out.Changes = list(&r, (*reader).change)
	if r.bad || len(r.left) > 0 {
		return nil, fmt.Errorf("%w: it is not what a gateway writes", errRecord)
	}
	return out, nil
}

// reader reads one thing after the other. Once it is bad, all it reads is zero.
type reader struct {
	left []byte
	bad  bool
}

func (r *reader) number() int64 {
	v, n := binary.Uvarint(r.left)
	if n <= 0 || v > math.MaxInt64 {
		r.bad, r.left = true, nil
		return 0
	}
	r.left = r.left[n:]
	return int64(v)
}

func (r *reader) take(n int64) []byte {
	if n > int64(len(r.left)) {
		r.bad, r.left = true, nil
		return nil
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) text() []byte { return r.take(r.number()) }

// list reads a list, each element of which takes a byte at least.
func list[T any](r *reader, each func(*reader) T) []T {
	n := r.number()
	if n > int64(len(r.left)) {
		r.bad, r.left = true, nil
	}
	var out []T
	for ; n > 0 && !r.bad; n-- {
		out = append(out, each(r))
	}
	return out
}

func (r *reader) change() (c nonce.LogChange) {
	c.Name = string(r.text())
	c.Version, c.Next, c.Floor = r.number(), r.number(), r.number()
	var err error
	if c.Put, err = nonce.ParseLive(r.text(), c.Next); err != nil {
		r.bad = true
	}
	c.Gone = list(r, (*reader).number)
	c.History = list(r, (*reader).past)
	c.Requests = list(r, (*reader).request)
	return c
}

func (r *reader) past() (p nonce.Past) {
	p.Nonce, p.Attempt = r.number(), r.number()
	if b := r.take(8); b != nil {
		p.Holder = nonce.Principal(binary.BigEndian.Uint64(b))
	}
	p.Again = r.number() == 1
	hashes := r.text()
	if len(hashes)%len(p.TxHash) != 0 || len(hashes) > nonce.MaxHashes*len(p.TxHash) {
		r.bad = true
		return p
	}
	p.TxHash, p.Replaced = nonce.SplitHashes(append([]byte(nil), hashes...))
	p.Reason = string(r.text())
	return p
}

func (r *reader) request() (q nonce.Remembered) {
	q.ID = string(r.text())
	copy(q.Hash[:], r.take(int64(len(q.Hash))))
	pairs := list(r, func(r *reader) [2]int64 { return [2]int64{r.number(), r.number()} })
	for _, p := range pairs {
		q.Nonces, q.Attempts = append(q.Nonces, p[0]), append(q.Attempts, p[1])
	}
	return q
}
