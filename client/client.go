package client

import (
	"context"
	"errors"
	"sync"
)

// Client is a connection to a gateway that is kept open. All methods may be
// called by many goroutines.
type Client struct {
	cfg    Config
	ctx    context.Context // ends with ErrClosed
	cancel context.CancelCauseFunc
	main   *link
	owners *owners

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[*conn]struct{} // whose goroutines run
	wg     sync.WaitGroup     // all goroutines; none is added once closed
}

// Dial connects to the gateway at url, such as "ws://localhost:8080/ws", trying
// each of cfg.URLs once when it must. ctx bounds only that. The error joins a
// *DialError for each address. An API key may be in the URL, as the password of
// any user: "wss://any:KEY@host/ws". It is not shown in errors and logs.
func Dial(ctx context.Context, url string, cfg Config) (*Client, error) {
	cfg, err := cfg.complete(url)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, conns: make(map[*conn]struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.owners = newOwners(c)
	c.main = newLink(c)
	var errs []error
	for range cfg.URLs {
		first, err := c.main.dialNext(ctx)
		if err == nil {
			c.main.publish(first)
			c.spawn(func() { c.main.keep(first) })
			return c, nil
		}
		errs = append(errs, err)
	}
	c.Close()
	return nil, errors.Join(errs...)
}

// Close ends all connections and goroutines of the client and waits for them.
// Calls under way end with ErrClosed in their error: those that were sent are
// unknown. Later calls were not sent. It may be called more than once, and
// returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	var open []*conn
	for conn := range c.conns {
		open = append(open, conn)
	}
	c.mu.Unlock()
	c.cancel(ErrClosed)
	var byes sync.WaitGroup
	for _, conn := range open {
		byes.Go(func() { conn.bye(ErrClosed) })
	}
	byes.Wait()
	c.wg.Wait()
	return nil
}

// spawn is the only place where goroutines that outlive a call are started. It
// returns false, and starts nothing, once the client is closed.
func (c *Client) spawn(fn func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(fn)
	return true
}

// run starts the goroutines of a new connection. It returns false, and ends the
// connection, once the client is closed.
func (c *Client) run(conn *conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		conn.ws.Close()
		return false
	}
	c.conns[conn] = struct{}{}
	c.wg.Go(conn.writeLoop)
	c.wg.Go(func() {
		conn.readLoop()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, conn)
	})
	return true
}
