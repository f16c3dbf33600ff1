package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

const (
	// pingEvery is how often a connection is tried; silentFor how long it may bring
	// nothing, not even the answer to that.
	pingEvery = 20 * time.Second
	silentFor = 3 * pingEvery
	// drained is how many times the bound of an answer a message may have that is read
	// and dropped. A larger one ends the connection.
	drained = 16
	// endBytes is how much of both ends of such a message is looked at.
	endBytes = 128
)

// conn is one life of one WebSocket connection. Its reader and its pinger are run's;
// any goroutine may send.
type conn struct {
	e         *Endpoint
	cfg       *Config
	ws        *websocket.Conn
	session   uint64        // set before anybody else has the conn
	writing   chan struct{} // one slot: gorilla allows one writer
	dead      chan struct{} // closed by fail
	unclaimed chan string   // to the pinger: a subscription that nobody has, to be ended

	mu      sync.Mutex               // guards what follows, and the calls of pending exchanges; no I/O beneath it
	err     error                    // why it is dead
	lastID  uint64                   // the last that was given to a request
	pending map[uint64]*waiting      // by the id of each call; nil when dead
	subs    map[string]*Subscription // by the node's id, as it wrote it; nil when dead
}

// waiting is an exchange that somebody waits for.
type waiting struct {
	exchange
	limit int64
	done  chan struct{} // closed when all calls are settled
}

func newConn(e *Endpoint, ws *websocket.Conn, cfg *Config) *conn {
	ws.SetReadLimit(drained * cfg.MaxAnswer)
	return &conn{
		e: e, cfg: cfg, ws: ws,
		writing:   make(chan struct{}, 1),
		dead:      make(chan struct{}),
		unclaimed: make(chan string, 1),
		pending:   make(map[uint64]*waiting),
		subs:      make(map[string]*Subscription),
	}
}

// run reads until the connection is dead, and returns why. It ends when ctx does.
func (c *conn) run(ctx context.Context) error {
	unwatch := context.AfterFunc(ctx, func() { c.fail(ErrClosed) })
	var pinger sync.WaitGroup
	pinger.Go(c.pingLoop)
	c.ws.SetPongHandler(func(string) error { return c.extend() })
	for {
		_ = c.extend() // fails on a dead connection, as the read then does
		err := c.next()
		if err != nil {
			c.fail(c.endOf(err))
			break
		}
	}
	pinger.Wait()
	if !unwatch() { // it is failing the connection at this moment
		<-c.dead
	}
	return c.cause()
}

// next reads one message and handles it.
func (c *conn) next() error {
	_, r, err := c.ws.NextReader()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(r, c.cfg.MaxAnswer))
	if err != nil {
		return err
	}
	tail := &lastBytes{}
	rest, err := io.Copy(tail, r)
	switch {
	case err != nil:
		return err
	case rest > 0:
		return c.tooLarge(data, tail.buf)
	}
	return c.receive(data)
}

// tooLarge tells whoever asked for a message that was not kept. The id is looked for at
// both ends of it, which is where nodes put it.
func (c *conn) tooLarge(data, tail []byte) error {
	for _, part := range [][]byte{data[:min(len(data), endBytes)], tail} {
		m := idOf.FindSubmatch(part)
		if m == nil {
			continue
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		n, _ := strconv.ParseUint(string(m[1]), 10, 64) // of nobody if it is no number of ours
		if w := c.pending[n]; w != nil {
			c.settleLocked(w, ErrTooLarge)
		}
		return nil
	}
	return ErrTooLarge
}

// idOf finds the member id of an answer.
var idOf = regexp.MustCompile(`"id"\s*:\s*(\d+)`)

// lastBytes is an io.Writer that keeps the end of what is written.
type lastBytes struct{ buf []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p[max(0, len(p)-endBytes):]...)
	l.buf = append(l.buf[:0], l.buf[max(0, len(l.buf)-endBytes):]...)
	return len(p), nil
}

func (c *conn) extend() error { return c.ws.SetReadDeadline(time.Now().Add(silentFor)) }

func (c *conn) pingLoop() {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case id := <-c.unclaimed:
			c.unsubscribe(id)
		case <-tick.C:
			if err := c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(c.cfg.Timeout)); err != nil {
				c.fail(c.endOf(err))
			}
		case <-c.dead:
			return
		}
	}
}

// endOf is the error of a connection whose reader or writer met err.
func (c *conn) endOf(err error) error {
	if errors.Is(err, websocket.ErrReadLimit) {
		err = ErrTooLarge
	}
	return c.e.cleanError(fmt.Errorf("connection lost: %w", err))
}

func (c *conn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// fail ends the connection, at the first call, and tells everybody who waits.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	subs := c.subs
	for _, w := range c.pending {
		c.settleLocked(w, err)
	}
	c.pending, c.subs = nil, nil
	c.mu.Unlock()
	close(c.dead)
	c.ws.Close()
	for _, s := range subs {
		s.ended(err)
	}
}

// settleLocked ends the wait for w; err is what its open calls get, nil where the
// message that answers it says so itself.
func (c *conn) settleLocked(w *waiting, err error) {
	select {
	case <-w.done:
		return
	default:
	}
	w.finish(err)
	for i := range w.calls {
		delete(c.pending, w.first+uint64(i))
	}
	close(w.done)
}

func (c *conn) do(ctx context.Context, calls []*Call, limit int64) {
	w, data, err := c.register(calls, limit)
	if err != nil {
		failAll(calls, err)
		return
	}
	if err := c.write(ctx, data); err != nil {
		c.mu.Lock()
		c.settleLocked(w, err)
		c.mu.Unlock()
		return
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		c.mu.Lock()
		c.settleLocked(w, context.Cause(ctx))
		c.mu.Unlock()
	}
}

// register gives ids to calls.
func (c *conn) register(calls []*Call, limit int64) (*waiting, []byte, error) {
	w := &waiting{exchange: exchange{calls: calls}, limit: limit, done: make(chan struct{})}
	c.mu.Lock()
	w.first = c.lastID + 1
	c.lastID += uint64(len(calls))
	c.mu.Unlock()
	data, err := encode(calls, w.first)
	if err != nil {
		return nil, nil, notSent(fmt.Errorf("parameters: %w", err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, nil, notSent(c.err)
	}
	for i := range calls {
		c.pending[w.first+uint64(i)] = w
	}
	return w, data, nil
}

// write sends one message. A write that fails halfway ends the connection.
func (c *conn) write(ctx context.Context, data []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return notSent(context.Cause(ctx))
	case <-c.dead:
		return notSent(c.cause())
	}
	if ctx.Err() != nil {
		return notSent(context.Cause(ctx))
	}
	deadline := time.Now().Add(c.cfg.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = c.ws.SetWriteDeadline(deadline) // gorilla's never fails
	if err := c.ws.WriteMessage(websocket.TextMessage, data); err != nil {
		err = c.endOf(err)
		c.fail(err)
		return err
	}
	return nil
}

// receive handles one message of the node. An error ends the connection: whoever sends
// what cannot be read may have meant anybody's answer.
func (c *conn) receive(data []byte) error {
	var answered *waiting
	err := each(data, func(m *message) error {
		if m.Method != "" && len(m.ID) == 0 {
			c.notify(m)
			return nil
		}
		w, err := c.answer(m, int64(len(data)))
		if w != nil {
			answered = w
		}
		return err
	})
	if answered != nil { // a request is answered by one message, so it is complete
		c.mu.Lock()
		c.settleLocked(answered, batchError(err))
		c.mu.Unlock()
	}
	if batchError(err) != nil {
		return nil
	}
	return err
}

// batchError returns err if it is about one request and leaves the connection usable.
func batchError(err error) error {
	if be, ok := errors.AsType[*BatchError](err); ok {
		return be
	}
	return nil
}

// answer gives m to the call that it answers, and returns the exchange of that. nil:
// whoever asked is gone.
func (c *conn) answer(m *message, size int64) (*waiting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, ok := m.id()
	w := c.pending[n]
	switch {
	case !ok:
		w = c.refusedLocked()
	case w == nil && n > c.lastID:
		return nil, nonsense("it answers a request that was not made")
	}
	if w == nil {
		return nil, nil
	}
	if size > w.limit {
		w.fail(ErrTooLarge)
		return w, nil
	}
	return w, w.take(m, c.e)
}

// refusedLocked finds whom an error without id is meant for: the only request under
// way, or the only batch.
func (c *conn) refusedLocked() *waiting {
	var one, batch *waiting
	ones, batches := 0, 0
	for _, w := range c.pending {
		if w != one && w != batch {
			if len(w.calls) > 1 {
				batch, batches = w, batches+1
			} else {
				one, ones = w, ones+1
			}
		}
	}
	switch {
	case batches == 1:
		return batch
	case batches == 0 && ones == 1:
		return one
	}
	return nil
}

// notification is what an event of a subscription comes in.
type notification struct {
	Subscription wire.Raw        `json:"subscription"`
	Result       json.RawMessage `json:"result"`
}

func (c *conn) notify(m *message) {
	var n notification
	if m.Method != "eth_subscription" || wire.Unmarshal(m.Params, &n) != nil || len(n.Result) == 0 {
		return // of no subscription of ours, or of one that cannot be told
	}
	c.mu.Lock()
	s := c.subs[string(n.Subscription)]
	c.mu.Unlock()
	if s != nil {
		s.notify(n.Result)
		return
	}
	select { // whoever wanted it is gone; when there is no room, the next event tells again
	case c.unclaimed <- string(n.Subscription):
	default:
	}
}
