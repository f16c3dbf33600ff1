package jsonrpc

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"

	"noncegate/internal/rpcconn"
)

// pair is a node over two WebSockets. A large answer is one message, which holds up all behind
// it, so calls and subscriptions of others have a connection of their own and delay no head,
// count or transaction. It is made when the first of them comes; those that come while there is
// none, or where the node does not take a second one, go over the gateway's own. The session is
// that of the latter.
type pair struct {
	own, others *socket
	wanted      chan struct{} // holds one: others are to be connected
	dials       atomic.Uint64 // of others
	maxAnswer   int64
}

func newPair(e *Endpoint, cfg Config) *pair {
	p := &pair{own: newSocket(e, cfg), wanted: make(chan struct{}, 1), maxAnswer: cfg.MaxAnswer}
	cfg.Changed = func(why error) {
		if why == nil {
			p.dials.Add(1)
		}
	}
	p.others = newSocket(e, cfg)
	return p
}

// Run implements Node.
func (p *pair) Run(ctx context.Context) {
	var others sync.WaitGroup
	others.Go(func() {
		select {
		case <-p.wanted:
			p.others.Run(ctx)
		case <-ctx.Done():
		}
	})
	p.own.Run(ctx)
	others.Wait()
}

// conn returns the connection for what ctx is for.
func (p *pair) conn(ctx context.Context, session uint64) (*rpcconn.Conn, error) {
	own, err := p.own.current(session)
	if err != nil || ctx.Value(forOthers{}) == nil {
		return own, err
	}
	if c, err := p.others.current(0); err == nil {
		return c, nil
	}
	select {
	case p.wanted <- struct{}{}:
	default:
	}
	return own, nil
}

// Do implements Node.
func (p *pair) Do(ctx context.Context, session uint64, calls []*Call, limit int64) {
	c, err := p.conn(ctx, session)
	if err != nil {
		failAll(calls, err)
		return
	}
	p.own.e.do(ctx, c, nil, calls, limit)
}

// Subscribe implements Node.
func (p *pair) Subscribe(ctx context.Context, session uint64, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (*Subscription, *Error, error) {
	c, err := p.conn(ctx, session)
	if err != nil {
		return nil, nil, err
	}
	return p.own.e.subscribe(ctx, c, p.maxAnswer, params, notify, ended)
}

// Session implements Node.
func (p *pair) Session() uint64 { return p.own.Session() }

// Dials implements Node.
func (p *pair) Dials() uint64 { return p.dials.Load() }

// Reconnect implements Node.
func (p *pair) Reconnect(session uint64, reason error) { p.own.Reconnect(session, reason) }
