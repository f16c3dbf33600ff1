package rpcconn

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
	spareFrames = 64 // queue slots for requests whose answer has no caller any more
	byeTimeout  = 100 * time.Millisecond
)

// Conn is one life of one connection.
type Conn struct {
	URL     string
	Session uint64 // which of its Kept's connections it is, from 1; set before others have it

	cfg  *Config
	born time.Time
	ws   *websocket.Conn
	cork *wsconn.Cork // beneath ws

	slots          chan struct{}  // one for each pending exchange with a caller
	waiting        atomic.Int64   // calls that wait for a slot
	queue          chan *exchange // to the writer
	pongs          wsconn.Pongs   // to the writer
	lastID         atomic.Uint64
	broken         atomic.Bool   // the writer gave up; see breakOff
	dead           chan struct{} // closed by fail
	leaving        chan struct{} // closed by Leave
	leave          sync.Once
	unsubscribedAt time.Time // the reader's: when it last ended a subscription without a subscriber

	mu       sync.Mutex           // guards what follows; no I/O beneath it
	err      error                // why it is dead
	parting  error                // why it is about to be: a goodbye is on its way
	writeErr error                // why the writer gave up
	retired  bool                 // takes no new calls, ends with the last one
	pending  map[uint64]*exchange // by the id of each call; nil when dead
	unwanted int                  // pending exchanges without a slot; see disown
	subs     map[string]Sub       // live here, by id as the other side writes it; nil when dead
}

func newConn(url string, ws *websocket.Conn, cork *wsconn.Cork, cfg *Config) *Conn {
	c := &Conn{
		URL: url, cfg: cfg, born: time.Now(), ws: ws, cork: cork,
		slots:   make(chan struct{}, cfg.MaxInflight),
		queue:   make(chan *exchange, cfg.MaxInflight+spareFrames),
		pongs:   wsconn.NewPongs(),
		dead:    make(chan struct{}),
		leaving: make(chan struct{}),
		pending: make(map[uint64]*exchange),
		subs:    make(map[string]Sub),
	}
	ws.SetReadLimit(drained * cfg.MaxAnswer)
	ws.SetPingHandler(func(data string) error { // answered by the writer
		c.extend()
		c.pongs.Put(data)
		return nil
	})
	ws.SetPongHandler(func(string) error { c.extend(); return nil })
	ws.SetCloseHandler(func(code int, _ string) error { c.goodbye(code); return nil })
	return c
}

// exchange is one message on its way, which one message answers.
type exchange struct {
	frame    []byte
	first, n uint64 // its ids are first, first+1, …
	sub      Sub    // whose subscription it opens, or nil
	state    atomic.Int32
	sentAt   time.Time    // set by the writer before sent
	done     chan outcome // receives once, unless the exchange was removed from pending
	unwanted bool         // see disown; guarded by Conn.mu
}

const (
	queued    = iota
	sent      // handed to the network, or about to be
	withdrawn // never sent
)

type outcome struct {
	answer Answer
	err    error
}

// Do sends calls as one message, a batch where there are several, and waits for what
// answers them. With a sub there is one call, and its result is the id of a subscription.
// A *NotSentError says that nothing was sent, any other error that the outcome is unknown.
func (c *Conn) Do(ctx context.Context, sub Sub, calls ...Call) (Answer, error) {
	if err := c.enter(ctx); err != nil {
		return Answer{}, err
	}
	t, err := c.enqueue(sub, calls)
	if err != nil {
		<-c.slots
		return Answer{}, err
	}
	select {
	case o := <-t.done:
		return o.answer, o.err
	case <-ctx.Done():
		return c.abandon(ctx, t)
	}
}

// enter takes a slot, waiting for one behind at most QueueLimit others.
func (c *Conn) enter(ctx context.Context) error {
	if ctx.Err() != nil {
		return &NotSentError{Err: Why(ctx)}
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
		return &NotSentError{Err: c.Err(), Again: true}
	case <-ctx.Done():
		return &NotSentError{Err: Why(ctx)}
	}
}

func (c *Conn) enqueue(sub Sub, calls []Call) (*exchange, error) {
	n := uint64(len(calls))
	t := &exchange{first: c.lastID.Add(n) - n + 1, n: n, sub: sub, done: make(chan outcome, 1)}
	var err error
	t.frame, err = Encode(t.first, calls)
	if err == nil && c.cfg.MaxRequest > 0 && len(t.frame) > c.cfg.MaxRequest {
		err = ErrTooLarge
	}
	if err != nil {
		return nil, &NotSentError{Err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, &NotSentError{Err: c.err, Again: true}
	case c.retired:
		return nil, &NotSentError{Err: c.cfg.Lost(ErrLeaving), Again: true}
	}
	select {
	case c.queue <- t:
	default: // full of withdrawn requests, behind a peer that does not read
		return nil, &NotSentError{Err: ErrQueueFull}
	}
	for id := range n {
		c.pending[t.first+id] = t
	}
	return t, nil
}

// abandon ends the wait for t, whose context is over.
func (c *Conn) abandon(ctx context.Context, t *exchange) (Answer, error) {
	if t.state.CompareAndSwap(queued, withdrawn) {
		c.remove(t)
		return Answer{}, &NotSentError{Err: Why(ctx)}
	}
	if t.sub != nil && c.disown(t) || c.remove(t) {
		return Answer{}, Why(ctx)
	}
	o := <-t.done // it is being delivered at this very moment
	return o.answer, o.err
}

// disown gives up the slot of t. Its caller does not wait any more; its answer is awaited only to end
// the subscription. It returns false when it was answered, or there are spareFrames such
// already: then the first event tells.
func (c *Conn) disown(t *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[t.first] != t || c.unwanted == spareFrames {
		return false
	}
	t.unwanted = true
	c.unwanted++
	<-c.slots
	return true
}

// remove takes the exchange out of pending, and ends a retired connection with the last
// one. It returns false when that was done before.
func (c *Conn) remove(t *exchange) bool {
	c.mu.Lock()
	if c.pending[t.first] != t {
		c.mu.Unlock()
		return false
	}
	for id := range t.n {
		delete(c.pending, t.first+id)
	}
	if t.unwanted {
		c.unwanted--
	} else {
		<-c.slots
	}
	over := c.retired && len(c.pending) == 0
	c.mu.Unlock()
	if over {
		c.Close(c.cfg.Lost(ErrLeaving))
	}
	return true
}

// Unsubscribe stops the events of a subscription and tells the other side, whose answer
// is not waited for. When there is no room for it, a later event brings the next attempt.
func (c *Conn) Unsubscribe(id string) {
	c.mu.Lock()
	delete(c.subs, id)
	c.mu.Unlock()
	n := c.lastID.Add(1)
	frame, err := Encode(n, []Call{{c.cfg.Unsubscribe, []wire.Raw{wire.Raw(id)}}})
	if err != nil {
		return // it was read as JSON
	}
	select {
	case c.queue <- &exchange{frame: frame, first: n}:
	default:
	}
}

// Leave asks a Kept to replace this connection.
func (c *Conn) Leave() { c.leave.Do(func() { close(c.leaving) }) }

// Dead is closed when the connection has ended; Err says why.
func (c *Conn) Dead() <-chan struct{} { return c.dead }

// Retire lets the calls under way end and takes no new ones. Subscriptions end.
func (c *Conn) Retire() {
	c.mu.Lock()
	c.retired = true
	subs, over := c.subs, len(c.pending) == 0
	if c.err == nil {
		c.subs = make(map[string]Sub)
	}
	c.mu.Unlock()
	why := c.cfg.Lost(ErrLeaving)
	for _, s := range subs {
		s.Ended(c, why)
	}
	if over {
		c.Close(why)
	}
}

// Idle reports whether no call is under way.
func (c *Conn) Idle() bool { return len(c.slots) == 0 && c.waiting.Load() == 0 }

// Alive reports whether it has not ended.
func (c *Conn) Alive() bool { return c.Err() == nil }

// Err is why it is dead, nil while it is not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection, at the first call, and tells all that wait: what was not
// sent yet, will not be.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if c.parting != nil {
		err = c.parting // the other side closes upon the goodbye, and the reader may see that first
	}
	c.err = err
	pending, subs := c.pending, c.subs
	c.pending, c.subs = nil, nil
	c.mu.Unlock()
	close(c.dead)
	c.ws.Close()
	for id, t := range pending {
		switch {
		case id != t.first:
		case t.state.CompareAndSwap(queued, withdrawn):
			t.done <- outcome{err: &NotSentError{Err: err, Again: true}}
		default:
			t.done <- outcome{err: err}
		}
	}
	for _, s := range subs {
		s.Ended(c, err)
	}
}

// Close ends the connection for the reason given, and tells the other side if that can
// be done at once. It does not wait for Run.
func (c *Conn) Close(err error) {
	c.mu.Lock()
	c.parting = err
	c.mu.Unlock()
	c.goodbye(websocket.CloseNormalClosure)
	c.fail(err)
}

func (c *Conn) goodbye(code int) {
	c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(byeTimeout))
}
