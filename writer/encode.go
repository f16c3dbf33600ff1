package writer

import (
	"fmt"
	"runtime/debug"
	"time"

	"noncegate/encodepool"
)

// encodeTask is a queue as the encode pool sees it.
type encodeTask Queue

// Run encodes all that is queued. What is queued meanwhile waits for the next
// task, behind those of other connections.
func (t *encodeTask) Run() {
	q := (*Queue)(t)
	l, b := q.takePending()
	now := clock()
	if b == nil {
		for i := range l.items {
			discard(l.items[i].msg)
		}
	} else {
		now = q.encodeList(b, l, now)
	}
	q.pool.Unreserve(q.share, len(l.items))
	todo := q.deposit(l, b, now)
	putList(l)
	write := todo.write && q.eager != nil
	todo.write = todo.write && !write
	q.do(todo)
	if write {
		q.tryWrite()
	}
}

// scheduleLocked reports whether an encode task must be submitted. The flag is
// what keeps the order: never two tasks of one queue.
func (q *Queue) scheduleLocked() bool {
	if q.encoding || q.pending == nil {
		return false
	}
	q.encoding = true
	return true
}

// takePending takes what is to be encoded, and the batch it is appended to: the
// frames that are ready already, so that order needs no further thought. No
// batch: the connection is dead and the list is to be thrown away.
func (q *Queue) takePending() (*list, *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l, b := q.pending, q.ready
	q.pending, q.ready = nil, nil
	if b == nil && !q.closed {
		b = batches.Get().(*batch)
	}
	return l, b
}

// encodeList appends a frame for each message. It takes the time it starts and
// returns the time it ended; the clock is read once for each message.
func (q *Queue) encodeList(b *batch, l *list, now time.Duration) time.Duration {
	for i := range l.items {
		it := &l.items[i]
		call(q.cfg.EncodeQueue, now-it.at)
		sent := q.appendFrame(b, it.msg)
		if w, ok := it.msg.(Written); ok {
			if f := w.OnWritten(); f != nil {
				b.written = append(b.written, f)
			}
		}
		it.msg.Release()
		end := clock()
		if sent {
			b.encoded = append(b.encoded, end)
		}
		call(q.cfg.Encode, end-now)
		now = end
	}
	return now
}

// appendFrame appends the frame of one message, or of what is to be sent in its
// slot. It is false when there is nothing to send.
func (q *Queue) appendFrame(b *batch, m Message) bool {
	start := len(b.buf)
	b.buf = encodepool.BeginText(b.buf)
	buf, err := appendPayload(b.buf, m)
	if err != nil {
		instead := q.cfg.OnEncodeError(m, err)
		if instead == nil {
			b.buf = b.buf[:start]
			return false
		}
		buf = append(b.buf, instead...)
	}
	b.buf = encodepool.EndText(buf, start)
	return true
}

// appendPayload calls Append and turns its panic into an error: one message that
// cannot be encoded must not take the others of its connection along.
func appendPayload(dst []byte, m Message) (buf []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return m.Append(dst)
}

// discard releases a message that is thrown away.
func discard(m Message) {
	if w, ok := m.(Written); ok {
		if f := w.OnWritten(); f != nil {
			defer f()
		}
	}
	m.Release()
}

// PanicError says that Append panicked, and where.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("encoding panicked: %v", e.Value) }

// deposit hands the frames over to be written and accounts for the list. It
// schedules the next task if more was queued.
func (q *Queue) deposit(l *list, b *batch, now time.Duration) todo {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.encoding = false
	bytes, notes := l.holds()
	q.queued -= bytes
	q.msgs -= len(l.items)
	var t todo
	if b != nil {
		b.notes += notes
		t = q.depositLocked(b, now)
	} else {
		q.notes -= notes
	}
	t.encode = t.encode || q.scheduleLocked()
	t.write = t.write || q.startWriteLocked()
	q.finishLocked()
	return t
}

// depositLocked counts the new frames of b and makes it the ready one.
func (q *Queue) depositLocked(b *batch, now time.Duration) todo {
	first := q.unwritten == 0 || !q.writing
	q.unwritten += int64(len(b.buf)) - b.bytes
	q.msgs += len(b.encoded) - b.messages
	b.bytes, b.messages = int64(len(b.buf)), len(b.encoded)
	if q.closed || b.messages == 0 {
		q.forgetLocked(b)
		return todo{}
	}
	q.ready = b
	if first {
		q.oldest = b.encoded[0]
	}
	return q.judgeLocked(now)
}
