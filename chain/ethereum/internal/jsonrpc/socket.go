package jsonrpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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

// socket is a node over two WebSockets. A large answer is one message, which holds up all behind
// it, so calls and subscriptions of others have a connection of their own and delay no head,
// count or transaction. It is made when the first of them comes; those that come while there is
// none, or where the node does not take a second one, go over the gateway's own. The session is
// that of the latter.
type socket struct {
	e           *Endpoint
	maxAnswer   int64
	own, others *rpcconn.Kept
	wanted      chan struct{} // holds one: others are to be connected
	dials       atomic.Uint64 // of others
}

func newSocket(e *Endpoint, cfg Config) *socket {
	s := &socket{e: e, maxAnswer: cfg.MaxAnswer, wanted: make(chan struct{}, 1)}
	s.own = e.kept(cfg, func(_ *rpcconn.Conn, why error) { cfg.Changed(why) })
	s.others = e.kept(cfg, func(_ *rpcconn.Conn, why error) {
		if why == nil {
			s.dials.Add(1)
		}
	})
	return s
}

func (e *Endpoint) kept(cfg Config, changed func(*rpcconn.Conn, error)) *rpcconn.Kept {
	return rpcconn.NewKept(&rpcconn.Config{
		URLs: []string{e.target}, Header: e.header(), NetDial: cfg.Dial,
		DialTimeout: cfg.Timeout, WriteTimeout: cfg.Timeout, ReadTimeout: silentFor, PingEvery: pingEvery,
		MaxInflight: cfg.MaxInflight, QueueLimit: cfg.MaxInflight, MaxAnswer: cfg.MaxAnswer,
		Event: "eth_subscription", Unsubscribe: "eth_unsubscribe",
		BackoffMin: minPause, BackoffMax: cfg.MaxPause, MaxAway: maxRetryAfter,
		NotDialled: func(_ string, err error) error {
			if status, ok := errors.AsType[*StatusError](err); ok {
				status.Text = e.clean(status.Text)
				err = fmt.Errorf("no WebSocket: %w", status)
			}
			return e.cleanError(err)
		},
		Lost: func(err error) error {
			if errors.Is(err, websocket.ErrReadLimit) {
				err = ErrTooLarge
			}
			return e.cleanError(fmt.Errorf("connection lost: %w", err))
		},
		Changed: changed,
	})
}

// Run implements Node.
func (s *socket) Run(ctx context.Context) {
	var others sync.WaitGroup
	others.Go(func() {
		select {
		case <-s.wanted:
			s.others.Run(ctx, ErrClosed)
		case <-ctx.Done():
		}
	})
	s.own.Run(ctx, ErrClosed)
	others.Wait()
}

// conn returns the connection for what ctx is for.
func (s *socket) conn(ctx context.Context, session uint64) (*rpcconn.Conn, error) {
	own, err := s.own.Live(session)
	if err != nil || !isForOthers(ctx) {
		return own, failure(err)
	}
	if c, err := s.others.Live(0); err == nil {
		return c, nil
	}
	select {
	case s.wanted <- struct{}{}:
	default:
	}
	return own, nil
}

// failure is an error of a connection as Call.Fail says it.
func failure(err error) error {
	if n, ok := errors.AsType[*rpcconn.NotSentError](err); ok {
		return notSent(n.Err)
	}
	return err
}

// Session implements Node.
func (s *socket) Session() uint64 {
	if c, err := s.own.Live(0); err == nil {
		return c.Session
	}
	return 0
}

// Dials implements Node.
func (s *socket) Dials() uint64 { return s.dials.Load() }

// Reconnect implements Node.
func (s *socket) Reconnect(session uint64, reason error) {
	if c, err := s.own.Live(session); err == nil {
		c.Close(reason)
	}
}

// Do implements Node.
func (s *socket) Do(ctx context.Context, session uint64, calls []*Call, limit int64) {
	s.do(ctx, session, nil, calls, limit)
}

// do makes calls. With a sub there is one, which opens a subscription.
func (s *socket) do(ctx context.Context, session uint64, sub rpcconn.Sub, calls []*Call, limit int64) {
	c, err := s.conn(ctx, session)
	var a rpcconn.Answer
	if err == nil {
		a, err = c.Do(ctx, sub, requests(calls)...)
	}
	switch {
	case err != nil:
		failAll(calls, failure(err))
	case int64(a.Bytes) > limit:
		failAll(calls, ErrTooLarge)
	default:
		s.e.settle(calls, a.First, a.Messages, nil)
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

// Subscribe implements Node.
func (s *socket) Subscribe(ctx context.Context, session uint64, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (
	*Subscription, *Error, error,
) {
	sub := &Subscription{notify: notify, ended: ended}
	call := &Call{Method: "eth_subscribe", Params: params}
	if s.do(ctx, session, sub, []*Call{call}, s.maxAnswer); call.Result == nil {
		return nil, call.Err, call.Fail
	}
	return sub, nil, nil
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
