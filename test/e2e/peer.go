//go:build unix

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/expect"
	"noncegate/wire"
)

// Account is the signer of the tests that need one.
const Account = "eip155:1:0xab16a96d359ec26a11e2c2b3d8f8b8942d5bfcdb"

const Hash = `0x00000000000000000000000000000000000000000000000000000000000000aa`

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

// Peer is one connection to a gateway, of one goroutine.
type Peer struct {
	testing.TB
	WS   *websocket.Conn
	Last int64
	Got  map[int64]*Reply // answers that were not waited for yet
}

// Connect opens a connection.
func (p *Process) Connect() *Peer {
	p.Helper()
	ws, res, err := websocket.DefaultDialer.DialContext(p.Context(), p.URL, nil)
	expect.Must(p, err)
	_ = res.Body.Close()
	p.Cleanup(func() { _ = ws.Close() })
	return &Peer{TB: p.TB, WS: ws, Got: make(map[int64]*Reply)}
}

// Send sends a request and returns its id.
func (c *Peer) Send(method, params string) int64 {
	c.Helper()
	c.Last++
	expect.Must(c, c.TrySend(c.Last, method, params))
	return c.Last
}

func (c *Peer) TrySend(id int64, method, params string) error {
	frame := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
	return c.WS.WriteMessage(websocket.TextMessage, []byte(frame))
}

// Read reads one answer. Its error is that of the connection.
func (c *Peer) Read() (*Reply, error) {
	if err := c.WS.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return nil, err
	}
	_, data, err := c.WS.ReadMessage()
	if err != nil {
		return nil, err
	}
	r := new(Reply)
	return r, wire.Unmarshal(data, r)
}

// Answer waits for the answer to a request.
func (c *Peer) Answer(id int64) *Reply {
	c.Helper()
	for c.Got[id] == nil {
		r, err := c.Read()
		if err != nil {
			c.Fatalf("waiting for answer %d: %v", id, err)
		}
		c.Got[r.ID] = r
	}
	r := c.Got[id]
	delete(c.Got, id)
	return r
}

func (c *Peer) Call(method, params string) *Reply {
	c.Helper()
	return c.Answer(c.Send(method, params))
}

// Want calls and fails the test unless the answer is a result, or the refusal of that reason.
func (c *Peer) Want(reason, method, params string) *Reply {
	c.Helper()
	r := c.Call(method, params)
	if got := r.Reason(); got != reason {
		c.Fatalf("%s %s: %s, want %s (%v)", method, params, got, reason, r.Error)
	}
	return r
}

// Allocation is the params of nonce_allocate; without an id, none.
func Allocation(signer, requestID string) string {
	if requestID == "" {
		return fmt.Sprintf(`{"signer":%q}`, signer)
	}
	return fmt.Sprintf(`{"signer":%q,"requestId":%q}`, signer, requestID)
}

// Mark is the params of nonce_markUsed.
func Mark(signer string, nonce int64) string {
	return fmt.Sprintf(`{"signer":%q,"nonce":%d,"txHash":%q}`, signer, nonce, Hash)
}

// Allocate must get a nonce.
func (c *Peer) Allocate(signer, requestID string) wire.AllocateResult {
	c.Helper()
	return Decode[wire.AllocateResult](c, c.Want("ok", wire.MethodAllocate, Allocation(signer, requestID)))
}

func StatusOf(c *Peer, signer string) wire.StatusResult {
	c.Helper()
	return Decode[wire.StatusResult](c, c.Want("ok", wire.MethodStatus, Allocation(signer, "")))
}

func Decode[T any](t testing.TB, r *Reply) (v T) {
	t.Helper()
	if err := wire.Unmarshal(r.Result, &v); err != nil {
		t.Fatalf("%s: %v", r.Result, err)
	}
	return v
}
