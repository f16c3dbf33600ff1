package writer

import (
	"errors"
	"time"

	"noncegate/backpressure"
	"noncegate/encodepool"
)

// CloseAfterFlush ends the connection in order: nothing more is accepted, what
// is queued is written, then a close frame, and the socket is closed when the
// peer has answered it (PeerClosed) or after the close timeout. The reason is
// cut to the 123 bytes of a close frame. The first call wins; on a queue that is
// closing or closed it does nothing.
func (q *Queue) CloseAfterFlush(code int, reason string) {
	q.mu.Lock()
	var t todo
	if !q.sealed {
		t = q.sealLocked(encodepool.AppendClose(nil, code, reason))
	}
	q.mu.Unlock()
	q.do(t)
}

// sealLocked begins the orderly close. From here on the close alarm bounds how
// long the client may take, instead of the marks.
func (q *Queue) sealLocked(frame []byte) todo {
	q.sealed, q.closeFrame = true, frame
	q.ping, q.pong = nil, nil
	q.pauseLocked(false)
	q.silenceLocked()
	q.closeBy = clock() + q.cfg.CloseTimeout
	q.alarmLocked(q.cfg.CloseTimeout)
	return todo{encode: q.scheduleLocked(), write: q.startWriteLocked()}
}

// PeerClosed tells that the read loop saw the peer's close frame or the end of
// its bytes. It completes an orderly close; by itself it begins none.
func (q *Queue) PeerClosed() {
	q.mu.Lock()
	q.peerClosed = true
	var t todo
	if q.closeSent && !q.writing {
		t = q.endLocked(ErrClosed)
	}
	q.mu.Unlock()
	q.do(t)
}

// Kill closes the socket now, without a close frame, and throws away what is
// queued. The cause is for Cause and must not be nil; the first one stays.
func (q *Queue) Kill(cause error) {
	q.mu.Lock()
	t := q.endLocked(cause)
	q.mu.Unlock()
	q.do(t)
}

// Done is closed when nothing will be written any more and no goroutine of the
// queue is left. Replies whose reservation is still out are released by their
// Push, after Done too.
func (q *Queue) Done() <-chan struct{} { return q.done }

// Cause says why the queue was closed; nil while it is not. A *KickError, if the
// client was too slow.
func (q *Queue) Cause() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}

// endLocked closes the queue: what is ready is thrown away here, what is pending
// by an encode task, and the write goroutine closes the socket. A write that is
// under way is ended by its deadline.
func (q *Queue) endLocked(cause error) todo {
	if q.closed {
		return todo{}
	}
	q.closed, q.sealed, q.cause = true, true, cause
	q.ping, q.pong, q.closeFrame = nil, nil, nil
	q.pauseLocked(false)
	q.silenceLocked()
	if q.ready != nil {
		q.forgetLocked(q.ready)
		q.ready = nil
	}
	t := todo{encode: q.scheduleLocked(), write: !q.writing}
	if q.writing {
		_ = q.sock.SetWriteDeadline(longGone)
	}
	q.writing = true
	if kick, ok := errors.AsType[*KickError](cause); ok {
		t.kicked, q.telling = kick.Reason, true
	}
	return t
}

// finishLocked closes Done when the queue is closed and all is quiet.
func (q *Queue) finishLocked() {
	if q.closed && !q.encoding && !q.writing && !q.telling && q.alarms == 0 && !q.finished {
		q.finished = true
		close(q.done)
	}
}

// judgeLocked applies the marks to what is encoded and not written. What waits
// to be encoded is not the client's doing.
func (q *Queue) judgeLocked(now time.Duration) todo {
	if q.sealed {
		return todo{}
	}
	var age time.Duration
	if q.unwritten > 0 {
		age = now - q.oldest
	}
	d := q.level.Update(&q.cfg.Marks, q.unwritten, age, now)
	if d.Kick != backpressure.KickNone {
		return q.endLocked(&KickError{d.Kick})
	}
	q.drop = d.Drop
	q.pauseLocked(d.Pause)
	switch {
	case d.CheckIn == 0:
		q.silenceLocked()
	case q.alarm == nil:
		q.alarmLocked(d.CheckIn)
	}
	return todo{}
}

// alarm is one timer of a queue.
type alarm struct {
	q     *Queue
	timer *time.Timer
}

// alarmLocked sets the queue's alarm, which must not be set.
func (q *Queue) alarmLocked(d time.Duration) {
	a := &alarm{q: q}
	a.timer = time.AfterFunc(d, a.ring)
	q.alarm = a
	q.alarms++
}

// silenceLocked stops the alarm if one is set. One that is ringing already finds
// by the clock that it has nothing to do.
func (q *Queue) silenceLocked() {
	if q.alarm == nil {
		return
	}
	if q.alarm.timer.Stop() {
		q.alarms--
	}
	q.alarm = nil
}

// ring asks whether the client's time is up.
func (a *alarm) ring() {
	q, now := a.q, clock()
	q.mu.Lock()
	if q.alarm == a {
		q.alarm = nil
	}
	q.alarms--
	var t todo
	switch {
	case q.closed:
	case !q.sealed:
		t = q.judgeLocked(now)
	case now >= q.closeBy:
		t = q.endLocked(errCloseTimeout)
	}
	q.finishLocked()
	q.mu.Unlock()
	q.do(t)
}
