package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/rpcconn"
	"noncegate/wire"
)

const (
	// minPause bounds the first pause between two attempts to connect.
	minPause = 200 * time.Millisecond
	// pingEvery is how often a connection is tried; silentFor how long it may bring
	// nothing, not even the answer to that.
	pingEvery = 20 * time.Second
	silentFor = 3 * pingEvery
)

// socket is a node over a WebSocket, over all its connections.
type socket struct {
	e    *Endpoint
	kept *rpcconn.Kept
}

func newSocket(e *Endpoint, cfg Config) *socket {
	return &socket{e, rpcconn.NewKept(&rpcconn.Config{
		URLs: []string{e.target}, Header: e.header(), TLS: cfg.TLS, NetDial: cfg.Dial,
		DialTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ReadTimeout: silentFor, PingEvery: pingEvery,
		MaxInflight: cfg.MaxInflight, QueueLimit: cfg.MaxInflight, MaxAnswer: cfg.MaxAnswer,
		Event: "eth_subscription", Unsubscribe: "eth_unsubscribe",
		BackoffMin: minPause, BackoffMax: cfg.MaxPause, MaxAway: maxRetryAfter,
		NotDialled: func(_ string, err error) error { return e.cleanError(e.notDialled(err)) },
		Lost: func(err error) error {
			if errors.Is(err, websocket.ErrReadLimit) {
				err = ErrTooLarge
			}
			return e.cleanError(fmt.Errorf("connection lost: %w", err))
		},
		Changed: func(_ *rpcconn.Conn, err error) { cfg.Changed(err) },
	})}
}

func (e *Endpoint) notDialled(err error) error {
	if status, ok := errors.AsType[*StatusError](err); ok {
		status.Text = e.clean(status.Text)
		return fmt.Errorf("no WebSocket: %w", status)
	}
	return err
}

// Run keeps the node connected until ctx ends.
func (s *socket) Run(ctx context.Context) { s.kept.Run(ctx, ErrClosed) }

// current returns the live connection. With another session than 0 it must be that.
func (s *socket) current(session uint64) (*rpcconn.Conn, error) {
	c, err := s.kept.Live(session)
	return c, failure(err)
}

// failure is an error of a connection as Call.Fail says it.
func failure(err error) error {
	if n, ok := errors.AsType[*rpcconn.NotSentError](err); ok {
		return notSent(n.Err)
	}
	return err
}

// Session is the number of the live connection; 0: none.
func (s *socket) Session() uint64 {
	if c, err := s.kept.Live(0); err == nil {
		return c.Session
	}
	return 0
}

// Reconnect ends the connection of the session.
func (s *socket) Reconnect(session uint64, reason error) {
	if c, err := s.kept.Live(session); err == nil {
		c.Close(reason)
	}
}

// do makes calls over a connection. With a sub there is one, which opens a subscription.
func (e *Endpoint) do(ctx context.Context, c *rpcconn.Conn, sub rpcconn.Sub, calls []*Call, limit int64) {
	a, err := c.Do(ctx, sub, requests(calls)...)
	switch {
	case err != nil:
		failAll(calls, failure(err))
	case int64(a.Bytes) > limit:
		failAll(calls, ErrTooLarge)
	default:
		x := &exchange{calls: calls, first: a.First}
		var wrong error
		for i := range a.Messages {
			if wrong == nil {
				wrong = x.take(&a.Messages[i], e)
			}
		}
		x.finish(wrong)
	}
}

// Subscription is open until Close is called or its connection ends.
type Subscription struct {
	at     *rpcconn.Conn
	id     string // as the node wrote it
	notify func(json.RawMessage)
	ended  func(error)
	close  sync.Once
}

func (e *Endpoint) subscribe(ctx context.Context, c *rpcconn.Conn, maxAnswer int64, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (*Subscription, *Error, error) {
	s := &Subscription{notify: notify, ended: ended}
	call := &Call{Method: "eth_subscribe", Params: params}
	e.do(ctx, c, s, []*Call{call}, maxAnswer)
	if call.Result == nil {
		return nil, call.Err, call.Fail
	}
	return s, nil, nil
}

// Live implements rpcconn.Sub.
func (s *Subscription) Live(c *rpcconn.Conn, id string) bool {
	s.at, s.id = c, id
	return true
}

// Notify implements rpcconn.Sub.
func (s *Subscription) Notify(event wire.Raw) error {
	s.notify(json.RawMessage(event))
	return nil
}

// Ended implements rpcconn.Sub.
func (s *Subscription) Ended(_ *rpcconn.Conn, err error) { s.ended(err) }

// Close ends the subscription and tells the node, without waiting for its answer. A call
// of notify may be under way while it returns. It may be called twice.
func (s *Subscription) Close() { s.close.Do(func() { s.at.Unsubscribe(s.id) }) }
