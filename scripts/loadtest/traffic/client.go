package traffic

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/history"
	"noncegate/test/lab/peer"
	"noncegate/wire"
)

const (
	// Requests of a connection that may be unanswered in an open loop: fewer than a gateway allows, so that a stall causes no refusals.
	windowRequests = 128
	// maxBacklog is how many bursts of one connection wait beyond those, as times when they were due; more are counted as unsent at once.
	maxBacklog = 1 << 14
	// maxHolds is how many nonces a connection remembers to be marked, or as many as may be unanswered; older ones are left to expire.
	maxHolds = 256
	// lastWords is how long a connection that cannot be written to is still read, for the close frame that says why.
	lastWords = time.Second
	// maxReadBytes is of a message; a longer one is not an answer to what we send.
	maxReadBytes = 1 << 20
	// defaultSendBuffer is what every system gives a connection.
	defaultSendBuffer = 16 << 10
)

var (
	errNoAnswer = errors.New("no answer when the load was over")
	errNotAsked = errors.New("an answer to a request that was not asked")
)

// client is one connection that sends. Its reader goroutine runs loop; in an open loop another one calls offer.
type client struct {
	*websocket.Conn
	out    *corked      // beneath it
	in     bytes.Buffer // the last message that was read
	number int64
	load   *Load
	meter  *meter
	rng    *rand.Rand
	causes *causes // nil without subscribers

	mu       sync.Mutex // guards what follows, and is held to write
	text     []byte     // the last request that was sent
	order    int64      // requests that were sent and are kept
	requests []request  // by id less firstID; those of a burst are neighbours
	bursts   []burst
	free     []int // bursts with nothing unanswered
	sent     int   // bursts with something unanswered
	backlog  []time.Duration
	holds    []hold
	stopping bool  // no burst leaves any more
	ended    bool  // the connection is closed, or about to be
	lost     error // why it ended before it was told to
}

// burst is Inflight requests that left together.
type burst struct {
	due  time.Duration
	left int // unanswered
}

// openClient opens the i-th connection, whose send buffer takes all of its unanswered requests.
func (r *runner) openClient(ctx context.Context, i int) (_ *client, err error) {
	c := newClient(&r.load, r.meter, r.causes, i)
	c.Conn, err = r.load.Access.dial(ctx, r.load.URLs[i%len(r.load.URLs)], func(ctx context.Context, network, address string) (net.Conn,
		error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.out = &corked{Conn: conn}
		if burst := r.load.window() * r.load.Inflight * maxRequestBytes; burst > defaultSendBuffer {
			err = conn.(*net.TCPConn).SetWriteBuffer(2 * burst)
		}
		return c.out, err
	})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(maxReadBytes)
	c.SetCloseHandler(func(int, string) error { return nil }) // it is not answered
	c.SetPingHandler(func(data string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.WriteControl(websocket.PongMessage, []byte(data), time.Time{})
	})
	return c, nil
}

func newClient(l *Load, m *meter, causes *causes, i int) *client {
	return &client{number: int64(i), load: l, meter: m, rng: rand.New(rand.NewPCG(uint64(l.Signers.Base), uint64(i))), causes: causes}
}

// window is how many bursts of a connection may be unanswered.
func (l *Load) window() int {
	if l.Rate == 0 {
		return 1
	}
	return max(2, windowRequests/l.Inflight)
}

// loop sends, in a closed loop, and reads until the connection ends; then nothing of it is left.
func (c *client) loop() {
	defer c.Close()
	c.mu.Lock()
	c.proceedLocked(c.meter.now())
	c.mu.Unlock()
	for {
		_, message, err := c.NextReader()
		if err == nil {
			c.in.Reset()
			_, err = c.in.ReadFrom(message)
		}
		if err == nil {
			err = c.receive(c.in.Bytes())
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// offer sends a burst that is due, or lets it wait for its turn. It reports false, and does nothing, when the connection has ended.
func (c *client) offer(due time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended || c.stopping:
		return false
	case c.sent < c.load.window() && len(c.backlog) == 0:
		c.sendLocked(due)
	case len(c.backlog) < maxBacklog:
		c.backlog = append(c.backlog, due)
	default:
		c.meter.leave(due, c.load.Inflight)
	}
	return true
}

// sendLocked composes a burst, for which there is a slot, and writes it. After an error nothing is sent, until the reader sees why.
func (c *client) sendLocked(due time.Duration) {
	n, now := c.load.Inflight, c.meter.now()
	if len(c.free) == 0 {
		c.free = append(c.free, len(c.bursts))
		c.bursts = append(c.bursts, burst{})
		c.requests = append(c.requests, make([]request, n)...)
	}
	at := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.out.on = true
	for i := at * n; i < (at+1)*n; i++ {
		c.composeLocked(&c.requests[i], now)
		c.text = appendRequest(c.text[:0], firstID+i, &c.requests[i], c.number)
		c.WriteMessage(websocket.TextMessage, c.text) // flush says what came of it
	}
	c.bursts[at] = burst{due: due, left: n}
	c.sent++
	if err := c.out.flush(); err != nil {
		c.ended, c.lost = true, err
		c.out.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// composeLocked decides what a request asks. A mark is of the oldest nonce that is still held.
func (c *client) composeLocked(r *request, now time.Duration) {
	*r = request{open: true}
	if !c.load.Mix.allocatesOnly() {
		r.method = c.load.Mix.pick(c.rng)
	}
	if r.method == MarkUsed || r.method == MarkRecyclable {
		for len(c.holds) > 0 && !r.known {
			h := pop(&c.holds)
			r.nonceOf, r.known = h.nonceOf, now < h.until
		}
		if !r.known {
			r.method = Allocate
		}
	}
	if !r.known {
		r.nonceOf = nonceOf{account: c.pickLocked()}
	}
	c.recordLocked(r)
}

// pickLocked chooses an account, of those that are for the connection.
func (c *client) pickLocked() int64 {
	if len(c.load.Owned) == 0 {
		return c.load.Signers.pick(c.rng)
	}
	owned := c.load.Owned[int(c.number)%len(c.load.Owned)]
	return c.load.Signers.Base + owned[c.rng.IntN(len(owned))]
}

// kinds are the methods that are kept of a load that is verified.
var kinds = [...]history.Kind{Allocate: history.Allocate, MarkUsed: history.MarkUsed, MarkRecyclable: history.MarkRecyclable}

// recordLocked begins the record of a request of a load that is verified.
func (c *client) recordLocked(r *request) {
	if c.load.Verify == nil || r.method == Status {
		return
	}
	call := history.Call{Client: int(c.number), Node: "gateway", Kind: kinds[r.method], Nonce: r.nonce, Attempt: r.attempt}
	call.Conn, call.Seq = c.number+1, c.order+1
	if r.method == MarkUsed {
		call.TxHash = txHash(r.nonceOf, c.number)
	}
	if r.call = c.load.Verify.begin(r.account, call); r.call != nil {
		c.order++
	}
}

// stop lets nothing more leave, and ends the connection once everything was answered or until has come. What waits for its turn is unsent.
func (c *client) stop(until time.Time) {
	c.out.Conn.SetDeadline(until) // first, for a write that hangs has the lock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	c.forgetLocked()
	c.proceedLocked(0)
}

// forgetLocked counts what waits for its turn as unsent.
func (c *client) forgetLocked() {
	for _, due := range c.backlog {
		c.meter.leave(due, c.load.Inflight)
	}
	c.backlog = nil
}

// end accounts for what was not answered. err is what the reader met.
func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if timeout, ok := errors.AsType[net.Error](err); c.stopping && ok && timeout.Timeout() {
		err = errNoAnswer
	}
	// A close frame says more than the write that failed.
	if !c.ended || closedBy(err) != nil && c.lost != nil {
		c.lost = err
	}
	c.ended = true
	c.forgetLocked()
	for _, b := range c.bursts {
		if b.left > 0 {
			c.meter.fail(b.due, b.left)
		}
	}
	for i := range c.requests {
		if c.requests[i].open {
			c.load.Verify.end(c.requests[i].call, nil)
		}
	}
	c.requests, c.bursts = nil, nil
}

// receive looks at a message, and sends what may leave now. An error is the end of the connection.
func (c *client) receive(message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.meter.now()
	err := c.answeredLocked(message, now)
	if err == nil {
		c.proceedLocked(now)
	}
	return err
}

// proceedLocked sends what may leave now that answers have come, or ends the connection.
func (c *client) proceedLocked(now time.Duration) {
	switch {
	case c.ended:
	case c.stopping:
		if c.sent == 0 {
			c.ended = true
			goodbye(c.Conn)
		}
	case c.load.Rate == 0:
		if c.sent == 0 {
			c.sendLocked(now)
		}
	default:
		for c.sent < c.load.window() && len(c.backlog) > 0 && !c.ended {
			c.sendLocked(pop(&c.backlog))
		}
	}
}

func (c *client) answeredLocked(payload []byte, now time.Duration) error {
	rep, err := parseReply(payload)
	if err != nil {
		return err
	}
	i := rep.id - firstID
	if i < 0 || i >= len(c.requests) || !c.requests[i].open {
		return errNotAsked
	}
	r, b := &c.requests[i], &c.bursts[i/c.load.Inflight]
	r.open = false
	if r.call != nil {
		answer := new(peer.Reply)
		if err := wire.Unmarshal(payload, answer); err != nil {
			return err
		}
		c.load.Verify.end(r.call, answer)
	}
	if rep.failed {
		c.meter.refuse(r.method, b.due, rep.refusal())
	} else {
		if err := c.acknowledgedLocked(r, &rep, b.due); err != nil {
			return err
		}
		c.meter.acknowledge(r.method, b.due, now)
	}
	if b.left--; b.left == 0 {
		c.free = append(c.free, i/c.load.Inflight)
		c.sent--
	}
	return nil
}

func (c *client) acknowledgedLocked(r *request, rep *reply, due time.Duration) error {
	if r.method == Allocate {
		holdMs, err := rep.handedOut(&r.nonceOf)
		if err != nil {
			return err
		}
		if !c.load.Mix.allocatesOnly() {
			if len(c.holds) == max(maxHolds, c.load.window()*c.load.Inflight) {
				pop(&c.holds)
			}
			// A hold lasts from its commit, which is later than when it was due.
			c.holds = append(c.holds, hold{r.nonceOf, due + time.Duration(holdMs)*time.Millisecond})
		}
	}
	if c.causes != nil && r.method != Status {
		c.causes.caused(event{r.nonceOf, r.method}, due)
	}
	return nil
}

// pop takes the oldest of what waits, of which there must be one.
func pop[T any](waiting *[]T) T {
	oldest := (*waiting)[0]
	*waiting = (*waiting)[1:]
	return oldest
}
