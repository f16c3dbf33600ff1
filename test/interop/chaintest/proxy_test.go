//go:build unix

package chaintest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, Leftovers()...) }

const (
	blockNumber = `{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"}`
	chainID     = `{"jsonrpc":"2.0","id":8,"method":"eth_chainId"}`
	numberIs1   = `{"jsonrpc":"2.0","id":7,"result":"0x1"}`
)

// post sends any text over HTTP: the answer is the body, the status that is not 200, and where
// it leads, or "closed".
func post(p *Proxy, text string) string {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: transport, Timeout: pollDeadline, CheckRedirect: stay}
	resp, err := client.Post(p.URL(), "application/json", strings.NewReader(text))
	if err != nil {
		return "closed"
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode, resp.Header.Get("Location"))
	}
	return string(body)
}

// overSocket sends text over a WebSocket, and returns what comes, or "closed".
func overSocket(t *testing.T, p *Proxy, text string) string {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(pollDeadline))
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
	_, message, err := conn.ReadMessage()
	if err != nil {
		return "closed"
	}
	return string(message)
}

// Each fault that answers by itself, on both transports, alone and in a batch, without asking the node.
func TestWhatAFaultAnswers(t *testing.T) {
	asked := StartProxy(t, StartSim(t, SimConfig{}))
	p := StartProxy(t, asked)
	const head, second = `{"jsonrpc":"2.0","id":7,"result":"0x`, `{"jsonrpc":"2.0","id":8,"result":"0x539"}`
	for _, c := range []struct {
		fault Fault
		http  string
		whole bool // instead of the whole message
	}{
		{RPCError(-32603, "internal"), `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal"}}`, false},
		{Result(nil), `{"jsonrpc":"2.0","id":7,"result":null}`, false},
		{Result([]int{1}), `{"jsonrpc":"2.0","id":7,"result":[1]}`, false},
		{NotJSON, "<html><body>Bad gateway</body></html>", true},
		{Big(64), head + strings.Repeat("0", 64-len(head)-2) + `"}`, true},
		{Status(429), "429", true},
		{Redirect("http://127.0.0.1:1/"), "302http://127.0.0.1:1/", true},
		{Cut, "closed", true},
	} {
		rule := p.On("eth_blockNumber", c.fault)
		batch, inBatch := "["+blockNumber+","+chainID+`,{"jsonrpc":"2.0","method":"net_version"}]`, c.http
		if !c.whole {
			inBatch = "[" + c.http + "," + second + "]"
		}
		for text, want := range map[string]string{blockNumber: c.http, batch: inBatch} {
			if got := post(p, text); got != want {
				t.Errorf("%v over HTTP: %s, want %s", c.fault, got, want)
			}
			if len(want) == 3 || strings.HasPrefix(want, "302") {
				want = "closed"
			}
			if got := overSocket(t, p, text); got != want {
				t.Errorf("%v over a WebSocket: %s, want %s", c.fault, got, want)
			}
		}
		if n := asked.Requests()["eth_blockNumber"]; rule.Met() != 4 || n != 0 {
			t.Errorf("%v: %d calls met it, want 4, and %d reached the node", c.fault, rule.Met(), n)
		}
		rule.End()
	}
	if got := post(p, blockNumber); got != numberIs1 {
		t.Errorf("after the end of all rules: %s", got)
	}
	p.On(All, Result("all"))
	p.On("eth_blockNumber", Result("0x1"), If(func(params json.RawMessage) bool { return len(params) == 0 }))
	if got := post(p, blockNumber); got != numberIs1 {
		t.Errorf("the newest rule says %s", got)
	}
}

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	_, err := newAnvil(t, "--no-such-argument")
	if err == nil || !strings.Contains(err.Error(), "anvil ended") || !strings.Contains(err.Error(), "--no-such-argument") {
		t.Errorf("it said %v", err)
	}
}
