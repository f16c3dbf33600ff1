package chaintest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestWhatAFaultAnswers has each fault that answers by itself, on both transports, and
// shows that the node was not asked.
func TestWhatAFaultAnswers(t *testing.T) {
	s, asked := behind(t)
	p := StartProxy(t, asked)
	const head = `{"jsonrpc":"2.0","id":7,"result":"0x`
	for _, c := range []struct {
		fault    Fault
		status   int
		body, ws string // ws: "closed" for the end of the connection
	}{
		{RateLimited, 200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32005,"message":"daily request count exceeded, request rate limited"}}`, "same"},
		{RPCError(-32603, "internal"), 200, `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal"}}`, "same"},
		{Result(nil), 200, `{"jsonrpc":"2.0","id":7,"result":null}`, "same"},
		{Result([]int{1}), 200, `{"jsonrpc":"2.0","id":7,"result":[1]}`, "same"},
		{Result("0x1"), 200, `{"jsonrpc":"2.0","id":7,"result":"0x1"}`, "same"},
		{NotJSON, 200, "<html><body>Bad gateway</body></html>", "same"},
		{Big(64), 200, head + strings.Repeat("0", 64-len(head)-2) + `"}`, "same"},
		{Status(429), 429, "", "closed"},
		{Status(503), 503, "", "closed"},
		{Redirect("http://127.0.0.1:1/elsewhere"), 302, "http://127.0.0.1:1/elsewhere", "closed"},
		{Cut, 0, "", "closed"},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			ws := dialRaw(t, p.WS())
			rule := p.On("eth_blockNumber", c.fault)
			defer rule.End()
			status, body, err := post(t, p.URL(), blockNumber)
			if status != c.status || body != c.body && err == nil || (err != nil) != (c.status == 0) {
				t.Errorf("over HTTP %d %q, %v", status, body, err)
			}
			if c.ws == "same" {
				c.ws = c.body
			}
			if got := ws.ask(blockNumber); got != c.ws {
				t.Errorf("over a WebSocket %q, want %q", got, c.ws)
			}
			if c.ws == "closed" {
				ws = dialRaw(t, p.WS())
			}
			if n := asked.Requests()["eth_blockNumber"]; rule.Met() != 2 || n != 0 {
				t.Errorf("%d calls met it, want 2, and %d reached the node", rule.Met(), n)
			}
			rule.End()
			number, _ := s.Head()
			healthy := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":"0x%x"}`, number)
			if _, body, err := post(t, p.URL(), blockNumber); body != healthy {
				t.Errorf("after the end of the rule: %q, %v", body, err)
			}
			if got := ws.ask(blockNumber); got != healthy {
				t.Errorf("over a WebSocket after the end of the rule: %q", got)
			}
			asked.ResetCounts()
		})
	}
}

func TestRulesAreMetByTheCallsTheyAreFor(t *testing.T) {
	s, p := behind(t)
	answerOf := func() string {
		t.Helper()
		_, body, err := post(t, p.URL(), blockNumber)
		if err != nil {
			t.Fatal(err)
		}
		var a struct{ Result any }
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(a.Result)
	}
	want := func(what string, results ...string) {
		t.Helper()
		for i, want := range results {
			if got := answerOf(); got != want {
				t.Errorf("%s, call %d: %s, want %s", what, i, got, want)
			}
		}
	}
	all := p.On(All, Result("all"))
	newest := p.On("eth_blockNumber", Result("new"))
	want("the newest", "new", "new")
	newest.End()
	want("then all", "all")
	all.End()
	want("ended", "0x1")
	p.On("eth_chainId", Result("other"))
	want("another method's", "0x1")
	p.On(All, Status(http.StatusServiceUnavailable))
	dialRaw(t, p.WS()) // no call
	if got := p.Requests()[Upgrade]; got != 1 {
		t.Errorf("%d upgrades were counted", got)
	}
	p.Clear()

	a, b := s.Accounts[0].Address, s.Accounts[1].Address
	p.On("eth_getTransactionCount", Result("0x99"), If(func(params json.RawMessage) bool {
		return bytes.Contains(bytes.ToLower(params), bytes.ToLower([]byte(a.Hex())))
	}))
	client := dial(t, p.URL())
	for account, want := range map[[20]byte]uint64{a: 0x99, b: 0} {
		if got, err := client.NonceAt(t.Context(), account, nil); err != nil || got != want {
			t.Errorf("count of %x is %d, %v; want %d", account, got, err, want)
		}
	}
}

func TestFaultsInABatch(t *testing.T) {
	_, asked := behind(t)
	p := StartProxy(t, asked)
	ws := dialRaw(t, p.WS())
	batch := "[" + blockNumber + "," + chainID + `,{"jsonrpc":"2.0","method":"net_version"}]`
	both := func(want string) {
		t.Helper()
		if _, body, err := post(t, p.URL(), batch); body != want {
			t.Errorf("over HTTP %q, %v; want %q", body, err, want)
		}
		if got := ws.ask(batch); got != want {
			t.Errorf("over a WebSocket %q, want %q", got, want)
		}
	}
	const first, second = `{"jsonrpc":"2.0","id":7,"result":"0x1"}`, `{"jsonrpc":"2.0","id":8,"result":"0x539"}`
	both("[" + first + "," + second + "]")
	p.On("eth_chainId", RPCError(-32005, "limit"))
	asked.ResetCounts()
	both("[" + first + `,{"jsonrpc":"2.0","id":8,"error":{"code":-32005,"message":"limit"}}]`)
	if got := asked.Requests(); got["eth_chainId"] != 0 || got["eth_blockNumber"] != 2 {
		t.Errorf("the node was asked %v, want what has no rule, over HTTP and a WebSocket", got)
	}
	p.On("eth_blockNumber", Result("0x9"))
	p.On("net_version", Result("1"))
	asked.ResetCounts()
	both(`[{"jsonrpc":"2.0","id":7,"result":"0x9"},{"jsonrpc":"2.0","id":8,"error":{"code":-32005,"message":"limit"}}]`)
	if got := asked.Requests(); len(got) != 0 {
		t.Errorf("the node was asked %v, want nothing", got)
	}
	p.On("eth_blockNumber", NotJSON)
	both("<html><body>Bad gateway</body></html>")
	p.Clear()
	// A call that wants no answer gets none, though its rule has one.
	p.On("eth_chainId", Result("0x2"))
	const silent = `{"jsonrpc":"2.0","method":"eth_chainId"}`
	if status, body, err := post(t, p.URL(), silent); status != http.StatusOK || body != "" {
		t.Errorf("%d %q, %v; want nothing", status, body, err)
	}
	ws.send(silent)
	if got := ws.ask(blockNumber); got != first {
		t.Errorf("after a call without id %q, want %q", got, first)
	}
	for _, text := range []string{"", "[]", "{", `"text"`} {
		if _, body, err := post(t, p.URL(), text); !strings.Contains(body, `"code":-32700`) {
			t.Errorf("%q is answered %q, %v", text, body, err)
		}
	}
	if got := ws.ask("{"); !strings.Contains(got, `"code":-32700`) {
		t.Errorf("over a WebSocket half a message is answered %q", got)
	}
}
