package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

// Client is a connection to a gateway that is kept open. All methods may be
// called by many goroutines.
type Client struct {
	cfg    Config
	rpc    *rpcconn.Config
	ctx    context.Context // ends with ErrClosed
	cancel context.CancelCauseFunc
	main   *rpcconn.Kept
	owners *owners

	mu     sync.Mutex // guards what follows
	closed bool
	wg     sync.WaitGroup // all goroutines; none is added once closed
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
	c := &Client{cfg: cfg}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.rpc = c.connections()
	c.owners = newOwners(c)
	c.main = rpcconn.NewKept(c.rpc)
	if err := c.main.Dial(ctx); err != nil {
		return nil, err
	}
	c.spawn(func() { c.main.Run(c.ctx, ErrClosed) })
	return c, nil
}

const (
	maxReplyBytes = 16 << 20    // a page of 1,000 allocations is below 1 MiB
	longestAway   = time.Minute // what a gateway, or a proxy before it, may ask for
)

func (c *Client) connections() *rpcconn.Config {
	cfg := &c.cfg
	return &rpcconn.Config{
		URLs: cfg.URLs, Header: cfg.Header, TLS: cfg.TLS, NetDial: cfg.NetDial,
		DialTimeout: cfg.DialTimeout, ReadTimeout: cfg.ReadTimeout, WriteTimeout: cfg.WriteTimeout,
		MaxInflight: cfg.MaxInflight, QueueLimit: cfg.QueueLimit,
		MaxRequest: cfg.MaxMessageBytes, MaxAnswer: maxReplyBytes,
		Event: wire.MethodSubscription, Unsubscribe: wire.MethodUnsubscribe, Strict: true,
		BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax, MaxAway: longestAway,
		NotDialled: notDialled, Lost: lost, Final: final, Changed: c.changed,
	}
}

// changed writes what became of the main connection into the log.
func (c *Client) changed(conn *rpcconn.Conn, err error) {
	switch log := c.cfg.Logger; {
	case conn == nil:
		log.Info("not connected", "error", err)
	case err == nil:
		log.Info("connected", "url", conn.URL)
	case errors.Is(err, rpcconn.ErrLeaving):
		log.Info("gateway is draining", "url", conn.URL)
	case !errors.Is(err, ErrClosed): // which was not lost
		log.Info("connection lost", "url", conn.URL, "error", err)
	}
}

// Close ends all connections and goroutines of the client and waits for them.
// Calls under way end with ErrClosed in their error: those that were sent are
// unknown. It may be called more than once, and returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(ErrClosed)
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
