package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/inprocess"
	"noncegate/wire"
	"noncegate/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// patience is the safety net of every wait for something that must happen.
const patience = 45 * time.Second

var must, check = inprocess.Must, inprocess.Check

// gateway is a ws.Server on a real socket, on which a Handler is served.
type gateway struct {
	*inprocess.Core
	srv     *ws.Server
	relay   *Server
	address string
}

// setup is what a test may change.
type setup struct {
	inprocess.Config
	ws     ws.Config
	bounds Config
}

func defaults() setup {
	return setup{
		Config: inprocess.Defaults(),
		ws: ws.Config{
			MaxConnections: 1000, MaxInflight: 256, MaxInflightTotal: 10_000, MaxMessageBytes: 64 << 10, MaxBatch: 100, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute, PingInterval: time.Minute,
			Info: func() wire.InfoResult { return wire.InfoResult{} }, Writer: inprocess.Writer(),
		},
		bounds: Config{MaxWaitingBytes: 32 << 20, RoomConfig: ws.RoomConfig{
			MaxInflight: 100, MaxInflightTotal: 100, MaxMessageBytes: 64 << 10, MaxAnswerBytes: 1 << 20,
		}},
	}
}

func startGateway(t testing.TB, h Handler, changes ...func(*setup)) *gateway {
	t.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	g := &gateway{Core: inprocess.Start(t, s.Config)}
	var err error
	g.srv, err = ws.New(g.Service, g.Hub, g.Encode, s.ws, g.Set, g.Metrics, g.Logger)
	must(t, err)
	g.relay, err = New(g.srv, h, s.bounds)
	must(t, err)
	var stopHTTP func()
	g.address, stopHTTP = inprocess.Serve(t, &http.Server{Handler: g.relay, ConnState: g.srv.ConnState, ConnContext: g.srv.ConnContext})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		check(t, g.srv.Stop(ctx))
		g.Stop(ctx)
		stopHTTP()
		g.WantNoSlots()
		if waits, received := g.relay.waiting.Used(), g.Metric("receive_bytes"); waits != 0 || received != 0 {
			t.Errorf("left behind: %d bytes of answers, %v of messages", waits, received)
		}
	})
	return g
}

// speaking is a gateway with a parrot.
func speaking(t testing.TB, changes ...func(*setup)) (*parrot, *gateway) {
	t.Helper()
	p := newParrot()
	return p, startGateway(t, p, changes...)
}

// letIn makes a gateway ask who its clients are, and let these in with every right.
func letIn(p *inprocess.People, names ...string) func(*setup) {
	for _, name := range names {
		p.Grant(name, "*", inprocess.EveryRight)
	}
	return func(s *setup) { s.ws.Auth, s.ws.PingInterval = p, time.Second }
}

// as connects under a name.
func (g *gateway) as(name string) *client {
	g.Helper()
	return g.dialWith(inprocess.As(name))
}

// post asks by POST, and returns the answer and what was said.
func (g *gateway) post(body string) (*http.Response, string) { g.Helper(); return g.postAs("", body) }

// postAs is post under a name.
func (g *gateway) postAs(who, body string) (*http.Response, string) {
	g.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+g.address+"/eth/1", strings.NewReader(body))
	must(g.TB, err)
	r.Header = inprocess.As(who)
	response, err := http.DefaultClient.Do(r)
	must(g.TB, err)
	text, err := io.ReadAll(response.Body)
	must(g.TB, errors.Join(err, response.Body.Close()))
	return response, string(text)
}

// client is one connection as a client sees it. Replies and notifications are
// read in order within their kind.
type client struct {
	testing.TB
	conn          *websocket.Conn
	replies       []map[string]any
	batches       [][]any
	notifications []map[string]any
}

func (g *gateway) dial() *client {
	g.Helper()
	return g.dialWith(nil)
}

// dialWith is dial with headers.
func (g *gateway) dialWith(h http.Header) *client {
	g.Helper()
	conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/eth/1", h)
	must(g.TB, err)
	must(g.TB, response.Body.Close())
	g.Cleanup(func() { _ = conn.Close() })
	return &client{TB: g.TB, conn: conn}
}

func (c *client) send(text string) {
	c.Helper()
	must(c.TB, c.conn.WriteMessage(websocket.TextMessage, []byte(text)))
}

// request sends a request with positional params that are all given as JSON.
func (c *client) request(id, method, params string) {
	c.Helper()
	c.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":` + params + `}`)
}

// read reads one frame into its kind.
func (c *client) read() error {
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	_, frame, err := c.conn.ReadMessage()
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
		c.batches = append(c.batches, v)
	case map[string]any:
		if _, ok := v["method"]; ok {
			c.notifications = append(c.notifications, v)
		} else {
			c.replies = append(c.replies, v)
		}
	}
	return nil
}

func take[T any](c *client, from *[]T) T {
	c.Helper()
	for len(*from) == 0 {
		must(c.TB, c.read())
	}
	first := (*from)[0]
	*from = (*from)[1:]
	return first
}

// reply returns the next reply.
func (c *client) reply() map[string]any { c.Helper(); return take(c, &c.replies) }

// batch returns the next reply to an array.
func (c *client) batch() []any { c.Helper(); return take(c, &c.batches) }

// notification returns the next notification.
func (c *client) notification() map[string]any { c.Helper(); return take(c, &c.notifications) }

// wantClosed fails unless the connection ends with this close code.
func (c *client) wantClosed(want int) {
	c.Helper()
	if code, _ := c.closed(); code != want {
		c.Errorf("closed with %d, want %d", code, want)
	}
}

// closed reads until the connection ends, and returns the code and text of the close
// frame, 0 where there was none.
func (c *client) closed() (code int, text string) {
	c.Helper()
	for {
		err := c.read()
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

// wantResult fails unless the reply has the id and a result.
func (c *client) wantResult(id string) map[string]any {
	c.Helper()
	r := c.reply()
	if r["id"] != id || r["error"] != nil {
		c.Fatalf("got %v, want a result for %s", r, id)
	}
	result, _ := r["result"].(map[string]any)
	return result
}

// call is request and reply.
func (c *client) call(id, method, params string) map[string]any {
	c.Helper()
	c.request(id, method, params)
	return c.reply()
}

// askRefused is request and wantError.
func (c *client) askRefused(id, method, params, reason string) map[string]any {
	c.Helper()
	return wantError(c.TB, c.call(id, method, params), id, reason)
}

// ask is request and wantResult.
func (c *client) ask(id, method, params string) map[string]any {
	c.Helper()
	c.request(id, method, params)
	return c.wantResult(id)
}

// wantError fails unless the reply has the id and the reason; it returns data.
func (c *client) wantError(id, reason string) map[string]any {
	c.Helper()
	return wantError(c.TB, c.reply(), id, reason)
}

func wantError(t testing.TB, r map[string]any, id, reason string) map[string]any {
	t.Helper()
	e, _ := r["error"].(map[string]any)
	data, _ := e["data"].(map[string]any)
	if r["id"] != id || data["reason"] != reason {
		t.Fatalf("got %v, want %s for %s", r, reason, id)
	}
	return data
}

func show(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
