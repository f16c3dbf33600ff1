// Package peer makes the calls of a history: it sends them to a gateway in the protocol's
// own words and notes what came of each. It knows no fault and retries nothing.
package peer

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/history"
	"noncegate/wire"
)

// Config is how a connection is used.
type Config struct {
	// Timeout bounds a write, and the wait for an answer. Past it the outcome is unknown.
	Timeout time.Duration
	// DefaultHold is the gateway's --hold-ttl, which an allocate leaves out; 0: none does.
	DefaultHold time.Duration
}

// Conn is one connection to a gateway. It belongs to one goroutine.
type Conn struct {
	cfg Config
	ws  *websocket.Conn
}

// Reply is an answer of a gateway.
type Reply struct {
	ID     int64       `json:"id"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// Reason is the stable word of a refusal, and its outcome where it has one; "ok" for a result.
func (r *Reply) Reason() string {
	switch {
	case r.Error == nil:
		return "ok"
	case r.Error.Data == nil:
		return fmt.Sprint(r.Error.Code)
	}
	return strings.TrimSpace(r.Error.Data.Reason + " " + r.Error.Data.Outcome)
}

// Dial connects to the WebSocket of a gateway. The caller must Close.
func Dial(ctx context.Context, url string, cfg Config) (*Conn, error) {
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, url, nil)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	_ = res.Body.Close()
	return &Conn{cfg, ws}, nil
}

// Close ends the connection without a word.
func (c *Conn) Close() error { return c.ws.Close() }

// Send sends a call as the request of that id. After an error nobody knows whether it arrived, and the connection cannot be used.
func (c *Conn) Send(id int64, call *history.Call) error {
	method, params := c.request(call)
	text, err := wire.Marshal(params)
	if err != nil {
		return err
	}
	return c.Request(id, method, string(text))
}

// Request sends a request whose params are JSON.
func (c *Conn) Request(id int64, method, params string) error {
	if err := c.ws.SetWriteDeadline(time.Now().Add(c.cfg.Timeout)); err != nil {
		return err
	}
	return c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params))
}

// Read waits for the next answer. After an error the connection cannot be used.
func (c *Conn) Read() (*Reply, error) {
	if err := c.ws.SetReadDeadline(time.Now().Add(c.cfg.Timeout)); err != nil {
		return nil, err
	}
	_, data, err := c.ws.ReadMessage()
	if err != nil {
		return nil, err
	}
	r := new(Reply)
	return r, wire.Unmarshal(data, r)
}

// request is a call on the wire. What is the default is left out.
func (conn *Conn) request(c *history.Call) (method string, params any) {
	switch c.Kind {
	case history.Allocate:
		p := wire.AllocateParams{Signer: c.Signer, Count: int64(c.Count), RequestID: c.RequestID}
		if c.HoldMs != conn.cfg.DefaultHold.Milliseconds() {
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

// Settle fills in what came of a call.
func (r *Reply) Settle(c *history.Call) {
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
