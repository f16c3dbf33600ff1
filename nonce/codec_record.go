package nonce

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The stored form of a LogRecord: a byte with the version of the form, its fields as in codec.go, and
// then a CRC-32C of all before it, 4 bytes, big endian. What was put is in the form of a row
// (AppendLive).
const (
	recordVersion = 2
	maxRecordText = 1 << 20 // of a name, a reason or a request id, which are far shorter
)

// AppendRecord appends the stored form of a record.
func AppendRecord(b []byte, r *LogRecord) []byte {
	from := len(b)
	f := form{b: append(b, recordVersion)}
	f.record(r)
	return binary.BigEndian.AppendUint32(f.b, crc32.Checksum(f.b[from:], castagnoli))
}

// ReadRecord reads what AppendRecord wrote.
func ReadRecord(b []byte) (*LogRecord, error) {
	body := len(b) - crc32.Size
	switch {
	case body < 1 || binary.BigEndian.Uint32(b[body:]) != crc32.Checksum(b[:body], castagnoli):
		return nil, fmt.Errorf("%w: the checksum of a record is wrong", ErrCodec)
	case b[0] != recordVersion:
		return nil, fmt.Errorf("%w: the form of a record is of version %d, and this gateway knows %d", ErrCodec, b[0], recordVersion)
	}
	r, f := new(LogRecord), form{b: b[1:body], reading: true}
	if f.record(r); f.err == nil && len(f.b) > 0 {
		f.fail("%d bytes behind a record", len(f.b))
	}
	if f.err != nil {
		return nil, f.err
	}
	return r, nil
}

func (f *form) record(r *LogRecord) {
	number(f, &r.Shard)
	number(f, &r.Token)
	number(f, &r.Seq)
	list(f, &r.Changes, (*form).change)
}

func (f *form) change(c *LogChange) {
	f.text(&c.Name, maxRecordText)
	number(f, &c.Version)
	number(f, &c.Next)
	number(f, &c.Floor)
	f.live(&c.Put, c.Next)
	list(f, &c.Gone, number[int64])
	list(f, &c.History, (*form).past)
	list(f, &c.Requests, (*form).remembered)
}

// live are entries of a signer, all below next.
func (f *form) live(all *[]Entry, next int64) {
	var raw []byte
	if !f.reading {
		raw = AppendLive(nil, *all)
	}
	n := uint64(len(raw))
	if f.uint(&n); !f.reading {
		f.b = append(f.b, raw...)
		return
	}
	if n > uint64(len(f.b)) {
		f.fail("entries of %d bytes in %d", n, len(f.b))
		return
	}
	var err error
	if *all, err = ParseLive(f.take(int(n)), next); err != nil {
		f.fail("entries: %v", err)
	}
}

func (f *form) past(p *Past) {
	number(f, &p.Nonce)
	number(f, &p.Attempt)
	f.fixed((*uint64)(&p.Holder))
	f.flags(&p.Again)
	f.hash(&p.TxHash)
	f.hashes(&p.Replaced)
	f.text(&p.Reason, maxRecordText)
}

func (f *form) remembered(q *Remembered) {
	f.text(&q.ID, maxRecordText)
	if !f.reading {
		f.b = append(f.b, q.Hash[:]...)
	} else {
		copy(q.Hash[:], f.take(len(q.Hash)))
	}
	list(f, &q.Nonces, number[int64])
	list(f, &q.Attempts, number[int64])
	if f.reading && len(q.Nonces) != len(q.Attempts) {
		f.fail("%d nonces with %d attempts", len(q.Nonces), len(q.Attempts))
	}
}
