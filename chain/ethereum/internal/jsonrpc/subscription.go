package jsonrpc

import (
	"context"
	"encoding/json"
)

// Subscription is open until Close is called or its connection ends.
type Subscription struct {
	c      *conn
	id     string // as the node wrote it
	notify func(json.RawMessage)
	ended  func(error)
}

func (c *conn) subscribe(ctx context.Context, params json.RawMessage, notify func(json.RawMessage), ended func(error)) (*Subscription, *Error, error) {
	s := &Subscription{c: c, notify: notify, ended: ended}
	call := &Call{Method: "eth_subscribe", Params: params}
	call.answered = func(result json.RawMessage) {
		s.id = string(result)
		if c.subs != nil {
			c.subs[s.id] = s
		}
	}
	c.do(ctx, []*Call{call}, c.cfg.MaxAnswer)
	if call.Result == nil {
		return nil, call.Err, call.Fail
	}
	return s, nil, nil
}

// Close ends the subscription and tells the node, without waiting for its answer; the
// write itself is bounded by Config.Timeout. A call of notify may be under way while it
// returns. It may be called twice.
func (s *Subscription) Close() {
	c := s.c
	c.mu.Lock()
	_, open := c.subs[s.id]
	delete(c.subs, s.id)
	c.mu.Unlock()
	if open {
		c.unsubscribe(s.id)
	}
}

// unsubscribe tells the node that nobody wants the events of a subscription. The answer
// is not waited for.
func (c *conn) unsubscribe(id string) {
	c.mu.Lock()
	c.lastID++
	n := c.lastID
	c.mu.Unlock()
	call := &Call{Method: "eth_unsubscribe", Params: json.RawMessage("[" + id + "]")}
	data, err := encode([]*Call{call}, n)
	if err != nil {
		return // the id was read as JSON
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	_ = c.write(ctx, data) // on a dead connection there is nothing left to end
}
