package endpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/test/lab/inprocess"
	"noncegate/test/lab/wait"
	"noncegate/wire"
)

func TestWhatIsOnTheListIsPassedOnAsItIs(t *testing.T) {
	g := startGateway(t)
	g.nodes.answer("eth_getBalance", func(params string) (string, *rpcError, error) {
		return `{"params": ` + params + `,  "n":1e3}`, nil, nil
	})
	c := g.dial()
	c.call("eth_getBalance", `["0xAB", {"blockHash" : null}]`).wantResult(t, `{"params": ["0xAB", {"blockHash" : null}],  "n":1e3}`)
	c.write(`{"jsonrpc":"2.0","id":"x","method":"eth_blockNumber"}`)
	c.end(`"x"`).wantResult(t, `"eth_blockNumber"`)
	c.call("eth_blockNumber", `{}`).wantError(t, wire.CodeInvalidParams, "params: must be an array")
	if g.nodes.askedFor("eth_blockNumber") != 1 {
		t.Error("a call with bad params was passed on")
	}
}

func TestAnErrorOfTheNodeIsPassedOnAsItIs(t *testing.T) {
	g := startGateway(t)
	g.nodes.answer("eth_call", func(string) (string, *rpcError, error) {
		return "", &ethereum.RPCError{Code: 3, Message: "execution reverted: \"no\"\u2028", Data: json.RawMessage(`"0x08c379a0"`)}, nil
	})
	r := g.dial().call("eth_call", `[{}]`)
	r.wantError(t, 3, "execution reverted: \"no\"\u2028")
	if string(r.Error.Data) != `"0x08c379a0"` {
		t.Errorf("data %s", r.Error.Data)
	}
	_, body := g.post("", call("7", "eth_call", "[{}]"))
	want := "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":3,\"message\":\"execution reverted: \\\"no\\\"\u2028\"" +
		",\"data\":\"0x08c379a0\"}}"
	if body != want {
		t.Errorf("got %s, want %s", body, want)
	}
	g.WantMetrics(map[string]float64{"eth_requests_total{eth_call}{node}": 2})
}

func TestAnswersThatAreTooLargeAreRefused(t *testing.T) {
	g := startGateway(t)
	big := func(n int) func(string) (string, *rpcError, error) {
		return func(string) (string, *rpcError, error) { return `"` + strings.Repeat("x", n) + `"`, nil, nil }
	}
	g.nodes.answer("eth_getLogs", big(1<<20))
	c := g.dial()
	c.call("eth_getLogs", `[{}]`).wantError(t, wire.CodeAnswerTooLarge, "at most 1048576 are sent")
	if _, body := g.post("", call("1", "eth_getLogs", "[{}]")); !strings.Contains(body, "answer_too_large") {
		t.Errorf("by POST: %.200s", body)
	}
	g.nodes.answer("eth_getLogs", big(900<<10))
	if r := c.call("eth_getLogs", `[{}]`); len(r.Result) != 900<<10+2 {
		t.Errorf("got %.200v", r)
	}
	// Answers of a batch that are too large together, and one of which there is room for.
	list := make([]string, 4)
	for i := range list {
		list[i] = call(fmt.Sprint(100+i), "eth_getLogs", "[{}]")
	}
	c.write("[" + strings.Join(list, ",") + "]")
	ok, tooLarge := 0, 0
	for i := range list {
		switch r := c.end(fmt.Sprint(100 + i)); {
		case r.Error == nil:
			ok++
		case r.Error.Code == wire.CodeAnswerTooLarge:
			tooLarge++
		}
	}
	if ok != 2 || tooLarge != 2 {
		t.Errorf("%d answers of a batch, %d too large; want 2 and 2", ok, tooLarge)
	}
	g.WantMetrics(map[string]float64{"refused_total{answer_too_large}": 4})
}

func TestEventsComeOnlyToWhoMayReadAtTheTime(t *testing.T) {
	p := who(map[string]access.Right{"reader": 0})
	p.Grant("reader", "eip155:1:", access.RightChain)
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	reader := g.dialAs("reader")
	reader.call("eth_call", "[{}]").wantResult(t, `"eth_call"`)
	id := reader.subscribe(heads)
	p.Grant("reader", "eip155:10:", access.RightChain)
	p.Grant("reader", "eip155:1:", 0)
	g.nodes.upstreamOf(heads).on(json.RawMessage(`"unseen"`))
	p.Grant("reader", "eip155:1:", access.RightChain)
	g.nodes.upstreamOf(heads).on(json.RawMessage(`"seen"`))
	if n := reader.notification(); n.Params.Subscription != id || string(n.Params.Result) != `"seen"` {
		t.Errorf("got %+v, want the event of when it had the right", n)
	}
}

func TestPostsThatAreTooLongAreRefusedAndLeaveNothingInFlight(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.bounds.MaxMessageBytes, s.bounds.MaxInflight, s.bounds.MaxInflightTotal = 2000, 10, 10
	})
	for i := range 12 {
		if status, _ := g.post("", strings.Repeat(" ", 2001)); status != 413 {
			t.Errorf("a long request: %d", status)
		}
		_, body := g.post("", call(`"`+strings.Repeat("x", 600)+`"`, methodChainID, "[]"))
		if !strings.Contains(body, `"id":null,"error":{"code":-32600,"message":"invalid_request: id: must be at most 512 bytes"`) {
			t.Errorf("a long id: %s", body)
		}
		if _, body := g.post("", call("1", methodChainID, "[]")); !strings.Contains(body, `"result":"0x1"`) {
			t.Fatalf("request %d: %s", i+1, body)
		}
	}
}

func TestNodesThatAreNotThereYetAreAskedAgain(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.endpoint.NodesWait = patience })
	tries := 0
	g.nodes.answer("eth_call", func(string) (string, *rpcError, error) {
		if tries++; tries < 3 {
			return "", nil, fmt.Errorf("%w: not yet", chain.ErrUnreachable)
		}
		return "1", nil, nil
	})
	g.dial().call("eth_call", "[{}]").wantResult(t, "1")
}

func TestCallsInFlightAreBoundedAndEndWithTheConnection(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.bounds.MaxInflight, s.bounds.MaxInflightTotal = 10, 12 })
	g.nodes.answer("eth_call", func(string) (string, *rpcError, error) { return "", nil, errWait })
	a, b := g.dial(), g.dial()
	for range 10 {
		a.begin("eth_call", "[{}]")
	}
	r := a.call("eth_blockNumber", "[]")
	r.wantError(t, wire.CodeServerBusy, "stage connection is full")
	b.begin("eth_call", "[{}]")
	b.begin("eth_call", "[{}]")
	b.call("eth_blockNumber", "[]").wantError(t, wire.CodeServerBusy, "stage inflight is full")
	if _, body := g.post("", call("1", "eth_blockNumber", "[]")); !strings.Contains(body, "server_busy") {
		t.Errorf("by POST: %s", body)
	}
	must(t, a.conn.Close())
	wait.Until(t, "the slots of a connection that ended", func() bool {
		return b.call("eth_blockNumber", "[]").Error == nil
	})
	// The others end with the server, which the end of the test checks.
	g.WantMetrics(map[string]float64{"rejected_total{connection}": 1})
}

func TestAMistakeOfOursEndsOneCall(t *testing.T) {
	g := startGateway(t)
	g.nodes.answer("eth_call", func(string) (string, *rpcError, error) { panic("boom") })
	c := g.dial()
	c.call("eth_call", "[{}]").wantError(t, wire.CodeInternal, "nothing was committed")
	c.call(methodChainID, "[]").wantResult(t, `"0x1"`)
	g.nodes.saysBy(func(chain.Tx) chain.Verdict { panic("boom") })
	r := c.send(transaction(ada, 0, "a"))
	r.wantError(t, wire.CodeUnavailable, "the gateway met an error of its own")
	if r.said().Outcome != "unknown" {
		t.Errorf("outcome %q", r.said().Outcome)
	}
	if n := g.srv.Panics(); n != 2 {
		t.Errorf("%d panics were counted", n)
	}
	g.nodes.says(chain.Verdict{Class: chain.InPool})
	c.send(transaction(ada, 0, "a")).wantHashOf(t, transaction(ada, 0, "a"))
}

func TestAPostThatIsBeingAnsweredIsAConnection(t *testing.T) {
	p := who(map[string]access.Right{"alice": everyRight})
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	p.Limit("alice", access.Quota{Connections: 1})
	entered, let := make(chan struct{}), make(chan struct{})
	g.nodes.answer("eth_call", func(string) (string, *rpcError, error) { close(entered); <-let; return "1", nil, nil })
	first := make(chan int, 1)
	go func() { status, _ := g.post("alice", call("1", "eth_call", "[]")); first <- status }()
	wait.For(t, entered, "the first request")
	if status, _ := g.post("alice", call("1", methodChainID, "[]")); status != 429 {
		t.Errorf("the second request at a time got %d", status)
	}
	close(let)
	if status := wait.For(t, first, "the first answer"); status != 200 {
		t.Errorf("the first request got %d", status)
	}
	if n := g.srv.Waiting(); n != 0 {
		wait.Until(t, "sockets that ended", func() bool { return g.srv.Waiting() == 0 })
	}
}

// A socket that is kept open counts as let in from its first request on.
func TestASocketThatIsKeptOpenIsNotOneThatWaits(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.ws.Auth = who(map[string]access.Right{"alice": everyRight})
		s.ws.Addresses.Connections = 1
	})
	kept := &http.Client{Transport: &http.Transport{}}
	defer kept.CloseIdleConnections()
	for range 3 {
		if status, _, _ := g.requestBy(kept, "alice", http.MethodPost, "/eth/1", call("1", methodChainID, "[]"), nil); status != 200 {
			t.Fatalf("got %d", status)
		}
		if n := g.srv.Waiting(); n != 0 {
			t.Errorf("%d sockets wait to be let in", n)
		}
	}
	if status, _ := g.post("alice", call("1", methodChainID, "[]")); status != 429 {
		t.Errorf("a second socket of an address that may have one got %d", status)
	}
	kept.CloseIdleConnections()
	wait.Until(t, "the slot of the socket that ended", func() bool {
		status, _ := g.post("alice", call("1", methodChainID, "[]"))
		return status == 200
	})
}

func TestTheAuditSaysWhoSentWhat(t *testing.T) {
	var lines inprocess.Buffer
	log, err := audit.New(slog.NewTextHandler(&lines, nil), audit.Config{Level: audit.All, Queue: 1000, LoginsRefused: 100, CallsRefused: 100})
	must(t, err)
	t.Cleanup(func() { check(t, log.Stop(context.Background())) })
	g := startGateway(t, func(s *setup) {
		s.ws.Auth = who(map[string]access.Right{"alice": everyRight, "eve": access.RightRead})
		s.ws.Audit = log
	})
	g.dialAs("alice").send(transaction(ada, 0, "a"))
	g.dialAs("eve").send(transaction(ada, 1, "a"))
	g.post("alice", call("1", "eth_blockNumber", "[]"))
	g.nodes.says(chain.Verdict{Class: chain.Taken, Code: -32000, Message: "x"})
	g.post("alice", call("1", methodSend, `["`+transaction(ada, 1, "b")+`"]`))
	for _, want := range []string{
		"principal=alice credential=key-of-alice remote= method=eth_sendRawTransaction signer=" + signer(ada) + " nonce=0 outcome=ok",
		"principal=eve credential=key-of-eve remote= method=eth_sendRawTransaction signer=" + signer(ada) + " nonce=1 outcome=forbidden",
		"principal=alice credential=key-of-alice remote= method=eth_blockNumber outcome=ok",
		"principal=alice credential=key-of-alice remote= method=eth_sendRawTransaction signer=" + signer(ada) +
			" nonce=1 outcome=refused_elsewhere",
	} {
		wait.Until(t, want, func() bool {
			for line := range strings.Lines(lines.String()) {
				if hasWords(line, want) {
					return true
				}
			}
			return false
		})
	}
}

// hasWords reports whether a line of the audit has all words.
func hasWords(line, words string) bool {
	for _, w := range strings.Fields(words) {
		if !strings.Contains(line, w) {
			return false
		}
	}
	return true
}
