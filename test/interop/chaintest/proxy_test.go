package chaintest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
)

// behind is a chain and a proxy in front of it.
func behind(t *testing.T) (*Sim, *Proxy) {
	s := StartSim(t, SimConfig{})
	return s, StartProxy(t, s)
}

// dial connects go-ethereum's client, which is closed with the test.
func dial(t *testing.T, url string) *ethclient.Client {
	t.Helper()
	// A transport of its own, so that no connection outlives the test.
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := rpc.DialOptions(t.Context(), url, rpc.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return ethclient.NewClient(client)
}

// eachTransport runs a test over HTTP and over a WebSocket.
func eachTransport(t *testing.T, test func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client)) {
	for _, name := range []string{"http", "ws"} {
		t.Run(name, func(t *testing.T) {
			s, p := behind(t)
			url := p.URL()
			if name == "ws" {
				url = p.WS()
			}
			test(t, s, p, dial(t, url))
		})
	}
}

// post sends any text as an HTTP request and reads the whole answer.
func post(t *testing.T, url, text string) (int, string, error) {
	return postUntil(t.Context(), url, text)
}

func postUntil(ctx context.Context, url, text string) (int, string, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if location := resp.Header.Get("Location"); location != "" {
		body = append(body, location...)
	}
	return resp.StatusCode, string(body), err
}

const (
	blockNumber = `{"jsonrpc":"2.0","id":7,"method":"eth_blockNumber"}`
	chainID     = `{"jsonrpc":"2.0","id":8,"method":"eth_chainId"}`
)

func TestAProxyForwards(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		a := s.Accounts[0]
		tx := s.Sign(a, Payment{})
		if err := client.SendTransaction(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		s.Commit()
		if r, err := client.TransactionReceipt(t.Context(), tx.Hash()); err != nil || r.TxHash != tx.Hash() {
			t.Errorf("receipt %+v, %v", r, err)
		}
		// What the node refuses is refused in its words, with its code and its data.
		err := client.SendTransaction(t.Context(), tx)
		direct := s.Send(tx)
		if err == nil || err.Error() != direct.Error() {
			t.Errorf("refused with %v, the node itself says %v", err, direct)
		}
		var coded rpc.Error
		if !errors.As(err, &coded) || coded.ErrorCode() != -32000 {
			t.Errorf("refused with %#v, want code -32000", err)
		}
		batch := []rpc.BatchElem{
			{Method: "eth_getTransactionCount", Args: []any{a.Address, "latest"}, Result: new(string)},
			{Method: "eth_noSuchMethod", Result: new(string)},
			{Method: "eth_chainId", Result: new(string)},
		}
		if err := client.Client().BatchCallContext(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		if *batch[0].Result.(*string) != "0x1" || batch[1].Error == nil || *batch[2].Result.(*string) != "0x539" {
			t.Errorf("the batch has %+v", batch)
		}
		want := map[string]int{"eth_sendRawTransaction": 2, "eth_getTransactionReceipt": 1, "eth_getTransactionCount": 1, "eth_noSuchMethod": 1, "eth_chainId": 1}
		got := p.Requests()
		delete(got, Upgrade)
		if !reflect.DeepEqual(got, want) || p.Messages() != 4 {
			t.Errorf("%d messages with %v, want 4 with %v", p.Messages(), got, want)
		}
		if p.ResetCounts(); len(p.Requests()) != 0 || p.Messages() != 0 {
			t.Errorf("after a reset %d messages with %v", p.Messages(), p.Requests())
		}
	})
}

func TestEveryHeadIsAnnouncedBehindAProxyInOrder(t *testing.T) {
	s, p := behind(t)
	client := dial(t, p.WS())
	heads := make(chan *types.Header, 64)
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
	s.CommitEmpty()
	if _, err := client.BlockNumber(t.Context()); err != nil || len(heads) != 0 {
		t.Errorf("after the end of the subscription: %d heads, %v", len(heads), err)
	}
}

// rawSocket is a WebSocket without a client that knows JSON-RPC.
type rawSocket struct {
	t    *testing.T
	conn *websocket.Conn
}

func dialRaw(t *testing.T, url string) *rawSocket {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rawSocket{t: t, conn: conn}
}

func (s *rawSocket) send(text string) {
	s.t.Helper()
	if err := s.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// next is the next message, or "closed".
func (s *rawSocket) next() string {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(pollDeadline)); err != nil {
		s.t.Fatal(err)
	}
	_, message, err := s.conn.ReadMessage()
	if err != nil {
		return "closed"
	}
	return string(message)
}

func (s *rawSocket) ask(text string) string {
	s.t.Helper()
	s.send(text)
	return s.next()
}

// TestSentAndNeverAnswered talks without go-ethereum's client, whose calls may wait for ever
// when their connection ends in the moment in which they are written.
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
			over := []*types.Transaction{s.Sign(s.Accounts[0], Payment{}), s.Sign(s.Accounts[1], Payment{})}
			text := func(i int) string {
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x%x"]}`, s.Raw(over[i]))
			}

			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			sent := make(chan error, 1)
			go func() {
				_, _, err := postUntil(ctx, p.URL(), text(0))
				sent <- err
			}()
			rule.Await(1)
			if !c.told {
				giveUp()
			}
			if err := <-sent; err == nil || errors.Is(err, context.Canceled) == c.told {
				t.Errorf("over HTTP the client was told %v", err)
			}

			ws := dialRaw(t, p.WS())
			ws.send(text(1))
			rule.Await(2)
			if c.told {
				if got := ws.next(); got != "closed" {
					t.Errorf("over a WebSocket the client was told %q", got)
				}
			} else if got := ws.ask(chainID); !strings.Contains(got, `"id":8`) {
				t.Errorf("over a WebSocket the client was told %q, want the answer to its next call", got)
			}
			s.Settle()
			for _, tx := range over {
				wantWhere(t, s.Node, tx, c.where)
			}
		})
	}
}

func status0(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func TestANodeThatIsAway(t *testing.T) {
	s, p := behind(t)
	ws := dialRaw(t, p.WS())
	if got := ws.ask(chainID); got == "closed" {
		t.Fatal("closed from the start")
	}
	p.Refuse()
	if got := ws.next(); got != "closed" {
		t.Errorf("while the node is away: %q", got)
	}
	if _, body, err := post(t, p.URL(), chainID); err == nil {
		t.Errorf("while the node is away: %q", body)
	}
	p.Accept()
	if _, body, err := post(t, p.URL(), chainID); err != nil || !strings.Contains(body, "0x539") {
		t.Errorf("when the node is back: %q, %v", body, err)
	}
	ws = dialRaw(t, p.WS())
	p.Disconnect()
	if got := ws.next(); got != "closed" {
		t.Errorf("after Disconnect: %q", got)
	}
	// And a node that has really gone.
	s.Stop()
	if status, _, err := post(t, p.URL(), chainID); status != http.StatusBadGateway {
		t.Errorf("without a node: %d, %v", status, err)
	}
	if _, resp, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil); err == nil || status0(resp) != http.StatusBadGateway {
		t.Errorf("without a node: %v", err)
	}
}

// send sends a payment of the account's nonce, which the node must take.
func send(t *testing.T, n *Node, from Account, p Payment) *types.Transaction {
	t.Helper()
	tx := n.Sign(from, p)
	if err := n.Send(tx); err != nil {
		t.Fatalf("send nonce %d: %v", p.Nonce, err)
	}
	return tx
}

func wantWhere(t *testing.T, n *Node, tx *types.Transaction, want string) {
	t.Helper()
	if got := n.Where(tx.Hash()); got != want {
		t.Errorf("transaction of nonce %d is %s, want %s", tx.Nonce(), got, want)
	}
}
