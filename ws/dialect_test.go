package ws

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

// parrot is a dialect: say answers its params, wait waits for let, watch opens a stream,
// trip one whose end panics, slip the same and refuses it, twice opens two, blunder one whose
// answer cannot be audited, take allocates, and all else is refused in its own words.
type parrot struct {
	let     chan struct{}
	mu      sync.Mutex
	streams []Stream     // guarded by mu
	waiting atomic.Int32 // calls of wait so far
	ended   atomic.Int32
}

func newParrot() *parrot { return &parrot{let: make(chan struct{})} }

func (p *parrot) Ordered(string) bool { return false }

func (p *parrot) Answer(ctx context.Context, c *Call) Answer {
	switch c.Method {
	case "say":
		return Answer{Result: c.Params}
	case "wait":
		p.waiting.Add(1)
		select {
		case <-p.let:
			return Answer{Result: []byte("true")}
		case <-ctx.Done():
			return Answer{Err: errCallEnded()}
		}
	case "watch":
		s, err := c.Open("seen", func() { p.ended.Add(1) })
		if err != nil {
			return Answer{Err: err}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.streams = append(p.streams, s)
		return Answer{Result: []byte(`"` + s.ID() + `"`)}
	case "slip":
		_, _ = c.Open("seen", func() { panic("a mistake") })
	case "trip":
		s, _ := c.Open("seen", func() { panic("a mistake") })
		return Answer{Result: []byte(`"` + s.ID() + `"`)}
	case "twice":
		_, _ = c.Open("seen", func() { p.ended.Add(1) })
		_, _ = c.Open("seen", func() { p.ended.Add(1) })
	case "blunder":
		c.of = nil
		return Answer{Result: []byte(`true`)}
	case "take":
		if !c.May(access.RightAllocate, "a") {
			return Answer{Err: c.Forbidden(access.RightAllocate)}
		}
		if _, err := c.Do(&nonce.Request{Kind: nonce.KindAllocate, Signer: "a", Count: 1}); err != nil {
			return Answer{Err: err}
		}
		return Answer{Result: []byte("true")}
	}
	return Answer{Foreign: &Foreign{Code: 7, Message: "what?"}}
}

func (p *parrot) notify(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		s.Notify([]byte(event))
	}
}

func dialectBounds() DialectConfig {
	return DialectConfig{MaxInflight: 100, MaxInflightTotal: 100, MaxMessageBytes: 64 << 10, MaxAnswerBytes: 1 << 20, MaxWaitingBytes: 32 << 20}
}

// speak serves a dialect beside the gateway's own protocol, and returns the gateway as clients
// of the dialect see it.
func (g *gateway) speak(d Dialect) *gateway {
	g.Helper()
	return g.speakOf(g.dialect(d))
}

// speaking is a gateway that speaks a parrot's dialect as well, and the gateway as clients of that see it.
func speaking(t testing.TB, changes ...func(*setup)) (p *parrot, g, at *gateway) {
	t.Helper()
	p, g = newParrot(), startGateway(t, changes...)
	return p, g, g.speak(p)
}

// dialect makes a dialect beside the gateway's own protocol.
func (g *gateway) dialect(d Dialect) *dialect {
	g.Helper()
	h, err := g.srv.Dialect(d, dialectBounds())
	must(g.TB, err)
	return h.(*dialect)
}

func (g *gateway) speakOf(h *dialect) *gateway {
	g.Helper()
	other := *g
	var stop func()
	other.address, stop = inprocess.Serve(g.TB, &http.Server{Handler: h, ConnState: g.srv.ConnState, ConnContext: g.srv.ConnContext})
	g.Cleanup(stop)
	return &other
}

func TestADialectIsServedAsTheProtocolIs(t *testing.T) {
	_, g, at := speaking(t)
	c := at.dial()
	if r := c.call("1", "say", `["x"]`); r["id"] != "1" || show(r["result"]) != `["x"]` {
		t.Errorf("got %v", r)
	}
	if r := c.call("2", "nonce_allocate", `["a"]`); show(r["error"]) != `{"code":7,"message":"what?"}` {
		t.Errorf("got %v", r)
	}
	c.call("3", "take", `[]`)
	if n := g.next("a"); n != 1 {
		t.Errorf("the cursor is at %d", n)
	}
	c.send(`{"jsonrpc":"2.0","id":"4"}`)
	c.wantError("4", "invalid_request")
	c.send(`{`)
	if r := c.reply(); r["error"] == nil {
		t.Errorf("got %v", r)
	}
	g.dial().request("1", "nonce_status", `["a"]`) // the protocol itself is where it was
	c.send(strings.Repeat(" ", 64<<10+1))
	c.wantClosed(wire.CloseTooLarge)
}

func TestASessionThatEndsEndsItsStreams(t *testing.T) {
	people, p := known("ada"), newParrot()
	g := guardedGateway(t, people)
	at := g.speak(p)
	c := at.as("ada")
	c.call("1", "watch", `[]`)
	p.notify(`"first"`)
	if n := c.notification(); n["method"] != "seen" {
		t.Errorf("got %v", n)
	}
	people.Grant("ada", "*", access.RightRead)
	c.askRefused("2", "take", `[]`, "forbidden")
	people.End("ada", access.ErrRevoked)
	c.wantClosed(wire.CloseRevoked)
	p.notify(`"late"`)
	must(t, c.conn.Close())
	wait.Until(t, "the end of the stream", func() bool { return p.ended.Load() == 1 })
	at.wantRefused(http.Header{"Authorization": {"Bearer eve"}}, http.StatusUnauthorized)
}

func TestAMistakeAtTheEndOfAStreamDoesNotChangeTheAnswerOfItsCall(t *testing.T) {
	g := startGateway(t)
	c := g.speak(newParrot()).dial()
	const slips = 200 // twice what may be in flight
	for range slips {
		if r := c.call("1", "slip", `[]`); show(r["error"]) != `{"code":7,"message":"what?"}` {
			t.Fatalf("got %v", r)
		}
	}
	c.ask("2", "say", `[]`)
	if n := g.srv.Panics(); n != slips {
		t.Errorf("%d panics counted, want %d", n, slips)
	}
}

func TestAConnectionWithAStreamIsNotIdle(t *testing.T) {
	_, _, at := speaking(t, func(s *setup) { s.ws.IdleTimeout = 200 * time.Millisecond })
	watching, idle := at.dial(), at.dial()
	watching.call("1", "watch", `[]`)
	idle.wantClosed(wire.CloseGoingAway)
	watching.ask("2", "say", `[]`)
}

// What says that it is another node is a client here, and has to say who it is.
func TestAnotherNodeHasNoPrivilegeAtADialect(t *testing.T) {
	people := known("ada")
	g := guardedGateway(t, people, func(s *setup) { s.ws.Nodes.Secret = "secret" })
	at := g.speak(newParrot())
	h := http.Header{wire.HeaderNode: {"n2"}, wire.HeaderNodeTo: {"n1"}, wire.HeaderNodeSecret: {"secret"}}
	at.wantRefused(h, http.StatusUnauthorized)
	h.Set("Authorization", "Bearer ada")
	c := at.dialWith(h)
	c.ask("1", "say", `[]`)
	if used, _ := g.srv.nodes.used(); used != 0 || g.srv.conns.nodes != 0 {
		t.Error("it counts as another node")
	}
}

func TestADrainSendsTheClientsOfADialectAway(t *testing.T) {
	p, g, at := speaking(t)
	idle, waits := at.dial(), at.dial()
	idle.ask("1", "say", `[]`)
	waits.request("1", "wait", `[]`)
	waits.ask("2", "say", `[]`)
	drained := g.drain(context.Background())
	idle.wantClosed(wire.CloseServiceRestart)
	response, text := at.post(`{}`)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("a POST got %d %s", response.StatusCode, text)
	}
	waits.askRefused("3", "say", `[]`, "draining")
	if len(drained) != 0 {
		t.Error("drained while a call is under way")
	}
	close(p.let)
	waits.wantResult("1")
	waits.wantClosed(wire.CloseServiceRestart)
	must(t, wait.For(t, drained, "the end of the drain"))
}

func TestStopEndsCallsAndPosts(t *testing.T) {
	p, g, at := speaking(t)
	c := at.dial()
	c.request("1", "wait", `[]`)
	c.ask("2", "say", `[]`)
	posted := make(chan string, 1)
	go func() {
		_, text := at.post(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		posted <- text
	}()
	wait.Until(t, "both calls", func() bool { return p.waiting.Load() == 2 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, g.srv.Stop(ctx))
	if got := wait.For(t, posted, "the answer of the POST"); !strings.Contains(got, `"reason":"unavailable"`) {
		t.Errorf("got %s", got)
	}
	if c.closed(); g.srv.conns.len() != 0 {
		t.Error("a connection is left")
	}
}

func TestBoundsOfADialectThatContradictEachOther(t *testing.T) {
	g := startGateway(t)
	for _, c := range []struct {
		change func(*DialectConfig)
		words  string
	}{
		{func(c *DialectConfig) { c.MaxInflight = 99 }, "a batch of 100 could never be admitted"},
		{func(c *DialectConfig) { c.MaxInflightTotal = 99 }, "fewer than the 100 of one connection"},
		{func(c *DialectConfig) { c.MaxMessageBytes = 10 }, "too few for a request"},
		{func(c *DialectConfig) { c.MaxAnswerBytes = 1000 }, "too few, a batch of 100 may need"},
		{func(c *DialectConfig) { c.MaxWaitingBytes = 1000 }, "must not be fewer than those of one"},
	} {
		cfg := dialectBounds()
		c.change(&cfg)
		if _, err := g.srv.Dialect(newParrot(), cfg); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("got %v, want %q", err, c.words)
		}
	}
}

// A client that asks for much and reads slowly gets it all, in its time.
func TestAnswersThatAreLongWaitForAClientThatReadsSlowly(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.SendBuffer = 64 << 10 })
	c := g.speak(longWinded{}).dial()
	const answers = 6 // thrice what may wait for a connection
	for range answers {
		c.request("1", "talk", `[]`)
	}
	for range answers {
		_, frame, err := c.conn.ReadMessage()
		if err != nil || len(frame) < 900<<10 {
			t.Fatalf("got %d bytes, %v: %.200s", len(frame), err, frame)
		}
	}
}

// longWinded answers everything at length.
type longWinded struct{}

func (longWinded) Ordered(string) bool { return false }
func (longWinded) Answer(context.Context, *Call) Answer {
	return Answer{Result: []byte(`"` + strings.Repeat("x", 900<<10) + `"`)}
}

// TestASlowReaderLeavesRoomForTheLongAnswersOfOthers: by POST, whose answers wait in one piece.
func TestASlowReaderLeavesRoomForTheLongAnswersOfOthers(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.SendBuffer = 64 << 10 })
	at := g.speak(longWinded{})
	one := `{"jsonrpc":"2.0","id":1,"method":"talk"}`
	slow, err := http.Post("http://"+at.address, "application/json", strings.NewReader("["+strings.Repeat(one+",", 39)+one+"]"))
	must(t, err)
	defer func() { _ = slow.Body.Close() }()
	if _, text := at.post(one); len(text) < 900<<10 {
		t.Errorf("another client is told %.200s", text)
	}
}

// windedChange changes something, and tells of it at length.
type windedChange struct{ longWinded }

func (d windedChange) Answer(ctx context.Context, c *Call) Answer {
	c.About("a", 0)
	return d.longWinded.Answer(ctx, c)
}

// A change whose answer has no room has happened: it is not told that nothing has.
func TestAChangeWhoseAnswerHasNoRoomIsUnknown(t *testing.T) {
	at := startGateway(t).speak(windedChange{})
	const calls = 12 // of which two or nine have room
	one := `{"jsonrpc":"2.0","id":1,"method":"change"}`
	batch := "[" + strings.Repeat(one+",", calls-1) + one + "]"
	_, posted := at.post(batch)
	c := at.dial()
	c.send(batch)
	_, sent, err := c.conn.ReadMessage()
	must(t, err)
	for by, text := range map[string]string{"POST": posted, "WebSocket": string(sent)} {
		told, unknown := strings.Count(text, `"result"`), strings.Count(text, `"outcome":"unknown"`)
		if told == 0 || unknown == 0 || told+unknown != calls {
			t.Errorf("by %s %d were told of, and %d as unknown, want %d together", by, told, unknown, calls)
		}
	}
}
