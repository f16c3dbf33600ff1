package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
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
			Bounds:         ws.Bounds{MaxInflight: 256, MaxInflightTotal: 10_000, MaxMessageBytes: 64 << 10},
			MaxConnections: 1000, MaxBatch: 100, MaxSubscriptions: 4,
			MinHold: time.Second, MaxHold: 10 * time.Minute, PingInterval: time.Minute,
			Info: func() wire.InfoResult { return wire.InfoResult{} }, Writer: inprocess.Writer(),
		},
		bounds: Config{MaxWaitingBytes: 32 << 20, RoomConfig: ws.RoomConfig{
			Bounds: ws.Bounds{MaxInflight: 100, MaxInflightTotal: 100, MaxMessageBytes: 64 << 10}, MaxAnswerBytes: 1 << 20,
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

type client = inprocess.Client

func (g *gateway) dial() *client {
	g.Helper()
	return g.dialWith(nil)
}

// dialWith is dial with headers.
func (g *gateway) dialWith(h http.Header) *client {
	g.Helper()
	return inprocess.Dial(g.TB, websocket.DefaultDialer, "ws://"+g.address+"/eth/1", h)
}

func show(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}
