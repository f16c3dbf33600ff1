package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"noncegate/chain/ethereum"
	"noncegate/wire"
	"noncegate/ws"
)

// streams are the subscriptions that are passed on.
var streams = []string{"newHeads", "logs", "newPendingTransactions"}

// subscribe answers eth_subscribe.
func (e *Endpoint) subscribe(ctx context.Context, c *ws.Call) ws.Answer {
	list, bad := elements(c.Params, 1, 2)
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	if kind, ok := text(list[0]); !ok || !slices.Contains(streams, kind) {
		return ws.Answer{Err: invalid("params[0]", `must be "newHeads", "logs" or "newPendingTransactions"`)}
	}
	m := &member{feeds: &e.feeds}
	stream, bad := c.Open(notification, m.leave)
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	m.stream = stream
	refusal, err := e.feeds.join(ctx, m, c.Params)
	switch {
	case err != nil:
		return ws.Answer{Err: errOfNodes(err)}
	case refusal != nil:
		return ws.Answer{Foreign: &ws.Foreign{Code: refusal.Code, Message: refusal.Message, Data: refusal.Data}}
	}
	return result(stream.ID())
}

// unsubscribe answers eth_unsubscribe.
func (e *Endpoint) unsubscribe(c *ws.Call) ws.Answer {
	list, bad := elements(c.Params, 1, 1)
	if bad != nil {
		return ws.Answer{Err: bad}
	}
	id, _ := text(list[0])
	if !c.Close(id) {
		return ws.Answer{Err: wire.Errorf(wire.CodeNotFound, "this connection has no such subscription")}
	}
	return ws.Answer{Result: []byte("true")}
}

// feeds are the subscriptions at nodes. Clients that want the same share one.
type feeds struct {
	e *Endpoint

	mu       sync.Mutex // guards what follows, and the feeds; no I/O under it
	byParams map[string]*feed
}

// feed is one subscription at a node, as long as somebody wants it.
type feed struct {
	params  string
	members []*member     // replaced when it changes
	opened  chan struct{} // closed when it is known whether the node takes it
	refusal *ethereum.RPCError
	err     error
	end     func() // ends it at the node; nil: it is not open
	over    bool   // nobody joins it any more
}

// member is one client's subscription to a feed.
type member struct {
	feeds  *feeds
	stream ws.Stream
	feed   *feed // guarded by feeds.mu; nil: none
	left   bool  // guarded by feeds.mu
}

func (fs *feeds) len() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byParams)
}

// join makes m a member of the feed with such params, and opens it if there is none.
func (fs *feeds) join(ctx context.Context, m *member, params []byte) (*ethereum.RPCError, error) {
	var key bytes.Buffer
	if err := json.Compact(&key, params); err != nil { // it was read as JSON before
		return nil, err
	}
	f, first := fs.enter(m, key.String())
	if first {
		fs.open(ctx, f)
	}
	select {
	case <-f.opened:
		return f.refusal, f.err
	case <-ctx.Done():
		return nil, context.Cause(ctx) // the stream ends with the connection, and the member with it
	}
}

// enter makes m a member. first: it is the one to open the feed.
func (fs *feeds) enter(m *member, params string) (f *feed, first bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.byParams[params]
	if f == nil {
		f, first = &feed{params: params, opened: make(chan struct{})}, true
		if fs.byParams == nil {
			fs.byParams = make(map[string]*feed)
		}
		fs.byParams[params] = f
	}
	if !m.left {
		m.feed = f
		f.members = append(slices.Clone(f.members), m)
	}
	return f, first
}

// open opens a feed at a node. It is done for all who want it meanwhile, so it does not
// end with the one who came first.
func (fs *feeds) open(ctx context.Context, f *feed) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fs.e.cfg.ReadTimeout)
	defer cancel()
	var end func()
	var refusal *ethereum.RPCError
	err := fs.e.patiently(ctx, func() (err error) {
		end, refusal, err = fs.e.nodes.Subscribe(ctx, json.RawMessage(f.params),
			func(event json.RawMessage) { fs.deliver(f, event) }, func(reason error) { fs.lost(f, reason) })
		return err
	})
	fs.mu.Lock()
	f.end, f.refusal, f.err = end, refusal, err
	if end == nil || len(f.members) == 0 {
		fs.forgetLocked(f)
	}
	unwanted := end != nil && len(f.members) == 0
	fs.mu.Unlock()
	close(f.opened)
	if unwanted {
		end()
	}
}

// forgetLocked lets nobody join the feed any more.
func (fs *feeds) forgetLocked(f *feed) {
	f.over = true
	if fs.byParams[f.params] == f {
		delete(fs.byParams, f.params)
	}
}

// deliver hands an event of a node to all who want it.
func (fs *feeds) deliver(f *feed, event []byte) {
	fs.mu.Lock()
	members := f.members
	fs.mu.Unlock()
	for _, m := range members {
		m.stream.Notify(event)
	}
}

// lost ends a feed whose events are lost. Whoever waits for them is told by the end of
// its connection.
func (fs *feeds) lost(f *feed, reason error) {
	fs.mu.Lock()
	members := f.members
	f.members = nil
	fs.forgetLocked(f)
	fs.mu.Unlock()
	for _, m := range members {
		m.stream.Lost("events of a subscription are lost: " + clipTo(reason.Error(), maxCloseText))
	}
}

// maxCloseText bounds the reason in a close frame, which may have 123 bytes.
const maxCloseText = 80

// leave ends a member's subscription, and that at the node with the last one.
func (m *member) leave() {
	fs := m.feeds
	fs.mu.Lock()
	m.left = true
	f := m.feed
	var end func()
	if f != nil {
		m.feed = nil
		f.members = slices.DeleteFunc(slices.Clone(f.members), func(other *member) bool { return other == m })
		if len(f.members) == 0 && f.end != nil && !f.over {
			fs.forgetLocked(f)
			end = f.end
		}
	}
	fs.mu.Unlock()
	if end != nil {
		end()
	}
}
