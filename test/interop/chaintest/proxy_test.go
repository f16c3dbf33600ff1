//go:build unix

package chaintest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/guarded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, Leftovers()...) }

// ask sends text over HTTP or, with ws, over a WebSocket: the answer is what comes, the status that is not
// 200, and where it leads, or "closed".
func ask(t *testing.T, p *Proxy, ws bool, text string) string {
	t.Helper()
	if ws {
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(pollDeadline))
		_ = conn.WriteMessage(websocket.TextMessage, []byte(text))
		_, message, err := conn.ReadMessage()
		if err != nil {
			return "closed"
		}
		return string(message)
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: pollDeadline, CheckRedirect: stay}
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

// Each fault that answers by itself, on both transports, alone and in a batch, without asking the node.
func TestWhatAFaultAnswers(t *testing.T) {
	const (
		asked = `{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}`
		other = `{"jsonrpc":"2.0","id":8,"method":"eth_chainId"}`
		head  = `{"jsonrpc":"2.0","id":1,"result":"0x`
		one   = head + `1"}`
	)
	node := StartProxy(t, StartSim(t, SimConfig{}))
	p := StartProxy(t, node)
	for _, c := range []struct {
		fault Fault
		http  string
		whole bool // instead of the whole message
	}{
		{RPCError(-32603, "internal"), `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal"}}`, false},
		{Result(nil), `{"jsonrpc":"2.0","id":1,"result":null}`, false},
		{Result([]int{1}), `{"jsonrpc":"2.0","id":1,"result":[1]}`, false},
		{NotJSON, "<html><body>Bad gateway</body></html>", true},
		{Big(64), head + strings.Repeat("0", 64-len(head)-2) + `"}`, true},
		{Status(429), "429", true},
		{Redirect("http://127.0.0.1:1/"), "302http://127.0.0.1:1/", true},
		{Cut, "closed", true},
	} {
		rule := p.On("eth_blockNumber", c.fault)
		batch, inBatch := "["+asked+","+other+`,{"jsonrpc":"2.0","method":"net_version"}]`, c.http
		if !c.whole {
			inBatch = "[" + c.http + `,{"jsonrpc":"2.0","id":8,"result":"0x539"}]`
		}
		for text, want := range map[string]string{asked: c.http, batch: inBatch} {
			for _, ws := range []bool{false, true} {
				if ws && (len(want) == 3 || strings.HasPrefix(want, "302")) {
					want = "closed"
				}
				if got := ask(t, p, ws, text); got != want {
					t.Errorf("%v over a WebSocket: %t: %s, want %s", c.fault, ws, got, want)
				}
			}
		}
		if n := node.Calls("eth_blockNumber"); rule.Met() != 4 || n != 0 {
			t.Errorf("%v: %d calls met it, want 4, and %d reached the node", c.fault, rule.Met(), n)
		}
		rule.End()
	}
	p.On(All, Result("all")).End()
	if got := ask(t, p, false, asked); got != one {
		t.Errorf("after the end of all rules: %s", got)
	}
}

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	_, err := newAnvil(t, "--no-such-argument")
	if err == nil || !errors.Is(err, guarded.ErrEnded) || !strings.Contains(err.Error(), "--no-such-argument") {
		t.Errorf("it said %v", err)
	}
}
