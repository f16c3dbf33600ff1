package writer

import (
	"sync"
	"time"
)

// Buffers are lent for as long as something is in them: ten thousand idle
// connections hold none. One that grew large for a slow client is left to the
// garbage collector.
const (
	keepBytes = 64 << 10
	keepItems = 256
)

var (
	batches = sync.Pool{New: func() any { return new(batch) }}
	lists   = sync.Pool{New: func() any { return new(list) }}
)

// batch is a run of complete frames that one write sends.
type batch struct {
	buf     []byte
	encoded []time.Duration // when each message in buf was encoded

	// What of it the queue has counted as unwritten. Control frames are not.
	bytes    int64
	messages int
	notes    int64 // of notifications, as they were admitted

	written []func() // of messages that want to know
}

// putBatch takes a batch back, which must not be used afterwards.
func putBatch(b *batch) {
	if cap(b.buf) <= keepBytes {
		*b = batch{buf: b.buf[:0], encoded: b.encoded[:0], written: b.written[:0]}
		batches.Put(b)
	}
}

// item is a queued message.
type item struct {
	msg   Message
	bytes int64         // what it holds of the connection's cap until it is encoded
	note  bool          // it is a notification
	at    time.Duration // when it was queued
}

// list is the messages that wait for one encode task.
type list struct{ items []item }

// holds is what the items hold of the connection's cap, and the notifications among them.
func (l *list) holds() (bytes, notes int64) {
	for i := range l.items {
		bytes += l.items[i].bytes
		if l.items[i].note {
			notes += l.items[i].bytes
		}
	}
	return bytes, notes
}

// putList takes a list back, which must not be used afterwards.
func putList(l *list) {
	if cap(l.items) <= keepItems {
		clear(l.items)
		l.items = l.items[:0]
		lists.Put(l)
	}
}
