package ws

import (
	"bytes"
	"iter"
	"slices"
	"sync/atomic"

	"noncegate/nonce"
	"noncegate/writer"
)

// batch is the answer to a JSON-RPC array: one frame, queued when the last
// element is done. Elements of different signers run concurrently.
type batch struct {
	conn     *conn
	requests []*request   // in the order of the array, notifications too
	answers  int          // how many of them are answered
	took     reservation  // the room for the frame
	grown    atomic.Int64 // bytes reserved beyond that, for answers of a Room
	open     atomic.Int32
}

var _ writer.Written = (*batch)(nil)

func newBatch(c *conn, requests []*request) *batch {
	b := &batch{conn: c, requests: append([]*request(nil), requests...)}
	b.open.Store(int32(len(requests)))
	for _, r := range b.requests {
		r.batch = b
		if len(r.id) > 0 {
			b.answers++
		}
	}
	return b
}

func (b *batch) answerBytes() int64 {
	if b.answers == 0 {
		return 0
	}
	bytes := int64(len("[]"))
	for _, r := range b.answered() {
		bytes += r.bytes + int64(len(","))
	}
	return bytes
}

// finish is called by each element that is done; the last one queues the answer.
func (b *batch) finish() nonce.Waker {
	if b.open.Add(-1) > 0 {
		return nil
	}
	c := b.conn
	var feeds []Feed
	for _, r := range b.requests {
		if r.subscription != nil {
			r.subscription.feed.Announce()
			feeds = append(feeds, r.subscription.feed)
		}
	}
	if b.answers > 0 {
		b.took.answer += b.grown.Load()
		b.took.push(b)
	} else {
		b.Release()
	}
	for _, f := range feeds {
		f.Start()
	}
	return c.out
}

// Append implements writer.Message: it encodes the array.
func (b *batch) Append(dst []byte) ([]byte, error) {
	var err error
	dst = append(dst, '[')
	for i, r := range b.answered() {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = r.Append(dst); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}

// errorReply is what is sent when the array could not be encoded.
func (b *batch) errorReply() []byte {
	parts := make([][]byte, 0, b.answers)
	for _, r := range b.answered() {
		parts = append(parts, r.errorReply())
	}
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
}

// answered numbers the elements that are not notifications.
func (b *batch) answered() iter.Seq2[int, *request] {
	return func(yield func(int, *request) bool) {
		i := 0
		for _, r := range b.requests {
			if len(r.id) > 0 {
				if !yield(i, r) {
					return
				}
				i++
			}
		}
	}
}

// OnWritten implements writer.Written.
func (b *batch) OnWritten() func() {
	var all []func()
	for _, r := range b.requests {
		if f := r.OnWritten(); f != nil {
			all = append(all, f)
		}
	}
	if all == nil {
		return nil
	}
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// Release implements writer.Message.
func (b *batch) Release() {
	for _, r := range b.requests {
		r.Release()
	}
}
