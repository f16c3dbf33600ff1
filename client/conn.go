package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
	"noncegate/wire"
)

const (
	maxReplyBytes    = 16 << 20 // a page of 1,000 allocations is below 1 MiB
	unsubscribeRoom  = 64       // queue slots for requests that wait for no answer
	byeTimeout       = 100 * time.Millisecond
	unsubscribeEvery = time.Second // between two attempts to end subscriptions that nobody has
)

// conn is one life of one WebSocket connection. One goroutine reads and one
// writes; both end when it is dead. Any goroutine may call.
type conn struct {
	url  string
	born time.Time
	cfg  *Config
	ws   *websocket.Conn
	cork *wsconn.Cork // beneath ws

	slots          chan struct{}  // one for each call under way
	waiting        atomic.Int64   // calls that wait for a slot
	queue          chan *exchange // to the writer
	pongs          wsconn.Pongs   // to the writer
	unsubscribedAt time.Time      // the reader's: when it last ended a subscription that nobody has
	lastID         atomic.Uint64
	broken         atomic.Bool   // the writer gave up; see breakOff
	dead           chan struct{} // closed by fail
	leaving        chan struct{} // closed by leave

	mu       sync.Mutex               // guards what follows; no I/O beneath it
	err      error                    // why it is dead
	parting  error                    // why it is about to be: a goodbye is on its way
	writeErr error                    // why the writer gave up
	retired  bool                     // takes no new calls, ends with the last one
	left     bool                     // leaving is closed
	pending  map[uint64]*exchange     // by id; nil when dead
	subs     map[string]*Subscription // live here, by subscription id; nil when dead
}

func newConn(url string, ws *websocket.Conn, cork *wsconn.Cork, cfg *Config) *conn {
	c := &conn{
		url: url, born: time.Now(), cfg: cfg, ws: ws, cork: cork,
		slots:   make(chan struct{}, cfg.MaxInflight),
		queue:   make(chan *exchange, cfg.MaxInflight+unsubscribeRoom),
		pongs:   wsconn.NewPongs(),
		dead:    make(chan struct{}),
		leaving: make(chan struct{}),
		pending: make(map[uint64]*exchange),
		subs:    make(map[string]*Subscription),
	}
	ws.SetReadLimit(maxReplyBytes)
	ws.SetPingHandler(c.ping)
	ws.SetCloseHandler(func(code int, _ string) error {
		c.goodbye(code)
		return nil
	})
	return c
}

// exchange is one request on its way over one connection.
type exchange struct {
	frame  []byte
	state  atomic.Int32 // queued, then sent or withdrawn
	sentAt time.Time    // set by the writer before sent
	done   chan arrival // receives exactly once, unless the exchange was removed from pending
	live   func(*conn, answer)
}

const (
	queued    = iota
	sent      // handed to the network, or about to be
	withdrawn // never sent
)

// answer is the result of a call that was answered.
type answer struct {
	result wire.Raw
	sentAt time.Time // of the try that was answered
}

type arrival struct {
	answer answer
	err    error // *refusal, *lostError or *NotSentError
}

// roundTrip sends o and waits for its answer. The error is a *refusal, a
// *lostError or a *NotSentError.
func (c *conn) roundTrip(ctx context.Context, o *op) (answer, error) {
	if err := c.enter(ctx); err != nil {
		return answer{}, err
	}
	defer func() { <-c.slots }()
	id, t, err := c.enqueue(o)
	if err != nil {
		return answer{}, err
	}
	select {
	case a := <-t.done:
		return a.answer, a.err
	case <-ctx.Done():
		return c.abandon(ctx, id, t)
	}
}

// enter takes a slot among the calls under way, waiting for one behind at most
// QueueLimit others.
func (c *conn) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return &NotSentError{Err: ctxError(ctx)}
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
	}
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > int64(c.cfg.QueueLimit) {
		return &NotSentError{Err: ErrQueueFull}
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-c.dead:
		return &NotSentError{Err: c.cause(), again: true}
	case <-ctx.Done():
		return &NotSentError{Err: ctxError(ctx)}
	}
}

func (c *conn) enqueue(o *op) (uint64, *exchange, error) {
	id := c.lastID.Add(1)
	data, err := encode(id, o.method, o.params)
	if err == nil && len(data) > c.cfg.MaxMessageBytes {
		err = ErrTooLarge
	}
	if err != nil {
		return 0, nil, &NotSentError{Err: err}
	}
	t := &exchange{frame: data, done: make(chan arrival, 1), live: o.live}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, nil, &NotSentError{Err: c.err, again: true}
	case c.retired:
		return 0, nil, &NotSentError{Err: errRetired, again: true}
	}
	select {
	case c.queue <- t:
	default: // full of withdrawn requests, behind a peer that does not read
		return 0, nil, &NotSentError{Err: ErrQueueFull}
	}
	c.pending[id] = t
	return id, t, nil
}

// abandon ends the wait for t, whose context is over.
func (c *conn) abandon(ctx context.Context, id uint64, t *exchange) (answer, error) {
	if t.state.CompareAndSwap(queued, withdrawn) {
		c.remove(id)
		return answer{}, &NotSentError{Err: ctxError(ctx)}
	}
	if t.live != nil { // its answer is still wanted, to end the subscription
		return answer{}, &lostError{ctxError(ctx)}
	}
	if c.remove(id) == nil { // it is being delivered at this very moment
		a := <-t.done
		return a.answer, a.err
	}
	return answer{}, &lostError{ctxError(ctx)}
}

// remove takes the exchange out of pending, and ends a retired connection with the
// last one. It returns nil when somebody else removed it.
func (c *conn) remove(id uint64) *exchange {
	c.mu.Lock()
	t := c.pending[id]
	delete(c.pending, id)
	idle := c.retired && len(c.pending) == 0
	c.mu.Unlock()
	if idle {
		c.bye(errRetired)
	}
	return t
}

// subscribe makes s the receiver of the events of the subscription id. It
// returns false when the connection is dead.
func (c *conn) subscribe(id string, s *Subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.retired {
		return false
	}
	c.subs[id] = s
	return true
}

// unsubscribe stops the events of id and tells the gateway, by a request that is
// answered by nothing. When there is no room for it, a later event brings the
// next attempt.
func (c *conn) unsubscribe(id string) {
	c.mu.Lock()
	delete(c.subs, id)
	c.mu.Unlock()
	data, err := encode(0, wire.MethodUnsubscribe, []string{id})
	if err != nil {
		return // a string always has a JSON form
	}
	select {
	case c.queue <- &exchange{frame: data}:
	default:
	}
}

// leave asks whoever keeps this connection up to replace it.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left {
		c.left = true
		close(c.leaving)
	}
}

// retire lets the calls under way end and takes no new ones. Subscriptions move
// to the next connection.
func (c *conn) retire() {
	c.mu.Lock()
	c.retired = true
	subs, idle := c.subs, len(c.pending) == 0
	if c.err == nil {
		c.subs = make(map[string]*Subscription)
	}
	c.mu.Unlock()
	for _, s := range subs {
		s.detach(c)
	}
	if idle {
		c.bye(errRetired)
	}
}

// idle reports whether no call is under way.
func (c *conn) idle() bool { return len(c.slots) == 0 && c.waiting.Load() == 0 }

func (c *conn) alive() bool {
	select {
	case <-c.dead:
		return false
	default:
		return true
	}
}

// cause is why the connection is dead.
func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection, at the first call, and tells everybody who waits:
// what was not sent yet, will not be.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if c.parting != nil {
		err = c.parting // the gateway closes upon the goodbye, and the reader may see that first
	}
	c.err = err
	pending, subs := c.pending, c.subs
	c.pending, c.subs = nil, nil
	c.mu.Unlock()
	close(c.dead)
	c.ws.Close()
	for _, t := range pending {
		if t.state.CompareAndSwap(queued, withdrawn) {
			t.done <- arrival{err: &NotSentError{Err: err, again: true}}
		} else {
			t.done <- arrival{err: &lostError{err}}
		}
	}
	for _, s := range subs {
		s.detach(c)
	}
}

// bye ends the connection as fail does, and tells the gateway before.
func (c *conn) bye(err error) {
	c.mu.Lock()
	c.parting = err
	c.mu.Unlock()
	c.goodbye(websocket.CloseNormalClosure)
	c.fail(err)
}

// goodbye sends a close frame, if that can be done at once.
func (c *conn) goodbye(code int) {
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(byeTimeout))
}
