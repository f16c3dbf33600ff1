package writer

import (
	"sync"
	"sync/atomic"
	"time"

	"noncegate/backpressure"
	"noncegate/encodepool"
)

// Queue is the outbound side of one connection. All methods are safe for
// concurrent use, and none blocks but WaitReadable.
type Queue struct {
	sock  Socket
	eager EagerSocket // sock, if it is one
	pool  Pool
	cfg   *Config
	share *backpressure.Share // of the slots of the encode pool
	done  chan struct{}
	held  atomic.Bool // reads are paused or the queue is closed; written under mu

	mu sync.Mutex // guards what follows; never held while encoding or writing; only calls that do not wait are made under it

	// What is waiting, and what it counts. A message is in msgs from Reserve or
	// Notify until it was written or thrown away; its bytes move from reserved
	// to queued to unwritten.
	pending    *list  // to be encoded; nil: nothing
	ready      *batch // to be written; nil: nothing, or in the encode task's hands
	ping, pong []byte // control frames to be written, at most one of each
	msgs       int
	reserved   int64 // promised to replies
	queued     int64 // in pending or being encoded
	unwritten  int64 // in ready or being written
	notes      int64 // of notifications, from Notify until they are written

	// What is at work, which Done waits for.
	encoding bool // an encode task is queued or runs
	writing  bool // the write goroutine runs
	telling  bool // OnKick is being called
	alarms   int  // alarms that have not rung nor been stopped

	// How the client keeps up.
	level  backpressure.Level
	drop   bool          // drop notifications
	paused bool          // do not read
	resume chan struct{} // closed when reads may go on; nil: no reader waits
	oldest time.Duration // when the oldest unwritten message was encoded; meaningless if there is none
	alarm  *alarm        // asks again when a kick may be due, or ends an orderly close

	// How it ends.
	sealed     bool          // nothing is accepted any more
	closed     bool          // nothing will be written any more, except a farewell
	finished   bool          // done is closed
	cause      error         // why; set with closed
	closeFrame []byte        // behind everything queued, when sealed in order
	closeSent  bool          // the close frame was handed to a write
	peerClosed bool          // the peer will send nothing more
	closeBy    time.Duration // when an orderly close must be finished
}

// New returns the queue of a connection. cfg is shared and was validated. From
// now on only the queue may write to sock, or close it before Done.
func New(sock Socket, pool Pool, cfg *Config) *Queue {
	eager, _ := sock.(EagerSocket)
	return &Queue{sock: sock, eager: eager, pool: pool, cfg: cfg, share: backpressure.NewShare(cfg.Share), done: make(chan struct{})}
}

// Reserve promises room for one reply of at most bytes (its payload; the frame's
// header is added here): the connection's bytes and messages and a slot for the
// encoding, all or nothing. Each Granted is followed by exactly one Push or
// Unreserve with the same number. What does not fit below Marks.Max, with its header,
// can never be granted.
func (q *Queue) Reserve(bytes int64) Refusal {
	bytes += encodepool.MaxHeader
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed || q.msgs >= q.cfg.MaxMessages || q.reserved+q.queued+q.unwritten+bytes > q.cfg.Marks.Max {
		return RefusedConnection
	}
	if !q.pool.TryReserve(q.share, 1) {
		return RefusedEncode
	}
	q.msgs++
	q.reserved += bytes
	return Granted
}

// Unreserve gives back what Reserve promised, unused.
func (q *Queue) Unreserve(bytes int64) {
	bytes += encodepool.MaxHeader
	q.mu.Lock()
	q.msgs--
	q.reserved -= bytes
	q.mu.Unlock()
	q.pool.Unreserve(q.share, 1)
}

// Grow makes the room of a reply that was Granted larger by more bytes, if the
// connection has them now. The Push or Unreserve of the reply then names the sum.
func (q *Queue) Grow(more int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed || q.reserved+q.queued+q.unwritten+more > q.cfg.Marks.Max {
		return false
	}
	q.reserved += more
	return true
}

// Push queues a reply with its reservation and fixes its place in the order. It
// is never refused; on a connection that is closed or closing it is released,
// for no client can receive it. Wake must follow, once for any number of pushes.
// A reply longer than its reservation is sent nevertheless.
func (q *Queue) Push(m Message, reserved int64) {
	now := clock()
	reserved += encodepool.MaxHeader
	q.mu.Lock()
	q.reserved -= reserved
	dead := q.sealed
	if dead {
		q.msgs--
	} else {
		q.appendLocked(item{msg: m, bytes: reserved, at: now})
	}
	q.mu.Unlock()
	if dead {
		q.pool.Unreserve(q.share, 1)
		discard(m)
	}
}

// Notify queues a notification of the given bytes of payload if there is room that is
// not promised to replies, and wakes the queue by itself. False: it was dropped,
// counted by its reason unless the connection is closing, and released.
func (q *Queue) Notify(m Message, bytes int64) bool {
	now := clock()
	bytes += encodepool.MaxHeader
	q.mu.Lock()
	dead := q.sealed
	var drop backpressure.DropReason
	var t todo
	if !dead {
		drop, t = q.admitLocked(bytes)
		dead = q.closed
	}
	taken := !dead && drop == backpressure.DropNone
	if taken {
		q.msgs++
		q.notes += bytes
		q.appendLocked(item{msg: m, bytes: bytes, at: now, note: true})
		t.encode = q.scheduleLocked()
	}
	q.mu.Unlock()
	q.do(t)
	if drop != backpressure.DropNone {
		call(q.cfg.OnDrop, drop)
	}
	if !taken {
		m.Release()
	}
	return taken
}

// admitLocked decides about a notification and takes its slot in the encode
// pool. A client that is over the hard cap is kicked.
func (q *Queue) admitLocked(bytes int64) (backpressure.DropReason, todo) {
	drop, kick := q.cfg.Marks.Notification(q.drop, q.unwritten, q.queued+q.reserved, bytes)
	switch {
	case kick != backpressure.KickNone:
		return drop, q.endLocked(&KickError{kick})
	case drop != backpressure.DropNone:
		return drop, todo{}
	case q.cfg.MaxNotifications > 0 && q.notes+bytes > q.cfg.MaxNotifications:
		return backpressure.DropSlow, todo{}
	case q.msgs >= q.cfg.MaxMessages:
		return backpressure.DropMessages, todo{}
	case !q.pool.TryReserveSpare(q.share, 1):
		return backpressure.DropEncode, todo{}
	}
	return backpressure.DropNone, todo{}
}

// appendLocked puts an item at the end of the queue.
func (q *Queue) appendLocked(it item) {
	if q.pending == nil {
		q.pending = lists.Get().(*list)
	}
	q.pending.items = append(q.pending.items, it)
	q.queued += it.bytes
}

// Wake sees to it that what was pushed is encoded and written.
func (q *Queue) Wake() {
	q.mu.Lock()
	t := todo{encode: q.scheduleLocked()}
	q.mu.Unlock()
	q.do(t)
}

// Ping queues a ping. Control frames wait for no encoding and count against no
// bound, because there is at most one ping and one pong: a newer one replaces
// one that still waits, as RFC 6455, section 5.5.3, allows.
func (q *Queue) Ping(payload []byte) { q.control(&q.ping, encodepool.OpPing, payload) }

// Pong queues the answer to a ping; see Ping.
func (q *Queue) Pong(payload []byte) { q.control(&q.pong, encodepool.OpPong, payload) }

// control sets one of the two control frames.
func (q *Queue) control(slot *[]byte, op encodepool.Opcode, payload []byte) {
	q.mu.Lock()
	var t todo
	if !q.sealed {
		*slot = encodepool.AppendControl((*slot)[:0], op, payload)
		t.write = q.startWriteLocked()
	}
	q.mu.Unlock()
	q.do(t)
}

// WaitReadable is called by the read loop before each read. It blocks while
// reads are paused and returns false when the queue is closed. While an orderly
// close is under way it lets the loop go on, to see the peer's close frame.
func (q *Queue) WaitReadable() bool {
	if !q.held.Load() {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.paused {
		if q.resume == nil {
			q.resume = make(chan struct{})
		}
		resume := q.resume
		q.mu.Unlock()
		<-resume
		q.mu.Lock()
	}
	return !q.closed
}

// pauseLocked pauses or resumes the reads.
func (q *Queue) pauseLocked(on bool) {
	if q.paused == on && !q.closed {
		return
	}
	q.paused = on
	q.held.Store(on || q.closed)
	if !on && q.resume != nil {
		close(q.resume)
		q.resume = nil
	}
}

// todo is what a caller has to do once it has let go of the lock.
type todo struct {
	encode bool                    // submit the encode task
	write  bool                    // start the write goroutine
	kicked backpressure.KickReason // tell that the client was kicked
}

// do does it.
func (q *Queue) do(t todo) {
	if t.kicked != backpressure.KickNone {
		q.tell(t.kicked)
	}
	if t.encode {
		q.pool.Submit((*encodeTask)(q))
	}
	if t.write {
		go q.writeLoop()
	}
}

// tell calls OnKick, before Done is closed.
func (q *Queue) tell(reason backpressure.KickReason) {
	call(q.cfg.OnKick, reason)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.telling = false
	q.finishLocked()
}

// Depth is how much one connection has waiting.
type Depth struct {
	Bytes    int64 // of messages queued, encoded or being written
	Promised int64 // bytes reserved for replies that are not queued yet
	Messages int   // all of these together
	Paused   bool  // the client is not read
}

// Depth says how much waits now.
func (q *Queue) Depth() Depth {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Depth{Bytes: q.queued + q.unwritten, Promised: q.reserved, Messages: q.msgs, Paused: q.paused}
}
