package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"noncegate/test/lab/inprocess"

	"github.com/gorilla/websocket"
)

// client is one connection. Its methods belong to the test's goroutine.
type client struct {
	testing.TB
	conn          *websocket.Conn
	ids           int
	replies       map[string]*reply
	notifications []*reply
}

func (g *gateway) dial() *client { g.Helper(); return g.dialAs("") }

// dialAs connects in somebody's name.
func (g *gateway) dialAs(name string) *client {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+Prefix+"1", inprocess.As(name))
	must(g.TB, err)
	must(g.TB, response.Body.Close())
	g.Cleanup(func() { _ = conn.Close() })
	return &client{TB: g.TB, conn: conn, replies: map[string]*reply{}}
}

// connect starts a gateway, and a client of it.
func connect(t testing.TB, changes ...func(*setup)) (*gateway, *client) {
	t.Helper()
	g := startGateway(t, changes...)
	return g, g.dial()
}

func call(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

// begin sends a call and returns its id.
func (c *client) begin(method, params string) string {
	c.Helper()
	c.ids++
	id := fmt.Sprint(c.ids)
	c.write(call(id, method, params))
	return id
}

func (c *client) write(text string) {
	c.Helper()
	must(c.TB, c.conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// read reads one frame.
func (c *client) read() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	_, frame, err := c.conn.ReadMessage()
	if err != nil {
		return err
	}
	list := []*reply{new(reply)}
	if frame[0] == '[' {
		err = json.Unmarshal(frame, &list)
	} else {
		err = json.Unmarshal(frame, list[0])
	}
	for _, r := range list {
		if r.Method != "" {
			c.notifications = append(c.notifications, r)
		} else {
			c.replies[string(r.ID)] = r
		}
	}
	return err
}

// end returns the reply to a call.
func (c *client) end(id string) *reply {
	c.Helper()
	for c.replies[id] == nil {
		must(c.TB, c.read())
	}
	r := c.replies[id]
	delete(c.replies, id)
	return r
}

// call calls a method and waits for its reply.
func (c *client) call(method, params string) *reply {
	c.Helper()
	return c.end(c.begin(method, params))
}

// send sends a raw transaction and waits for the answer.
func (c *client) send(raw string) *reply { c.Helper(); return c.call(methodSend, `["`+raw+`"]`) }

// notification returns the next one.
func (c *client) notification() *reply {
	c.Helper()
	for len(c.notifications) == 0 {
		must(c.TB, c.read())
	}
	n := c.notifications[0]
	c.notifications = c.notifications[1:]
	return n
}

// closedWith reads until the close frame.
func (c *client) closedWith() (code int, text string) {
	c.Helper()
	for {
		err := c.read()
		if ce, ok := errors.AsType[*websocket.CloseError](err); ok {
			return ce.Code, ce.Text
		}
		if err != nil {
			c.Fatalf("no close frame: %v", err)
		}
	}
}

// post sends a body by POST in somebody's name, and returns status and answer.
func (g *gateway) post(name, body string) (int, string) {
	g.Helper()
	status, answer, _ := g.request(name, http.MethodPost, Prefix+"1", body, nil)
	return status, answer
}

func (g *gateway) request(name, method, path, body string, header http.Header) (int, string, http.Header) {
	g.Helper()
	return g.requestBy(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, name, method, path, body, header)
}

func (g *gateway) requestBy(client *http.Client, name, method, path, body string, header http.Header) (int, string, http.Header) {
	g.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.address+path, strings.NewReader(body))
	must(g.TB, err)
	r.Header = inprocess.As(name)
	for k, v := range header {
		r.Header[k] = v
	}
	response, err := client.Do(r)
	must(g.TB, err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	must(g.TB, err)
	return response.StatusCode, strings.TrimSpace(string(answer)), response.Header
}
