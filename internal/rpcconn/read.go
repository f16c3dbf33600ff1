package rpcconn

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

const (
	// drained is how many times MaxAnswer a message may have that is read and dropped. A
	// larger one ends the connection.
	drained = 16
	// endBytes is how much of both ends of such a message is looked at.
	endBytes = 128
	// unsubscribeEvery is the pause between two attempts to end subscriptions without a subscriber.
	unsubscribeEvery = time.Second
)

// Run reads and writes until the connection is dead, and returns why. When ctx ends, the
// connection is closed for that reason. It is called once.
func (c *Conn) Run(ctx context.Context, closed error) error {
	done := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(done)
		c.Close(closed)
	})
	var writer sync.WaitGroup
	writer.Go(c.writeLoop)
	for c.Alive() {
		c.extend()
		if err := c.next(); err != nil {
			c.fail(c.endOf(err))
		}
	}
	writer.Wait()
	if !unwatch() {
		<-done
	}
	return c.Err()
}

// extend moves the read deadline. When the writer gave up it is left alone: what has
// arrived is still read, the close frame with its code above all.
func (c *Conn) extend() {
	if c.cfg.ReadTimeout <= 0 || c.broken.Load() {
		return
	}
	c.ws.SetReadDeadline(time.Now().Add(c.cfg.ReadTimeout))
	if c.broken.Load() { // it gave up between the two
		c.ws.SetReadDeadline(time.Now().Add(lastWords))
	}
}

// endOf is the error of a connection whose reader met err.
func (c *Conn) endOf(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ce, ok := errors.AsType[*websocket.CloseError](err)
	if closed := ok && ce.Code != websocket.CloseAbnormalClosure; c.writeErr != nil && !closed {
		err = c.writeErr
	}
	return c.cfg.Lost(err)
}

// next reads one message and handles it.
func (c *Conn) next() error {
	_, r, err := c.ws.NextReader()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(r, c.cfg.MaxAnswer))
	if err != nil {
		return err
	}
	var tail lastBytes
	rest, err := io.Copy(&tail, r)
	switch {
	case err != nil:
		return err
	case rest > 0:
		return c.tooLarge(data, tail)
	}
	return c.receive(data)
}

// tooLarge fails the call that a message answers which was not kept. The id is looked for
// at both ends of it, which is where it is put.
func (c *Conn) tooLarge(data, tail []byte) error {
	for _, part := range [][]byte{data[:min(len(data), endBytes)], tail} {
		if m := idOf.FindSubmatch(part); m != nil {
			id, _ := strconv.ParseUint(string(m[1]), 10, 64) // 0, of no call, if it is no number of ours
			c.mu.Lock()
			t := c.pending[id]
			c.mu.Unlock()
			if t != nil && c.remove(t) {
				t.done <- outcome{err: ErrLargeAnswer}
			}
			return nil
		}
	}
	return ErrLargeAnswer
}

// idOf finds the member id of an answer.
var idOf = regexp.MustCompile(`"id"\s*:\s*(\d+)`)

// lastBytes is an io.Writer that keeps the end of what is written.
type lastBytes []byte

func (l *lastBytes) Write(p []byte) (int, error) {
	*l = append(*l, p[max(0, len(p)-endBytes):]...)
	*l = (*l)[max(0, len(*l)-endBytes):]
	return len(p), nil
}

// receive handles one message. An error ends the connection: what cannot be understood
// might be the answer to any call.
func (c *Conn) receive(data []byte) error {
	var t *exchange // what data answers
	answer := Answer{Bytes: len(data)}
	err := Each(data, func(m *Message) error {
		if m.Method != "" && len(m.ID) == 0 {
			return c.event(m)
		}
		of, err := c.find(m)
		switch {
		case of == nil:
			return err
		case t != nil && of != t || len(answer.Messages) == int(of.n):
			return Nonsense("more answers than requests")
		}
		t, answer.Messages = of, append(answer.Messages, *m)
		return nil
	})
	if err != nil || t == nil {
		return err
	}
	return c.deliver(t, answer)
}

// find returns the exchange that m answers, nil without an error when its caller has gone.
func (c *Conn) find(m *Message) (*exchange, error) {
	id, ok := m.Number()
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.pending[id]
	switch {
	case !ok && m.Failed() && c.cfg.Strict:
		return nil, Nonsense("a request could not be read: %.200s", m.Error)
	case !ok && m.Failed():
		return c.onlyLocked(), nil
	case !ok || t == nil && id > c.lastID.Load():
		return nil, Nonsense("it answers a request that was not made")
	case t != nil && t.state.Load() != sent:
		return nil, Nonsense("it answers request %d, which was not sent", id)
	}
	return t, nil
}

// onlyLocked is what an error without id is meant for: the only request that was sent,
// or the only batch; nil when there are several, or none.
func (c *Conn) onlyLocked() *exchange {
	var one, batch []*exchange
	for id, t := range c.pending {
		switch {
		case id != t.first || t.state.Load() != sent:
		case t.n > 1:
			batch = append(batch, t)
		default:
			one = append(one, t)
		}
	}
	switch {
	case len(batch) == 1:
		return batch[0]
	case len(batch) == 0 && len(one) == 1:
		return one[0]
	}
	return nil
}

// deliver ends the wait for t. A subscription is live before the next message is read.
func (c *Conn) deliver(t *exchange, a Answer) error {
	a.First, a.SentAt = t.first, t.sentAt
	if !c.remove(t) {
		return nil // its caller goes at this very moment
	}
	var err error
	if m := &a.Messages[0]; t.sub != nil && !m.Failed() {
		err = c.open(t, string(m.Result))
	}
	t.done <- outcome{answer: a}
	return err
}

// open makes the subscription of t live, or ends it when its caller has given up.
func (c *Conn) open(t *exchange, id string) error {
	c.mu.Lock()
	wanted := !t.unwanted && t.sub.Live(c, id)
	refused := c.retired || c.err != nil
	if wanted && !refused {
		c.subs[id] = t.sub
	}
	c.mu.Unlock()
	switch {
	case !wanted:
		c.Unsubscribe(id)
	case refused:
		t.sub.Ended(c, c.cfg.Lost(ErrLeaving))
	case c.cfg.Strict && id[:min(1, len(id))] != `"`:
		return Nonsense("%.100s is not the id of a subscription", id)
	}
	return nil
}

func (c *Conn) event(m *Message) error {
	if m.Method != c.cfg.Event {
		return nil
	}
	var event struct {
		Subscription wire.Raw `json:"subscription"`
		Result       wire.Raw `json:"result"`
	}
	if err := wire.Unmarshal(m.Params, &event); err != nil || len(event.Result) == 0 || len(event.Subscription) == 0 {
		if c.cfg.Strict {
			return Nonsense("an event that cannot be read: %.200s", m.Params)
		}
		return nil
	}
	id := string(event.Subscription)
	c.mu.Lock()
	s := c.subs[id]
	c.mu.Unlock()
	if s != nil {
		return s.Notify(event.Result)
	}
	if time.Since(c.unsubscribedAt) >= unsubscribeEvery { // an unsubscribe found no room, or is under way
		c.unsubscribedAt = time.Now()
		c.Unsubscribe(id)
	}
	return nil
}
