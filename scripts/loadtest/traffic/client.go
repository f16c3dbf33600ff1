package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/scripts/loadtest/verify"
	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

const (
	// Bursts of one connection that may be unanswered in an open loop: as many
	// as have windowRequests together, at least two. It stays below what a
	// gateway allows a connection, so that the load does not cause refusals by
	// itself after a stall.
	windowRequests = 128
	// maxBacklog is how many bursts of one connection wait beyond those, as
	// times when they were due; more are counted as unsent at once.
	maxBacklog = 1 << 14
	// maxHolds is how many nonces a connection remembers to be marked, or as many as
	// it may have requests unanswered; older ones are left to expire.
	maxHolds = 256
	// lastWords is how long a connection that cannot be written to is still
	// read, for the close frame that says why.
	lastWords = time.Second
)

// client is one connection that sends. Its reader goroutine runs loop; in an
// open loop a scheduler calls offer.
type client struct {
	*socket
	number   int64
	load     *Load
	shard    *shard
	clock    clock
	rng      *rand.Rand
	accounts chooser
	causes   *causes // nil without subscribers

	abandoned atomic.Pointer[error] // why it was closed before it had ended

	mu       sync.Mutex // guards what follows, and is held to write
	out      []byte     // the last burst that was sent
	text     []byte     // the last request of it
	order    int64      // requests that were sent and are kept
	requests []request  // by id less firstID; those of a burst are neighbours
	bursts   []burst
	free     []int // bursts with nothing unanswered
	sent     int   // bursts with something unanswered
	backlog  backlog
	holds    holds
	stopping bool  // no burst leaves any more
	ended    bool  // the connection is closed, or about to be
	lost     error // why it ended before it was told to
}

// burst is Inflight requests that left together.
type burst struct {
	due  time.Duration
	left int // unanswered
}

func newClient(r *runner, s *socket, i int) *client {
	rng := rand.New(rand.NewPCG(uint64(r.load.Signers.Base), uint64(i)))
	return &client{
		socket: s, number: int64(i), load: &r.load, shard: r.meter.shard(i), clock: r.clock, rng: rng,
		accounts: newChooser(r.load.Signers, rng), causes: r.causes,
		holds: holds{limit: max(maxHolds, r.load.window()*r.load.Inflight)},
	}
}

// window is how many bursts of a connection may be unanswered.
func (l *Load) window() int {
	if l.Rate == 0 {
		return 1
	}
	return max(2, windowRequests/l.Inflight)
}

// burstBytes is an upper bound of what the unanswered requests of a connection
// are on the wire.
func (l *Load) burstBytes() int { return l.window() * l.Inflight * maxRequestBytes }

// loop sends, in a closed loop, and reads until the connection ends; then
// nothing of it is left.
func (c *client) loop() {
	defer c.conn.Close()
	c.first()
	c.end(c.follow(c.receive))
}

// first begins a closed loop.
func (c *client) first() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.load.Rate == 0 && !c.stopping {
		c.sendLocked(c.clock.now())
	}
}

// offer sends a burst that is due, or lets it wait for its turn. It reports
// false, and does nothing, when the connection has ended.
func (c *client) offer(due time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended || c.stopping:
		return false
	case c.sent < c.load.window() && c.backlog.len() == 0:
		c.sendLocked(due)
	case !c.backlog.push(due):
		c.shard.leave(due, c.load.Inflight)
	}
	return true
}

// sendLocked composes a burst, for which there is a slot, and writes it. A
// connection that cannot be written to sends no more, and has ended once its
// reader has seen why.
func (c *client) sendLocked(due time.Duration) {
	at := c.slotLocked()
	n := c.load.Inflight
	now := c.clock.now()
	c.out = c.out[:0]
	for i := at * n; i < (at+1)*n; i++ {
		c.composeLocked(&c.requests[i], now)
		c.text = appendRequest(c.text[:0], firstID+i, &c.requests[i], c.number)
		c.out = appendFrame(c.out, finText, c.text)
	}
	c.bursts[at] = burst{due: due, left: n}
	c.sent++
	if _, err := c.conn.Write(c.out); err != nil {
		c.ended, c.lost = true, err
		c.conn.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// slotLocked takes a free slot for a burst.
func (c *client) slotLocked() int {
	if n := len(c.free); n > 0 {
		at := c.free[n-1]
		c.free = c.free[:n-1]
		return at
	}
	c.bursts = append(c.bursts, burst{})
	c.requests = append(c.requests, make([]request, c.load.Inflight)...)
	return len(c.bursts) - 1
}

// composeLocked decides what a request asks.
func (c *client) composeLocked(r *request, now time.Duration) {
	*r = request{open: true}
	if !c.load.Mix.allocatesOnly() {
		r.method = c.load.Mix.pick(c.rng)
	}
	if r.method == MarkUsed || r.method == MarkRecyclable {
		if h, ok := c.holds.pop(now); ok {
			r.account, r.nonce, r.attempt = h.account, h.nonce, h.attempt
		} else {
			r.method = Allocate
		}
	}
	if r.attempt == 0 {
		r.account = c.accounts.next()
	}
	c.recordLocked(r)
}

// kinds are the methods that are kept of a load that is verified.
var kinds = [...]history.Kind{Allocate: history.Allocate, MarkUsed: history.MarkUsed, MarkRecyclable: history.MarkRecyclable}

// recordLocked begins the record of a request, where somebody wants to know of it.
func (c *client) recordLocked(r *request) {
	if c.load.Verify == nil || r.method == Status {
		return
	}
	kind := kinds[r.method]
	call := history.Call{Client: int(c.number), Node: "gateway", Kind: kind, Nonce: r.nonce, Attempt: r.attempt, Conn: c.number + 1, Seq: c.order + 1}
	if r.method == MarkUsed {
		call.TxHash = verify.TxHash(r.account, r.nonce, r.attempt, c.number)
	}
	if r.call = c.load.Verify.Begin(r.account, call); r.call != nil {
		c.order++
	}
}

// stop lets nothing more leave, and ends the connection once everything was
// answered. What waits for its turn is unsent.
func (c *client) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	c.forgetLocked()
	if c.sent == 0 && !c.ended {
		c.closeLocked()
	}
}

// forgetLocked counts what waits for its turn as unsent.
func (c *client) forgetLocked() {
	for due, ok := c.backlog.pop(); ok; due, ok = c.backlog.pop() {
		c.shard.leave(due, c.load.Inflight)
	}
}

// closeLocked ends the connection in an orderly way.
func (c *client) closeLocked() {
	c.ended = true
	c.goodbye()
	c.conn.Close()
}

// abandon ends the connection whatever is unanswered.
func (c *client) abandon(why error) {
	c.abandoned.CompareAndSwap(nil, &why)
	c.conn.Close() // not under mu, which a write that hangs holds until then
}

// end accounts for what was not answered. err is what the reader met.
func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.abandoned.Load(); why != nil && !c.ended {
		err = *why
	}
	_, said := errors.AsType[*closedError](err)
	if !c.ended || said && c.lost != nil {
		c.lost = err
	}
	c.ended = true
	c.forgetLocked()
	for _, b := range c.bursts {
		if b.left > 0 {
			c.shard.fail(b.due, b.left)
		}
	}
	for i := range c.requests {
		if c.requests[i].open {
			c.load.Verify.End(c.requests[i].call, nil)
		}
	}
	c.requests, c.bursts = nil, nil
}

// lostFor says why the connection ended before it was told to; nil: it did not.
func (c *client) lostFor() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// tally is a run of equal acknowledgements of one read, to be counted by one
// lock.
type tally struct {
	method Method
	due    time.Duration
	n      int
}

// receive looks at what one read brought, and sends what may leave now. An error
// is the end of the connection.
func (c *client) receive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	var t tally
	for {
		op, payload, ok := c.next()
		if !ok {
			break
		}
		if op != finText {
			if err := c.control(op, payload); err != nil {
				c.shard.acknowledge(t.method, t.due, now, t.n)
				return err
			}
			continue
		}
		if err := c.answeredLocked(payload, now, &t); err != nil {
			c.shard.acknowledge(t.method, t.due, now, t.n)
			return err
		}
	}
	c.shard.acknowledge(t.method, t.due, now, t.n)
	c.proceedLocked(now)
	return nil
}

// proceedLocked sends what may leave now that answers have come.
func (c *client) proceedLocked(now time.Duration) {
	switch {
	case c.ended:
	case c.stopping:
		if c.sent == 0 {
			c.closeLocked()
		}
	case c.load.Rate == 0:
		if c.sent == 0 {
			c.sendLocked(now)
		}
	default:
		for c.sent < c.load.window() && c.backlog.len() > 0 && !c.ended {
			due, _ := c.backlog.pop()
			c.sendLocked(due)
		}
	}
}

// answeredLocked settles one request.
func (c *client) answeredLocked(payload []byte, now time.Duration, t *tally) error {
	rep, err := parseReply(payload)
	if err != nil {
		return err
	}
	i := rep.id - firstID
	if i < 0 || i >= len(c.requests) || !c.requests[i].open {
		return fmt.Errorf("an answer to a request that was not asked")
	}
	r, b := &c.requests[i], &c.bursts[i/c.load.Inflight]
	r.open = false
	if r.call != nil {
		answer := new(peer.Reply)
		if err := wire.Unmarshal(payload, answer); err != nil {
			return err
		}
		c.load.Verify.End(r.call, answer)
	}
	if rep.failed {
		c.shard.refuse(r.method, b.due, rep.refusal())
	} else {
		if err := c.acknowledgedLocked(r, &rep, b.due); err != nil {
			return err
		}
		if t.n > 0 && (t.due != b.due || t.method != r.method) {
			c.shard.acknowledge(t.method, t.due, now, t.n)
			t.n = 0
		}
		t.method, t.due, t.n = r.method, b.due, t.n+1
	}
	b.left--
	if b.left == 0 {
		c.free = append(c.free, i/c.load.Inflight)
		c.sent--
	}
	return nil
}

// acknowledgedLocked keeps what a result says.
func (c *client) acknowledgedLocked(r *request, rep *reply, due time.Duration) error {
	if r.method == Allocate {
		a, err := rep.handedOut()
		if err != nil {
			return err
		}
		r.nonce, r.attempt = a.nonce, a.attempt
		// A hold lasts from its commit, which is later than when it was due.
		if until := due + time.Duration(a.holdMs)*time.Millisecond; !c.load.Mix.allocatesOnly() {
			c.holds.push(hold{r.account, r.nonce, r.attempt, until})
		}
	}
	if c.causes != nil && r.method != Status {
		c.causes.caused(event{r.account, r.nonce, r.attempt, r.method}, due)
	}
	return nil
}
