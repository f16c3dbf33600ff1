//go:build unix

package chaintest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, Leftovers()...) }

// behind is a chain and a proxy in front of it.
func behind(t *testing.T) (*Sim, *Proxy) {
	s := StartSim(t, SimConfig{})
	return s, StartProxy(t, s)
}

// eachTransport runs a test over HTTP and over a WebSocket.
func eachTransport(t *testing.T, test func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client)) {
	for _, name := range []string{"http", "ws"} {
		t.Run(name, func(t *testing.T) {
			s, p := behind(t)
			client, err := ethclient.DialContext(t.Context(), name+"://"+p.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			test(t, s, p, client)
		})
	}
}

func TestAProxyForwards(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		a := s.Accounts[0]
		heads := make(chan *types.Header, 64)
		if strings.HasSuffix(t.Name(), "ws") {
			sub, err := client.SubscribeNewHead(t.Context(), heads)
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				if want, got := s.CommitEmpty(), (<-heads).Hash(); got != want {
					t.Errorf("told of %v, want %v", got, want)
				}
			}
			sub.Unsubscribe()
		}
		tx := s.Sign(a, Payment{})
		if err := client.SendTransaction(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		s.Commit()
		if r, err := client.TransactionReceipt(t.Context(), tx.Hash()); err != nil || r.TxHash != tx.Hash() || len(heads) > 0 {
			t.Errorf("receipt %+v, %v; %d heads after the end of the subscription", r, err, len(heads))
		}
		// What the node refuses is refused in its words, with its code.
		err, direct := client.SendTransaction(t.Context(), tx), s.Send(tx)
		if coded, ok := errors.AsType[rpc.Error](err); !ok || err.Error() != direct.Error() || coded.ErrorCode() != -32000 {
			t.Errorf("refused with %v, the node itself says %v", err, direct)
		}
		if got := p.Requests()["eth_sendRawTransaction"]; got != 2 {
			t.Errorf("%d sends were counted, want 2", got)
		}
	})
}

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
	client := &http.Client{Transport: transport, Timeout: pollDeadline, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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

// overSocket sends texts over one WebSocket, and returns what comes last, or "closed".
func overSocket(t *testing.T, p *Proxy, texts ...string) (last string) {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(pollDeadline))
	for _, text := range texts {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	_, message, err := conn.ReadMessage()
	if err != nil {
		return "closed"
	}
	return string(message)
}

// Each fault that answers by itself, on both transports, alone and in a batch, without asking the node.
func TestWhatAFaultAnswers(t *testing.T) {
	_, asked := behind(t)
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

func TestSentAndNeverAnswered(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		told  bool // that the connection has ended
		where string
	}{
		{NoAnswer, false, InPool}, {CutAfter, true, InPool}, {Lost, false, Nowhere}, {Cut, true, Nowhere},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			s, p := behind(t)
			rule := p.On("eth_sendRawTransaction", c.fault)
			var texts []string
			over := []*types.Transaction{s.Sign(s.Accounts[0], Payment{}), s.Sign(s.Accounts[1], Payment{})}
			for _, tx := range over {
				texts = append(texts, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x%x"]}`, s.Raw(tx)))
			}
			got := make(chan string, 1)
			go func() { got <- post(p, texts[0]) }()
			rule.Await(1)
			if !c.told {
				p.Disconnect()
			}
			if told := <-got; told != "closed" {
				t.Errorf("over HTTP the client was told %s", told)
			}
			want := "closed"
			if !c.told { // and what comes after it is answered
				want, texts = numberIs1, append(texts, blockNumber)
			}
			if told := overSocket(t, p, texts[1:]...); told != want {
				t.Errorf("over a WebSocket the client was told %s, want %s", told, want)
			}
			rule.Await(2)
			s.Settle()
			for _, tx := range over {
				if got := s.Where(tx.Hash()); got != c.where {
					t.Errorf("the transaction is %s, want %s", got, c.where)
				}
			}
			p.Refuse()
			if told := post(p, blockNumber); told != "closed" {
				t.Errorf("while the node is away: %s", told)
			}
			p.Accept()
			if told := post(p, blockNumber); told != numberIs1 {
				t.Errorf("when the node is back: %s", told)
			}
		})
	}
}

func TestAnvilSaysWhyItDidNotStart(t *testing.T) {
	_, err := newAnvil(t, "--no-such-argument")
	if err == nil || !strings.Contains(err.Error(), "anvil ended") || !strings.Contains(err.Error(), "--no-such-argument") {
		t.Errorf("it said %v", err)
	}
}
