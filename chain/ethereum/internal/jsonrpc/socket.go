package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
)

// minPause is the first pause between two attempts to connect.
const minPause = 200 * time.Millisecond

var (
	errNotConnected = errors.New("not connected")
	errNewSession   = errors.New("connected anew meanwhile")
)

// socket is a node over a WebSocket, over all its connections. Run alone dials.
type socket struct {
	e   *Endpoint
	cfg Config

	mu       sync.Mutex // guards what follows; no I/O beneath it
	cur      *conn      // nil: not connected
	why      error      // why not
	sessions uint64     // connections there have been
}

func newSocket(e *Endpoint, cfg Config) *socket {
	return &socket{e: e, cfg: cfg, why: errNotConnected}
}

// Run keeps the node connected until ctx ends.
func (s *socket) Run(ctx context.Context) {
	pace := &backoff.ExponentialBackOff{
		InitialInterval: minPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: s.cfg.MaxPause,
	}
	for ctx.Err() == nil {
		c, err := s.dial(ctx)
		if err == nil {
			born := time.Now()
			s.set(c, nil)
			err = c.run(ctx)
			if time.Since(born) >= s.cfg.MaxPause {
				pace.Reset()
			}
		}
		if ctx.Err() != nil {
			break
		}
		s.set(nil, err)
		wait := pace.NextBackOff()
		if status, ok := errors.AsType[*StatusError](err); ok {
			wait = max(wait, status.RetryAfter)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
	s.set(nil, ErrClosed)
}

// set notes the connection, or why there is none, and tells the owner.
func (s *socket) set(c *conn, why error) {
	s.mu.Lock()
	s.cur, s.why = c, why
	if c != nil {
		s.sessions++
		c.session = s.sessions
	}
	s.mu.Unlock()
	s.cfg.Changed(why)
}

// current returns the live connection. With another session than 0 it must be that.
func (s *socket) current(session uint64) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cur == nil:
		return nil, notSent(s.why)
	case session != 0 && s.cur.session != session:
		return nil, notSent(errNewSession)
	}
	return s.cur, nil
}

// Session is the number of the live connection; 0: none.
func (s *socket) Session() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil {
		return 0
	}
	return s.cur.session
}

// Reconnect ends the connection of the session.
func (s *socket) Reconnect(session uint64, reason error) {
	if c, err := s.current(session); err == nil {
		c.fail(reason)
	}
}

func (s *socket) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	dialer := websocket.Dialer{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: s.cfg.TLS,
		ReadBufferSize:  4 << 10,
		WriteBufferSize: 4 << 10,
		NetDialContext:  s.cfg.Dial,
	}
	ws, resp, err := wsconn.Dial(ctx, dialer, s.e.target, s.e.header())
	if err != nil {
		return nil, s.e.cleanError(dialError(resp, err, s.e))
	}
	return newConn(s.e, ws, &s.cfg), nil
}

// dialError says why an upgrade failed.
func dialError(resp *http.Response, err error, e *Endpoint) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return err
	}
	status, _ := statusOf(resp, e) // of its body gorilla keeps a part in memory
	return fmt.Errorf("no WebSocket: %w", status)
}
