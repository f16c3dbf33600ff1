package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/ws"
)

// receiveBytes has room for eight messages.
func receiveBytes(s *setup) { s.ws.MaxReceiveBytes = 512 << 10 }

// parrot is a Handler: say answers its params, wait waits for let, watch opens a stream,
// trip one whose end panics, slip the same and refuses it, twice opens two, blunder one whose
// answer cannot be audited, take allocates, and all else is refused in its own words.
type parrot struct {
	let     chan struct{}
	mu      sync.Mutex
	streams []*Stream    // guarded by mu
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
			return Answer{Err: ws.ErrEnded()}
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
		c.Visitor = nil
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

func TestAHandlerIsServedAsTheProtocolOfNoncesIs(t *testing.T) {
	_, g := speaking(t)
	c := g.dial()
	if r := c.Call("1", "say", `["x"]`); r["id"] != "1" || show(r["result"]) != `["x"]` {
		t.Errorf("got %v", r)
	}
	if r := c.Call("2", "nonce_allocate", `["a"]`); show(r["error"]) != `{"code":7,"message":"what?"}` {
		t.Errorf("got %v", r)
	}
	c.Call("3", "take", `[]`)
	page, err := g.Store.List(t.Context(), nonce.ListQuery{Signer: "a", Limit: 1})
	if must(t, err); len(page.Rows) != 1 {
		t.Error("nothing was handed out")
	}
	c.Send(`{"jsonrpc":"2.0","id":"4"}`)
	c.WantError("4", "invalid_request")
	c.Send(`{`)
	if r := c.Reply(); r["error"] == nil {
		t.Errorf("got %v", r)
	}
	c.Send(strings.Repeat(" ", 64<<10+1))
	c.WantClosed(wire.CloseTooLarge)
}

func TestASessionThatEndsEndsItsStreams(t *testing.T) {
	people := new(inprocess.People)
	p, g := speaking(t, letIn(people, "ada"))
	c := g.as("ada")
	c.Call("1", "watch", `[]`)
	p.notify(`"first"`)
	if n := c.Notification(); n["method"] != "seen" {
		t.Errorf("got %v", n)
	}
	people.Grant("ada", "*", access.RightRead)
	c.AskRefused("2", "take", `[]`, "forbidden")
	people.End("ada", access.ErrRevoked)
	c.WantClosed(wire.CloseRevoked)
	p.notify(`"late"`)
	must(t, c.Conn.Close())
	wait.Until(t, "the end of the stream", func() bool { return p.ended.Load() == 1 })
	if answer, _ := g.postAs("eve", `{}`); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("a stranger is answered %s", answer.Status)
	}
}

func TestAMistakeAtTheEndOfAStreamDoesNotChangeTheAnswerOfItsCall(t *testing.T) {
	_, g := speaking(t)
	c := g.dial()
	const slips = 200 // twice what may be in flight
	for range slips {
		if r := c.Call("1", "slip", `[]`); show(r["error"]) != `{"code":7,"message":"what?"}` {
			t.Fatalf("got %v", r)
		}
	}
	c.Ask("2", "say", `[]`)
	if n := g.srv.Panics(); n != slips {
		t.Errorf("%d panics counted, want %d", n, slips)
	}
}

func TestAConnectionWithAStreamIsNotIdle(t *testing.T) {
	_, g := speaking(t, func(s *setup) { s.ws.IdleTimeout = 200 * time.Millisecond })
	watching, idle := g.dial(), g.dial()
	watching.Call("1", "watch", `[]`)
	idle.WantClosed(wire.CloseGoingAway)
	watching.Ask("2", "say", `[]`)
}

func TestADrainSendsTheClientsOfAHandlerAway(t *testing.T) {
	p, g := speaking(t)
	idle, waits := g.dial(), g.dial()
	idle.Ask("1", "say", `[]`)
	waits.Request("1", "wait", `[]`)
	waits.Ask("2", "say", `[]`)
	drained := make(chan error, 1)
	go func() { drained <- g.srv.Drain(context.Background()) }()
	idle.WantClosed(wire.CloseServiceRestart)
	response, text := g.post(`{}`)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("a POST got %d %s", response.StatusCode, text)
	}
	waits.AskRefused("3", "say", `[]`, "draining")
	if len(drained) != 0 {
		t.Error("drained while a call is under way")
	}
	close(p.let)
	waits.WantResult("1")
	waits.WantClosed(wire.CloseServiceRestart)
	must(t, wait.For(t, drained, "the end of the drain"))
}

func TestStopEndsCallsAndPosts(t *testing.T) {
	p, g := speaking(t)
	c := g.dial()
	c.Request("1", "wait", `[]`)
	c.Ask("2", "say", `[]`)
	posted := make(chan string, 1)
	go func() {
		_, text := g.post(`{"jsonrpc":"2.0","id":1,"method":"wait"}`)
		posted <- text
	}()
	wait.Until(t, "both calls", func() bool { return p.waiting.Load() == 2 })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, g.srv.Stop(ctx))
	if got := wait.For(t, posted, "the answer of the POST"); !strings.Contains(got, `"reason":"unavailable"`) {
		t.Errorf("got %s", got)
	}
	c.Closed()
}

func TestBoundsOfAHandlerThatContradictEachOther(t *testing.T) {
	_, g := speaking(t)
	for _, c := range []struct {
		change func(*Config)
		words  string
	}{
		{func(c *Config) { c.MaxInflight = 99 }, "a batch of 100 could never be admitted"},
		{func(c *Config) { c.MaxInflightTotal = 99 }, "fewer than the 100 of one connection"},
		{func(c *Config) { c.MaxMessageBytes = 10 }, "too few for a request"},
		{func(c *Config) { c.MaxAnswerBytes = 1000 }, "too few, a batch of 100 may need"},
		{func(c *Config) { c.MaxWaitingBytes = 1000 }, "must not be fewer than those of one"},
	} {
		cfg := defaults().bounds
		c.change(&cfg)
		if _, err := New(g.srv, newParrot(), cfg); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("got %v, want %q", err, c.words)
		}
	}
}

// A client that asks for much and reads slowly gets it all, in its time.
func TestAnswersThatAreLongWaitForAClientThatReadsSlowly(t *testing.T) {
	c := startGateway(t, longWinded{}, func(s *setup) { s.ws.SendBuffer = 64 << 10 }).dial()
	const answers = 6 // thrice what may wait for a connection
	for range answers {
		c.Request("1", "talk", `[]`)
	}
	for range answers {
		_, frame, err := c.Conn.ReadMessage()
		if err != nil || len(frame) < 900<<10 {
			t.Fatalf("got %d bytes, %v: %.200s", len(frame), err, frame)
		}
	}
}

// weigher answers at length, and shows which calls and answers are still referred to.
type weigher struct {
	mu      sync.Mutex
	calls   []weak.Pointer[Call] // guarded by mu, as answers
	answers []weak.Pointer[byte]
}

func (w *weigher) Ordered(string) bool { return false }

func (w *weigher) Answer(ctx context.Context, c *Call) Answer {
	a := longWinded{}.Answer(ctx, c)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls, w.answers = append(w.calls, weak.Make(c)), append(w.answers, weak.Make(&a.Result[0]))
	return a
}

// kept is how many calls there were, and of how many there is something left.
func (w *weigher) kept() (calls, left int) {
	runtime.GC()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.calls {
		if w.calls[i].Value() != nil || w.answers[i].Value() != nil {
			left++
		}
	}
	return len(w.calls), left
}

// A client that does not read keeps the encoded answers, which are counted, and nothing else.
func TestAnAnswerThatWaitsToBeWrittenIsKeptOnce(t *testing.T) {
	w := new(weigher)
	g := startGateway(t, w, func(s *setup) { s.ws.SendBuffer = 64 << 10 })
	c := g.dial()
	one := `{"jsonrpc":"2.0","id":"1","method":"talk","params":["` + strings.Repeat("x", 30<<10) + `"]}`
	c.Send(one)
	c.Send("[" + one + "]")
	wait.Until(t, "the end of all but the encoded answers", func() bool {
		calls, left := w.kept()
		return calls == 2 && left == 0
	})
	if waits := g.relay.waiting.Used(); waits < 900<<10 {
		t.Errorf("%d bytes are counted for an answer that nobody has read", waits)
	}
	c.Reply()
	c.Batch()
	wait.Until(t, "their bytes to be given back", func() bool { return g.relay.waiting.Used() == 0 })
}

func TestAnAnswerIsNotKeptBesideItsEncodedCopy(t *testing.T) {
	c := &Call{answer: Answer{Result: []byte(`"x"`)}}
	if got := string(c.Append(nil, []byte("1"))); !strings.Contains(got, `"result":"x"`) || c.answer.Result != nil {
		t.Errorf("%s is encoded and %s kept", got, c.answer.Result)
	}
}

// longWinded answers everything at length.
type longWinded struct{}

func (longWinded) Ordered(string) bool { return false }
func (longWinded) Answer(context.Context, *Call) Answer {
	return Answer{Result: []byte(`"` + strings.Repeat("x", 900<<10) + `"`)}
}

// By POST the answers wait in one piece, and the calls, which are all that may be in flight, have run.
func TestASlowReaderLeavesRoomAndSlotsToOthers(t *testing.T) {
	g := startGateway(t, longWinded{}, func(s *setup) { s.ws.SendBuffer = 64 << 10 })
	one := `{"jsonrpc":"2.0","id":1,"method":"talk"}`
	slow, err := http.Post("http://"+g.address, "application/json", strings.NewReader("["+strings.Repeat(one+",", 99)+one+"]"))
	must(t, err)
	defer func() { _ = slow.Body.Close() }()
	if _, text := g.post(one); len(text) < 900<<10 {
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
	g := startGateway(t, windedChange{})
	const calls = 12 // of which two or nine have room
	one := `{"jsonrpc":"2.0","id":1,"method":"change"}`
	batch := "[" + strings.Repeat(one+",", calls-1) + one + "]"
	_, posted := g.post(batch)
	c := g.dial()
	c.Send(batch)
	_, sent, err := c.Conn.ReadMessage()
	must(t, err)
	for by, text := range map[string]string{"POST": posted, "WebSocket": string(sent)} {
		told, unknown := strings.Count(text, `"result"`), strings.Count(text, `"outcome":"unknown"`)
		if told == 0 || unknown == 0 || told+unknown != calls {
			t.Errorf("by %s %d were told of, and %d as unknown, want %d together", by, told, unknown, calls)
		}
	}
}

// talker answers wait as a parrot does, and everything else at length.
type talker struct {
	longWinded
	parrot *parrot
	talked *atomic.Int32 // how often it answered at length
}

func (d talker) Answer(ctx context.Context, c *Call) Answer {
	if c.Method == "wait" {
		return d.parrot.Answer(ctx, c)
	}
	d.talked.Add(1)
	return d.longWinded.Answer(ctx, c)
}

// An array waits for its last answer. Meanwhile those that had no room take none.
func TestAnAnswerWithoutRoomIsNotCountedAmongThoseThatWait(t *testing.T) {
	p := newParrot()
	talked := new(atomic.Int32)
	g := startGateway(t, talker{parrot: p, talked: talked})
	c := g.dial()
	const calls = 12 // of which two have room
	c.Send("[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"talk"},`, calls) + `{"jsonrpc":"2.0","id":2,"method":"wait"}]`)
	wait.Until(t, "all answers but one, and no more bytes than a connection may have", func() bool {
		waits := int64(g.relay.waiting.Used())
		return p.waiting.Load() == 1 && talked.Load() == calls && waits > 0 && waits <= 2*g.relay.cfg.MaxAnswerBytes
	})
	close(p.let)
	if answers := c.Batch(); len(answers) != calls+1 {
		t.Errorf("%d answers", len(answers))
	}
}

func TestACallHasOneStream(t *testing.T) {
	p, g := speaking(t)
	c := g.dial()
	c.AskRefused("1", "twice", `[]`, "internal")
	if n := p.ended.Load(); n != 1 {
		t.Errorf("%d streams have ended, want the first", n)
	}
	for i := range 4 { // all that a connection may have
		c.Call(fmt.Sprint(i), "watch", `[]`)
	}
	if n := len(p.streams); n != 4 {
		t.Errorf("%d streams are opened behind it, want 4", n)
	}
}

func TestAMistakeBehindTheAnswerOfACallEndsItsConnectionOnly(t *testing.T) {
	log, err := audit.New(slog.DiscardHandler, audit.Config{Level: audit.All, Queue: 100, LoginsRefused: 1, CallsRefused: 1})
	must(t, err)
	_, g := speaking(t, func(s *setup) { s.ws.Audit = log })
	t.Cleanup(func() { check(t, log.Stop(context.Background())) })
	other, c := g.dial(), g.dial()
	c.Ask("1", "blunder", `[]`)
	c.WantClosed(wire.CloseInternal)
	other.Ask("1", "say", `[]`)
	if n := g.srv.Panics(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
}

// What is asked keeps its bytes until it is answered.
func TestTheBytesOfACallAreCountedUntilItsAnswer(t *testing.T) {
	p, g := speaking(t, receiveBytes, letIn(new(inprocess.People), "ada"))
	c := g.as("ada")
	params := `["` + strings.Repeat("x", 30<<10) + `"]`
	c.Send(`[{"jsonrpc":"2.0","id":"1","method":"wait","params":` + params + `},{"jsonrpc":"2.0","id":"2","method":"say","params":["x"]}]`)
	wait.Until(t, "the call", func() bool { return p.waiting.Load() == 1 })
	if taken := g.Metric("receive_bytes"); taken < 30<<10 || taken > 31<<10 {
		t.Errorf("%v bytes are counted for a call of 30 KiB that waits", taken)
	}
	close(p.let)
	if n := len(c.Batch()); n != 2 {
		t.Errorf("%d answers", n)
	}
	wait.Until(t, "their end", func() bool { return g.Metric("receive_bytes") == 0 })
}

func TestHalfBodiesOfOnePrincipalLeaveRoomForOthers(t *testing.T) {
	_, g := speaking(t, receiveBytes, letIn(new(inprocess.People), "hostile", "worker"))
	body := `{"jsonrpc":"2.0","id":"1","method":"say","params":["` + strings.Repeat("x", 60<<10) + `"]}`
	r, err := http.NewRequest(http.MethodPost, "http://"+g.address, strings.NewReader(body))
	must(t, err)
	r.Header = inprocess.As("hostile")
	var wire bytes.Buffer
	must(t, r.Write(&wire))
	for range 12 {
		conn, err := net.Dial("tcp", g.address)
		must(t, err)
		defer conn.Close()
		_, err = conn.Write(wire.Bytes()[:wire.Len()/2])
		must(t, err)
	}
	most := (384 << 10) / int64(len(body))
	wait.Until(t, "the bodies that wait", func() bool { return g.Metric("receive_waiting") == float64(12-most) })
	for range 3 {
		if response, _ := g.postAs("worker", body); response.StatusCode != http.StatusOK {
			t.Errorf("the other principal is answered %s", response.Status)
		}
	}
}

func TestCallsOfOnePrincipalLeaveSlotsToOthers(t *testing.T) {
	p, g := speaking(t, letIn(new(inprocess.People), "hostile", "worker"), func(s *setup) { s.ws.MaxBatch = 10 }) // with 100 slots
	hostile := g.as("hostile")
	for i := range 75 {
		hostile.Request(fmt.Sprint(i), "wait", "[]")
	}
	wait.Until(t, "the slow calls", func() bool { return p.waiting.Load() == 75 })
	second := g.as("hostile")
	if r := second.AskRefused("x", "say", `["x"]`, "server_busy"); !strings.Contains(show(r), `"stage":"quota"`) {
		t.Errorf("beyond its share: %v", r)
	}
	worker := g.as("worker")
	worker.Ask("1", "say", `["x"]`)
	array := strings.Repeat(`,{"jsonrpc":"2.0","id":"1","method":"say","params":["x"]}`, 10)[1:]
	worker.Send("[" + array + "]")
	if n := len(worker.Batch()); n != 10 {
		t.Errorf("%d answers to an array of %d", n, 10)
	}
	close(p.let)
	for range 75 {
		hostile.Reply()
	}
}

func TestEachLoginByPostIsAuditedOnceASocket(t *testing.T) {
	var out bytes.Buffer
	log, err := audit.New(slog.NewJSONHandler(&out, nil),
		audit.Config{Level: audit.Refusals, Queue: 100, LoginsRefused: 100, CallsRefused: 100})
	must(t, err)
	_, g := speaking(t, letIn(new(inprocess.People), "ada", "bob"), func(s *setup) { s.ws.Audit = log })
	for _, who := range []string{"ada", "ada", "bob", "bob", "eve"} {
		want := http.StatusOK
		if who == "eve" {
			want = http.StatusUnauthorized
		}
		if answer, said := g.postAs(who, `{"jsonrpc":"2.0","id":1,"method":"say"}`); answer.StatusCode != want {
			t.Fatalf("%s: %s %s", who, answer.Status, said)
		}
	}
	must(t, log.Stop(context.Background()))
	var got []string
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		must(t, json.Unmarshal([]byte(line), &e))
		got = append(got, fmt.Sprint(e["msg"], " ", e["principal"], " ", e["method"]))
	}
	want := "login ada POST /eth/1, login bob POST /eth/1, login_refused <nil> <nil>"
	if strings.Join(got, ", ") != want {
		t.Errorf("the audit says %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestABodyThatCannotBeReadIsChargedToWhoSentIt(t *testing.T) {
	people := new(inprocess.People)
	_, g := speaking(t, letIn(people, "ada"))
	people.Limit("ada", access.Quota{RequestsPerSecond: 0.001, Burst: 2})
	for i, want := range []string{"parse_error", "parse_error", "server_busy"} {
		if _, said := g.postAs("ada", `{"jsonrpc`); !strings.Contains(said, want) {
			t.Errorf("body %d is answered %s, want %s", i+1, said, want)
		}
	}
}

func TestAMistakeAtTheEndOfAStreamEndsNothingElse(t *testing.T) {
	p, g := speaking(t)
	c, other := g.dial(), g.dial()
	for _, method := range []string{"watch", "trip", "watch", "watch"} {
		c.Call("1", method, `[]`)
	}
	must(t, c.Conn.Close())
	wait.Until(t, "the end of the other streams", func() bool { return p.ended.Load() == 3 })
	if n := g.srv.Panics(); n != 1 {
		t.Errorf("%d panics counted, want 1", n)
	}
	other.Ask("1", "say", `[]`)
}
