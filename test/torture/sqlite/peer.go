//go:build unix

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/torture/history"
	"noncegate/wire"
)

// call is a call of a client and where it lies in the trace of its round.
type call struct {
	history.Call
	round int
	from  int64 // how long the trace was before the request was sent
	to    int64 // how long it was after the answer came; -1: none came
}

// patience is how long an answer is waited for. Beyond it the outcome is unknown.
const patience = 10 * time.Second

// peer is one connection of a client. It belongs to one goroutine.
type peer struct {
	ws     *websocket.Conn
	client int
	round  int
	trace  string
	began  time.Time     // of the history
	told   *atomic.Int64 // calls that happened, of all clients
	last   int64
}

// answer is a reply of the gateway.
type answer struct {
	ID     int64       `json:"id"`
	Result wire.Raw    `json:"result"`
	Error  *wire.Error `json:"error"`
}

// dial connects a client to a gateway.
func dial(ctx context.Context, url string) (*websocket.Conn, error) {
	ws, res, err := websocket.DefaultDialer.DialContext(ctx, url, nil)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return ws, res.Body.Close()
}

// do sends a request and fills in what came of it. Its error is that of the
// connection, which cannot be used after that; the call is then unknown.
func (p *peer) do(c history.Call) (call, error) {
	rec := call{Call: c, round: p.round, to: -1}
	rec.Client = p.client
	var err error
	if rec.from, err = length(p.trace); err != nil {
		return rec, err
	}
	rec.Start = time.Since(p.began)
	a, err := p.ask(&rec.Call)
	rec.End = time.Since(p.began)
	if err != nil {
		rec.Outcome, rec.Reason = history.Unknown, "no answer"
		return rec, err
	}
	if rec.to, err = length(p.trace); err != nil {
		return rec, err
	}
	if a.Error != nil {
		rec.refused(a.Error)
		return rec, nil
	}
	rec.Outcome = history.Happened
	p.told.Add(1)
	return rec, rec.told(a.Result)
}

func length(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// ask sends a request and waits for its answer.
func (p *peer) ask(c *history.Call) (*answer, error) {
	p.last++
	method, params := request(c)
	frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.last, method, params)
	if err := p.ws.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if err := p.ws.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		return nil, err
	}
	if err := p.ws.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	_, data, err := p.ws.ReadMessage()
	if err != nil {
		return nil, err
	}
	a := new(answer)
	if err := wire.Unmarshal(data, a); err != nil {
		return nil, err
	}
	if a.ID != p.last {
		return nil, fmt.Errorf("an answer to request %d came for %d", a.ID, p.last)
	}
	return a, nil
}

// request is a call as it is sent.
func request(c *history.Call) (method, params string) {
	switch c.Kind {
	case history.Allocate:
		id := ""
		if c.RequestID != "" {
			id = fmt.Sprintf(`,"requestId":%q`, c.RequestID)
		}
		return wire.MethodAllocate, fmt.Sprintf(`{"signer":%q,"count":%d,"holdMs":%d%s}`, c.Signer, c.Count, c.HoldMs, id)
	case history.MarkUsed:
		return wire.MethodMarkUsed, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"txHash":%q}`, c.Signer, c.Nonce, c.Attempt, c.TxHash)
	case history.MarkRecyclable:
		return wire.MethodMarkRecyclable, fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":%d,"reason":%q}`, c.Signer, c.Nonce, c.Attempt, c.Why)
	case history.SetFloor:
		return wire.MethodSetFloor, fmt.Sprintf(`{"signer":%q,"floor":%d}`, c.Signer, c.Floor)
	case history.Status:
	}
	return wire.MethodStatus, fmt.Sprintf(`{"signer":%q}`, c.Signer)
}

// refused notes an error that the gateway answered.
func (c *call) refused(e *wire.Error) {
	c.Outcome, c.Reason, c.Detail = history.Refused, "no reason", e.Message
	d := e.Data
	if d == nil {
		return
	}
	c.Reason = d.Reason
	if d.Outcome == wire.OutcomeUnknown {
		c.Outcome = history.Unknown
	}
	if d.Reason != "conflict" {
		return
	}
	if c.Kind == history.Allocate {
		for _, h := range d.Nonces {
			c.Holds = append(c.Holds, history.Given{Nonce: h.Nonce, Attempt: h.Attempt})
		}
		return
	}
	c.Seen = &history.Seen{Status: d.Status, Attempt: d.Attempt, TxHash: d.TxHash}
}

// told notes a result.
func (c *call) told(result wire.Raw) (err error) {
	switch c.Kind {
	case history.Allocate:
		var r wire.AllocateResult
		err = wire.Unmarshal(result, &r)
		c.Token, c.HeldUntil = r.FencingToken, time.Time(r.HeldUntil).UnixMilli()
		c.Nonces = []history.Given{{Nonce: r.Nonce, Attempt: r.Attempt}}
		if len(r.Nonces) > 0 {
			c.Nonces = nil
		}
		for _, n := range r.Nonces {
			c.Nonces = append(c.Nonces, history.Given(n))
		}
	case history.MarkUsed, history.MarkRecyclable:
		var r wire.MarkResult
		err = wire.Unmarshal(result, &r)
		c.State = r.Status
	case history.SetFloor:
		var r wire.FloorResult
		err = wire.Unmarshal(result, &r)
		c.FloorNow, c.Next = r.Floor, r.Next
	case history.Status:
		var r wire.StatusResult
		err = wire.Unmarshal(result, &r)
		c.FloorNow, c.Next, c.Version, c.Token = r.Floor, r.Next, r.Version, r.FencingToken
	}
	if err != nil {
		return errors.Join(fmt.Errorf("read the answer to %s", c.Kind), err)
	}
	return nil
}
