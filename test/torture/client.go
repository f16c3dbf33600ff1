//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/torture/history"
	"noncegate/wire"
)

// answerTimeout is how long a client waits before it gives a call up. A node that
// is paused for longer makes its calls unknown.
const answerTimeout = 4 * time.Second

// client makes calls over raw WebSockets, one connection to each node, and writes
// them down. It belongs to one goroutine.
type client struct {
	id      int
	began   time.Time
	nodes   []*node
	conns   map[*node]*websocket.Conn
	rnd     *rand.Rand
	last    int64
	calls   []history.Call
	serials int64 // connections made so far
	serial  map[*node]int64
}

func newClient(id int, began time.Time, nodes []*node, rnd *rand.Rand) *client {
	return &client{id: id, began: began, nodes: nodes, rnd: rnd, conns: make(map[*node]*websocket.Conn), serial: make(map[*node]int64)}
}

func (c *client) close() {
	for n := range c.conns {
		c.drop(n)
	}
}

func (c *client) drop(n *node) {
	if conn := c.conns[n]; conn != nil {
		_ = conn.Close()
		delete(c.conns, n)
	}
}

// conn is the connection to a node, made when there is none.
func (c *client) conn(ctx context.Context, n *node) (*websocket.Conn, error) {
	if conn := c.conns[n]; conn != nil {
		return conn, nil
	}
	d := websocket.Dialer{HandshakeTimeout: time.Second}
	conn, res, err := d.DialContext(ctx, n.URL(), nil)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	c.conns[n] = conn
	c.serials++
	c.serial[n] = c.serials
	return conn, nil
}

// reply is an answer of a gateway.
type reply struct {
	ID     int64       `json:"id"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// errNotSent: the node could not be reached, so there was no call.
var errNotSent = errors.New("no connection to the node")

// do sends calls over one connection, one behind the other, waits for their answers
// and writes them down. cut ends the connection once they were sent, without reading
// an answer. With errNotSent there was no call.
func (c *client) do(ctx context.Context, n *node, cut bool, calls ...history.Call) ([]history.Call, []*wire.Error, error) {
	conn, err := c.conn(ctx, n)
	if err != nil {
		return nil, nil, errNotSent
	}
	index := make(map[int64]int)
	for i := range calls {
		calls[i].Client, calls[i].Node = c.id, n.id
		calls[i].Conn = int64(c.id)<<32 | c.serial[n]
		calls[i].Start, calls[i].Outcome, calls[i].Reason = time.Since(c.began), history.Unknown, "connection closed"
		c.last++
		calls[i].Seq = c.last
		index[c.last] = i
		if err = c.send(conn, c.last, &calls[i]); err != nil {
			// Whether the bytes before the error arrived, nobody knows.
			calls = calls[:i+1]
			break
		}
	}
	errs := make([]*wire.Error, len(calls))
	if cut {
		err = errors.New("cut")
	}
	for left := len(calls); left > 0 && err == nil; left-- {
		var r *reply
		if r, err = read(conn); err == nil {
			i, ok := index[r.ID]
			if !ok {
				err = fmt.Errorf("an answer to request %d, which nobody asked", r.ID)
				break
			}
			calls[i].End = time.Since(c.began)
			settle(&calls[i], r)
			errs[i] = r.Error
		}
	}
	if err != nil {
		c.drop(n)
	}
	for i := range calls {
		if calls[i].End == 0 {
			calls[i].End = time.Since(c.began)
			calls[i].Detail = fmt.Sprint(err)
		}
	}
	c.calls = append(c.calls, calls...)
	return calls, errs, nil
}

func (c *client) send(conn *websocket.Conn, id int64, call *history.Call) error {
	method, params := request(call)
	text, err := wire.Marshal(params)
	if err != nil {
		return err
	}
	if err := conn.SetWriteDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	return conn.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, text))
}

// request is a call on the wire. What is the default is left out.
func request(c *history.Call) (method string, params any) {
	switch c.Kind {
	case history.Allocate:
		p := wire.AllocateParams{Signer: c.Signer, Count: int64(c.Count), RequestID: c.RequestID}
		if c.HoldMs != holdTTL.Milliseconds() {
			p.HoldMs = c.HoldMs
		}
		return wire.MethodAllocate, p
	case history.MarkUsed:
		return wire.MethodMarkUsed, wire.MarkUsedParams{Signer: c.Signer, Nonce: c.Nonce, TxHash: c.TxHash, Attempt: c.Attempt}
	case history.MarkRecyclable:
		return wire.MethodMarkRecyclable, wire.MarkRecyclableParams{Signer: c.Signer, Nonce: c.Nonce, Reason: c.Why, Attempt: c.Attempt}
	case history.SetFloor:
		return wire.MethodSetFloor, wire.SetFloorParams{Signer: c.Signer, Floor: c.Floor}
	case history.Status:
	}
	return wire.MethodStatus, wire.StatusParams{Signer: c.Signer}
}

func read(conn *websocket.Conn) (*reply, error) {
	if err := conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, err
	}
	_, data, err := conn.ReadMessage()
	if err != nil {
		return nil, err
	}
	r := new(reply)
	return r, wire.Unmarshal(data, r)
}

// settle fills in what came of a call.
func settle(c *history.Call, r *reply) {
	if r.Error == nil {
		c.Outcome, c.Reason = history.Happened, ""
		if err := result(c, r.Result); err != nil {
			c.Outcome, c.Reason, c.Detail = history.Unknown, "internal", fmt.Sprintf("an answer that cannot be read: %v: %s", err, r.Result)
		}
		return
	}
	c.Outcome, c.Reason, c.Detail = history.Refused, fmt.Sprint(r.Error.Code), r.Error.Message
	d := r.Error.Data
	if d == nil {
		return
	}
	c.Reason = strings.TrimSpace(d.Reason + " " + d.Stage + d.Outcome)
	switch {
	case d.Outcome == wire.OutcomeUnknown:
		c.Outcome = history.Unknown
	case r.Error.Code == wire.CodeConflict && d.Nonce != nil && (c.Kind == history.MarkUsed || c.Kind == history.MarkRecyclable):
		c.Seen = &history.Seen{Status: d.Status, Attempt: d.Attempt, TxHash: d.TxHash}
	case r.Error.Code == wire.CodeConflict:
		for _, h := range d.Nonces {
			c.Holds = append(c.Holds, history.Given{Nonce: h.Nonce, Attempt: h.Attempt})
		}
	}
}

func result(c *history.Call, raw wire.Raw) error {
	switch c.Kind {
	case history.Allocate:
		var r wire.AllocateResult
		if err := wire.Unmarshal(raw, &r); err != nil {
			return err
		}
		c.Token, c.HeldUntil = r.FencingToken, time.Time(r.HeldUntil).UnixMilli()
		c.Nonces = []history.Given{{Nonce: r.Nonce, Attempt: r.Attempt}}
		if len(r.Nonces) > 0 {
			c.Nonces = c.Nonces[:0]
			for _, n := range r.Nonces {
				c.Nonces = append(c.Nonces, history.Given{Nonce: n.Nonce, Attempt: n.Attempt})
			}
		}
		if len(c.Nonces) != c.Count {
			return fmt.Errorf("%d nonces for a count of %d", len(c.Nonces), c.Count)
		}
	case history.MarkUsed, history.MarkRecyclable:
		var r wire.MarkResult
		if err := wire.Unmarshal(raw, &r); err != nil {
			return err
		}
		c.State = r.Status
		if r.Nonce != c.Nonce || r.Attempt != c.Attempt {
			return fmt.Errorf("the answer is about %d/%d", r.Nonce, r.Attempt)
		}
	case history.SetFloor:
		var r wire.FloorResult
		if err := wire.Unmarshal(raw, &r); err != nil {
			return err
		}
		c.FloorNow, c.Next = r.Floor, r.Next
	case history.Status:
		var r wire.StatusResult
		if err := wire.Unmarshal(raw, &r); err != nil {
			return err
		}
		c.FloorNow, c.Next, c.Token, c.Version = r.Floor, r.Next, r.FencingToken, r.Version
	}
	return nil
}
