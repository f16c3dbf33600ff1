package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/quota"
	"noncegate/nonce"
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
	if want := "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":3,\"message\":\"execution reverted: \\\"no\\\"\u2028\",\"data\":\"0x08c379a0\"}}"; body != want {
		t.Errorf("got %s, want %s", body, want)
	}
	g.WantMetrics(map[string]float64{"eth_requests_total{eth_call}{node}": 2})
}

func TestNodesThatAreAwayOrBusyOrTooTalkative(t *testing.T) {
	g := startGateway(t)
	for _, c := range []struct {
		err   error
		code  int
		words string
	}{
		{fmt.Errorf("%w: x", chain.ErrUnreachable), wire.CodeUnavailable, "no node of the chain has answered"},
		{fmt.Errorf("%w: x", ethereum.ErrBusy), wire.CodeServerBusy, "no slot at the nodes of the chain became free in time"},
		{fmt.Errorf("%w: x", ethereum.ErrTooLarge), wire.CodeAnswerTooLarge, "the node's answer is larger than is passed on"},
	} {
		g.nodes.answer("eth_getLogs", func(string) (string, *rpcError, error) { return "", nil, c.err })
		g.dial().call("eth_getLogs", `[{}]`).wantError(t, c.code, c.words)
	}
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
	g.WantMetrics(map[string]float64{"refused_total{answer_too_large}": 5})
}

func TestMethodsThatAreNotPassedOn(t *testing.T) {
	g, c := connect(t)
	for method, words := range map[string]string{
		"eth_newFilter":                     "the method eth_newFilter does not exist/is not available: a filter is the state of one node",
		"eth_fillTransaction":               "the method eth_fillTransaction does not exist/is not available",
		"eth_sendRawTransactionConditional": "under conditions",
		"eth_sendTransaction":               "the gateway has no keys",
		"personal_sign":                     `the method "personal_sign" does not exist/is not available: it is not on the list`,
		"debug_traceTransaction":            "is not on the list",
		"admin_addPeer":                     "is not on the list",
		"nonce_allocate":                    "is not on the list",
		strings.Repeat("x", 4000):           "is not on the list",
	} {
		c.call(method, `[]`).wantError(t, wire.CodeMethodNotFound, words)
	}
	if len(g.nodes.asked) != 0 {
		t.Errorf("the nodes were asked for %v", g.nodes.asked)
	}
	g.WantMetrics(map[string]float64{"eth_requests_total{other}{refused}": 5, "eth_requests_total{eth_newFilter}{refused}": 1})
}

func TestTheGatewayAnswersWhatItKnowsItself(t *testing.T) {
	g, c := connect(t)
	c.call(methodChainID, `[]`).wantResult(t, `"0x1"`)
	c.call(methodVersion, `[]`).wantResult(t, `"1"`)
	c.call(methodAccounts, `[]`).wantResult(t, `[]`)
	if len(g.nodes.asked) != 0 {
		t.Errorf("the nodes were asked for %v", g.nodes.asked)
	}
}

func TestThePendingCountIsWhatWouldBeHandedOut(t *testing.T) {
	g := startGateway(t)
	g.nodes.at(ada, chain.Start{Latest: 5, Pending: 7})
	c := g.dial()
	pending := `["0x` + strings.ToUpper(ada[2:]) + `","pending"]`
	count := func(want int64) {
		t.Helper()
		c.call(methodCount, pending).wantResult(t, fmt.Sprintf(`"0x%x"`, want))
	}
	count(7) // nobody has used it here
	if n := g.allocate(signer(ada), ""); n != 7 {
		t.Fatalf("allocated %d", n)
	}
	count(8)
	count(8) // nothing is reserved by asking
	g.allocate(signer(ada), "")
	g.allocate(signer(ada), "")
	for _, n := range []int64{9, 8} {
		must(t, g.Service.Do(t.Context(), &nonce.Op{Kind: nonce.KindMarkRecyclable, Signer: signer(ada), Nonce: n, Attempt: 1}))
		count(n) // the lowest that was given back
	}
	if n := g.nodes.askedFor(methodCount); n != 0 {
		t.Errorf("%d counts were passed on", n)
	}
	for _, params := range []string{`["` + ada + `","latest"]`, `["` + ada + `"]`, `["` + ada + `","0x10"]`, `["` + ada + `",{"blockHash":"0x1"}]`, `["mistyped","pending"]`} {
		c.call(methodCount, params).wantResult(t, `"eth_getTransactionCount"`)
	}
	if n := g.nodes.askedFor(methodCount); n != 5 {
		t.Errorf("%d counts were passed on, want 5", n)
	}
}

func TestThePendingCountOfWhoHasNothingToDoWithTheSignerIsTheNodes(t *testing.T) {
	g := startGateway(t, letIn(map[string]access.Right{"alice": access.RightAllocate, "stranger": access.RightChain, "nobody": 0}))
	g.allocate(signer(ada), "alice")
	params := `["` + ada + `","pending"]`
	g.dialAs("alice").call(methodCount, params).wantResult(t, `"0x1"`)
	g.dialAs("stranger").call(methodCount, params).wantResult(t, `"eth_getTransactionCount"`)
	g.dialAs("nobody").call(methodCount, params).wantError(t, wire.CodeForbidden, "the right chain on eip155:1:* is missing")
}

func TestWithoutTheRightChainNothingIsReadThroughTheNodes(t *testing.T) {
	p := who(map[string]access.Right{"sender": access.RightAllocate | access.RightMark, "elsewhere": 0, "reader": 0})
	p.Grant("elsewhere", "eip155:10:", access.RightChain)
	p.Grant("reader", "eip155:1:", access.RightChain)
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	for _, name := range []string{"sender", "elsewhere"} {
		c := g.dialAs(name)
		for _, call := range [][2]string{{"eth_call", "[{}]"}, {methodLogs, "[{}]"}, {methodCount, `["` + ada + `","latest"]`}, {methodSubscribe, heads}} {
			r := c.call(call[0], call[1])
			r.wantError(t, wire.CodeForbidden, "the right chain on eip155:1:* is missing")
			if !strings.Contains(string(r.Error.Data), `"right":"chain"`) {
				t.Errorf("%s: %s names no right", call[0], r.Error.Data)
			}
		}
		c.call(methodChainID, "[]").wantResult(t, `"0x1"`)
	}
	if n := g.nodes.askedFor("eth_call") + g.nodes.askedFor(methodLogs) + g.nodes.askedFor(methodCount); n != 0 {
		t.Errorf("the nodes were asked %d times", n)
	}
	sender := g.dialAs("sender")
	sender.call(methodCount, `["`+ada+`","pending"]`).wantResult(t, `"0x0"`)
	raw := transaction(ada, 0, "x")
	sender.send(raw).wantResult(t, `"`+hashOf(raw).String()+`"`)
	reader := g.dialAs("reader")
	reader.call("eth_call", "[{}]").wantResult(t, `"eth_call"`)
	id := reader.subscribe(heads)
	p.Grant("reader", "eip155:1:", 0)
	g.nodes.upstreamOf(heads).on(json.RawMessage(`"unseen"`))
	p.Grant("reader", "eip155:1:", access.RightChain)
	g.nodes.upstreamOf(heads).on(json.RawMessage(`"seen"`))
	if n := reader.notification(); n.Params.Subscription != id || string(n.Params.Result) != `"seen"` {
		t.Errorf("got %+v, want the event of when it had the right", n)
	}
}

func TestThePendingCountIsARequestForItsSigner(t *testing.T) {
	g := startGateway(t, func(s *setup) { s.ws.Signers.Rate = quota.Rate{PerSecond: 0.001, Burst: 2} })
	g.dial().call(methodCount, `["`+ada+`","pending"]`).wantResult(t, `"0x0"`)
	c := g.dial()
	c.call(methodCount, `["`+ada+`","pending"]`).wantResult(t, `"0x0"`)
	c.call(methodCount, `["`+ada+`","pending"]`).wantError(t, wire.CodeServerBusy, "the requests a second of signer "+signer(ada)+" are used up")
	c.call(methodCount, `["`+ada+`","latest"]`).wantResult(t, `"eth_getTransactionCount"`)
	c.call(methodCount, `["`+account(2)+`","pending"]`).wantResult(t, `"0x0"`)
	for n := range 2 { // readers leave its own requests to the signer
		raw := transaction(ada, int64(n), "a")
		c.send(raw).wantResult(t, `"`+hashOf(raw).String()+`"`)
	}
	c.send(transaction(ada, 2, "a")).wantError(t, wire.CodeServerBusy, "are used up")
}

func TestThePendingCountWhenNoNodeAnswers(t *testing.T) {
	g := startGateway(t)
	g.allocate(signer(ada), "")
	g.nodes.goAway()
	c := g.dial()
	c.call(methodCount, `["`+ada+`","pending"]`).wantResult(t, `"0x1"`)
	c.call(methodCount, `["`+account(2)+`","pending"]`).wantError(t, wire.CodeUnavailable, "no node of the chain has answered")
}

func TestTheLogsOfNoBlockAreNone(t *testing.T) {
	_, c := connect(t)
	c.call(methodLogs, `[{"address":"0x1","fromBlock":"0x8","toBlock":"0x7"}]`).wantResult(t, "[]")
	for _, params := range []string{
		`[{"fromBlock":"0x8","toBlock":"0x8"}]`, `[{"fromBlock":"0x9","toBlock":"0x7"}]`, `[{"fromBlock":"latest","toBlock":"0x7"}]`,
		`[{"fromBlock":"0x0"}]`, `[{}]`, `[{"fromBlock":8,"toBlock":[]}]`, `[1]`, `[]`,
	} {
		c.call(methodLogs, params).wantResult(t, `"eth_getLogs"`)
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

func TestABatchIsMixedAndInOrder(t *testing.T) {
	g := startGateway(t)
	raw, next := transaction(ada, 0, "a"), transaction(ada, 1, "b")
	g.nodes.answer("eth_getBalance", func(string) (string, *rpcError, error) { return "", nil, errors.New("x") })
	batch := "[" + strings.Join([]string{
		call("1", methodSend, `["`+raw+`"]`), call("2", methodChainID, "[]"), `{"jsonrpc":"2.0","method":"eth_blockNumber"}`, call(`"three"`, methodSend, `["`+next+`"]`),
		call("4", "eth_getBalance", "[]"), call("5", "eth_nothing", "[]"), `12`, call("7", "eth_gasPrice", "[]"),
	}, ",") + "]"
	want := []string{`1,"result":"` + hashOf(raw).String() + `"`, `2,"result":"0x1"`, `"three","result":"` + hashOf(next).String() + `"`,
		`4,"error":{"code":-32012`, `5,"error":{"code":-32601`, `null,"error":{"code":-32600`, `7,"result":"eth_gasPrice"`}
	status, body := g.post("", batch)
	at := 0
	for _, w := range want {
		i := strings.Index(body[at:], `{"jsonrpc":"2.0","id":`+w)
		if i < 0 {
			t.Fatalf("%d: %s\nhas no %s behind %d", status, body, w, at)
		}
		at += i
	}
	c := g.dial()
	c.write(strings.ReplaceAll(batch, methodSend, "eth_call"))
	c.end("1").wantResult(t, `"eth_call"`)
	c.end("7").wantResult(t, `"eth_gasPrice"`)
	wait.Until(t, "the notifications", func() bool { return g.nodes.askedFor("eth_blockNumber") == 2 })
	g.nodes.wantGiven(0, 1)
	c.end("null").wantError(t, wire.CodeInvalidRequest, "a request must be an object")
	c.write("[]")
	c.end("null").wantError(t, wire.CodeInvalidRequest, "the batch is empty")
	c.write("[" + strings.Repeat("1,", 10) + "1]")
	c.end("null").wantError(t, wire.CodeInvalidRequest, "the batch has more than 10 requests")
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

func TestWhatComesByPost(t *testing.T) {
	g := startGateway(t, func(s *setup) {
		s.bounds.MaxMessageBytes, s.bounds.MaxInflight, s.bounds.MaxInflightTotal = 2000, 10, 10 // fewer than there are here
	})
	for _, c := range []struct {
		name, method, path, body string
		header                   http.Header
		status                   int
		want                     string
	}{
		{"a call", "POST", "/eth/1", call("1", methodChainID, "[]"), nil, 200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`},
		{"with a slash", "POST", "/eth/1/", call("1", methodChainID, "[]"), nil, 200, `{"jsonrpc":"2.0","id":1,"result":"0x1"}`},
		{"an array of one", "POST", "/eth/1", "[" + call("1", methodChainID, "[]") + "]", nil, 200, `[{"jsonrpc":"2.0","id":1,"result":"0x1"}]`},
		{"a notification", "POST", "/eth/1", `{"jsonrpc":"2.0","method":"eth_chainId"}`, nil, 204, ""},
		{"no JSON", "POST", "/eth/1", "{", nil, 200, `"code":-32700`},
		{"nothing", "POST", "/eth/1", "", nil, 200, `"code":-32700`},
		{"no request", "POST", "/eth/1", `{"jsonrpc":"1.0","id":4,"method":"eth_chainId"}`, nil, 200, `"id":4,"error":{"code":-32600`},
		{"too long", "POST", "/eth/1", strings.Repeat(" ", 2001), nil, 413, "Request Entity Too Large"},
		{"a long id", "POST", "/eth/1", call(`"`+strings.Repeat("x", 600)+`"`, methodChainID, "[]"), nil, 200, `"id":null,"error":{"code":-32600,"message":"invalid_request: id: must be at most 512 bytes"`},
		{"a subscription", "POST", "/eth/1", call("1", methodSubscribe, `["newHeads"]`), nil, 200, "notifications not supported"},
		{"the end of one", "POST", "/eth/1", call("1", methodUnsubscribe, `["0x1"]`), nil, 200, "this connection has no such subscription"},
		{"by GET", "GET", "/eth/1", "", nil, 400, "Upgrade: websocket and Connection: Upgrade"},
		{"of another chain", "POST", "/eth/5", call("1", methodChainID, "[]"), nil, 404, "this gateway has no such chain (--chain); it has /eth/1"},
		{"of no chain", "POST", "/eth/", "", nil, 404, "no such chain"},
		{"a page from elsewhere", "POST", "/eth/1", call("1", methodChainID, "[]"), http.Header{"Origin": {"https://evil.example"}}, 403, "pages of this origin may not connect"},
		{"a page from here", "POST", "/eth/1", call("1", methodChainID, "[]"), http.Header{"Origin": {"http://" + g.address}}, 200, `"result":"0x1"`},
		{"what a page asks first", "OPTIONS", "/eth/1", "", http.Header{"Origin": {"http://" + g.address}}, 204, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body, header := g.request("", c.method, c.path, c.body, c.header)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("got %d and %s, want %d and %s", status, body, c.status, c.want)
			}
			if origin := c.header.Get("Origin"); origin != "" && status < 300 && header.Get("Access-Control-Allow-Origin") != origin {
				t.Errorf("the page may not read the answer: %v", header)
			}
		})
	}
	for i := range 12 { // nothing of those before is still in flight
		if _, body := g.post("", call("1", methodChainID, "[]")); !strings.Contains(body, `"result":"0x1"`) {
			t.Fatalf("request %d: %s", i+1, body)
		}
	}
}

func TestPostsOfWhoIsNotKnownAreRefused(t *testing.T) {
	p := who(map[string]access.Right{"alice": everyRight})
	p.Limit("alice", access.Quota{RequestsPerSecond: 0.001, Burst: 2, Connections: 1})
	g := startGateway(t, func(s *setup) { s.ws.Auth = p })
	if status, _ := g.post("mallory", call("1", methodChainID, "[]")); status != 401 {
		t.Errorf("a stranger got %d", status)
	}
	for i := range 3 {
		status, body := g.post("alice", call("1", methodChainID, "[]"))
		if busy := strings.Contains(body, `"stage":"quota"`); status != 200 || busy != (i == 2) {
			t.Errorf("request %d: %d %s", i+1, status, body)
		}
	}
	// A request that is being answered is a connection of its principal.
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
		"principal=alice credential=key-of-alice remote= method=eth_sendRawTransaction signer=" + signer(ada) + " nonce=1 outcome=refused_elsewhere",
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
