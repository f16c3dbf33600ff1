package inprocess

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/wait"
)

// Client is one connection as a client sees it. Replies and notifications are
// read in order within their kind.
type Client struct {
	testing.TB
	Conn          *websocket.Conn
	Replies       []map[string]any
	Batches       [][]any
	Notifications []map[string]any
}

// Dial connects to a WebSocket until the test ends. header may be nil.
func Dial(t testing.TB, d *websocket.Dialer, url string, header http.Header) *Client {
	t.Helper()
	conn, response, err := d.Dial(url, header)
	Must(t, err)
	Must(t, response.Body.Close())
	t.Cleanup(func() { _ = conn.Close() })
	return &Client{TB: t, Conn: conn}
}

// Send sends one text frame.
func (c *Client) Send(text string) {
	c.Helper()
	Must(c.TB, c.Conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// Request sends a request with positional params that are all given as JSON.
func (c *Client) Request(id, method, params string) {
	c.Helper()
	c.Send(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":` + params + `}`)
}

// Read reads one frame into its kind.
func (c *Client) Read() error {
	_ = c.Conn.SetReadDeadline(time.Now().Add(wait.Patience))
	_, frame, err := c.Conn.ReadMessage()
	if err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(frame)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err
	}
	switch v := v.(type) {
	case []any:
		c.Batches = append(c.Batches, v)
	case map[string]any:
		if _, ok := v["method"]; ok {
			c.Notifications = append(c.Notifications, v)
		} else {
			c.Replies = append(c.Replies, v)
		}
	}
	return nil
}

// Take returns the first of what came of a kind, and reads until there is one.
func Take[T any](c *Client, from *[]T) T {
	c.Helper()
	for len(*from) == 0 {
		Must(c.TB, c.Read())
	}
	first := (*from)[0]
	*from = (*from)[1:]
	return first
}

// Reply returns the next reply.
func (c *Client) Reply() map[string]any { c.Helper(); return Take(c, &c.Replies) }

// Batch returns the next reply to an array.
func (c *Client) Batch() []any { c.Helper(); return Take(c, &c.Batches) }

// Notification returns the next notification.
func (c *Client) Notification() map[string]any { c.Helper(); return Take(c, &c.Notifications) }

// WantClosed fails unless the connection ends with this close code.
func (c *Client) WantClosed(want int) {
	c.Helper()
	if code, _ := c.Closed(); code != want {
		c.Errorf("closed with %d, want %d", code, want)
	}
}

// Closed reads until the connection ends, and returns the code and text of the close
// frame, 0 where there was none.
func (c *Client) Closed() (code int, text string) {
	c.Helper()
	for {
		err := c.Read()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code, ce.Text
		}
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			c.Fatal("the connection did not end")
		}
		if err != nil {
			return 0, ""
		}
	}
}

// WantResult fails unless the reply has the id and a result.
func (c *Client) WantResult(id string) map[string]any {
	c.Helper()
	r := c.Reply()
	if r["id"] != id || r["error"] != nil {
		c.Fatalf("got %v, want a result for %s", r, id)
	}
	result, _ := r["result"].(map[string]any)
	return result
}

// Call is Request and Reply.
func (c *Client) Call(id, method, params string) map[string]any {
	c.Helper()
	c.Request(id, method, params)
	return c.Reply()
}

// AskRefused is Request and WantError.
func (c *Client) AskRefused(id, method, params, reason string) map[string]any {
	c.Helper()
	return WantError(c.TB, c.Call(id, method, params), id, reason)
}

// Ask is Request and WantResult.
func (c *Client) Ask(id, method, params string) map[string]any {
	c.Helper()
	c.Request(id, method, params)
	return c.WantResult(id)
}

// WantError fails unless the reply has the id and the reason; it returns data.
func (c *Client) WantError(id, reason string) map[string]any {
	c.Helper()
	return WantError(c.TB, c.Reply(), id, reason)
}

// WantError is Client.WantError of a reply that was read.
func WantError(t testing.TB, r map[string]any, id, reason string) map[string]any {
	t.Helper()
	e, _ := r["error"].(map[string]any)
	data, _ := e["data"].(map[string]any)
	if r["id"] != id || data["reason"] != reason {
		t.Fatalf("got %v, want %s for %s", r, reason, id)
	}
	return data
}
