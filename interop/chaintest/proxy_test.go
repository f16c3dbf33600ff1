package chaintest

import (
	"bytes"
	"context"
	"encoding/json"
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
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
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

func TestWrongIDsAndEditedResults(t *testing.T) {
	s, p := behind(t)
	ws := dialRaw(t, p.WS())
	rule := p.On("eth_blockNumber", WrongID)
	if _, body, err := post(t, p.URL(), blockNumber); !strings.Contains(body, `"id":987654321,"result":"0x1"`) {
		t.Errorf("over HTTP %q, %v", body, err)
	}
	if got := ws.ask(blockNumber); !strings.Contains(got, `"id":987654321,"result":"0x1"`) {
		t.Errorf("over a WebSocket %q", got)
	}
	rule.End()
	a := s.Accounts[0]
	send(t, s.Node, a, Payment{})
	s.Commit()
	p.On("eth_getTransactionCount", Edit(func(params, result json.RawMessage) json.RawMessage {
		if !bytes.Contains(params, []byte("latest")) || string(result) != `"0x1"` {
			t.Errorf("edits %s of %s", result, params)
		}
		return json.RawMessage(`"0x0"`)
	}))
	for _, url := range []string{p.URL(), p.WS()} {
		if count, err := dial(t, url).NonceAt(t.Context(), a.Address, nil); err != nil || count != 0 {
			t.Errorf("%s: count %d, %v; want 0", url, count, err)
		}
	}
}

func TestANodeOfAnotherChain(t *testing.T) {
	_, p := behind(t)
	p.On("eth_chainId", Result("0x2"))
	for _, url := range []string{p.URL(), p.WS()} {
		if id, err := dial(t, url).ChainID(t.Context()); err != nil || id.Uint64() != 2 {
			t.Errorf("%s: chain %v, %v; want 2", url, id, err)
		}
	}
}

func TestAHeldRequestArrivesLateThoughItsClientHasGone(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		tx := s.Sign(s.Accounts[0], Payment{})
		rule := p.On("eth_sendRawTransaction", HoldRequest)
		ctx, giveUp := context.WithCancel(t.Context())
		sent := make(chan error, 1)
		go func() { sent <- client.SendTransaction(ctx, tx) }()
		rule.Await(1)
		giveUp()
		if err := <-sent; !errors.Is(err, context.Canceled) {
			t.Errorf("the client was told %v", err)
		}
		s.Settle()
		wantWhere(t, s.Node, tx, Nowhere)
		rule.End()
		poll(t, "the transaction is in the pool", func() bool { return s.Where(tx.Hash()) == InPool })
	})
}

func TestAHeldAnswerIsOfATransactionThatTheNodeHas(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		tx := s.Sign(s.Accounts[0], Payment{})
		rule := p.On("eth_sendRawTransaction", HoldAnswer)
		sent := make(chan error, 1)
		go func() { sent <- client.SendTransaction(t.Context(), tx) }()
		rule.Await(1)
		wantWhere(t, s.Node, tx, InPool)
		// Others are not held, on the same connection neither.
		if _, err := client.BlockNumber(t.Context()); err != nil {
			t.Error(err)
		}
		select {
		case err := <-sent:
			t.Errorf("answered before it was let go: %v", err)
		default:
		}
		rule.End()
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
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
			eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
				tx := s.Sign(s.Accounts[0], Payment{})
				rule := p.On("eth_sendRawTransaction", c.fault, Times(1))
				ctx, giveUp := context.WithCancel(t.Context())
				sent := make(chan error, 1)
				go func() { sent <- client.SendTransaction(ctx, tx) }()
				rule.Await(1)
				s.Settle()
				wantWhere(t, s.Node, tx, c.where)
				if !c.told {
					giveUp()
				}
				if err := <-sent; err == nil || errors.Is(err, context.Canceled) == c.told {
					t.Errorf("the client was told %v", err)
				}
				giveUp()
				// The next one is served, over a WebSocket on a new connection where the old
				// one has ended.
				if _, err := client.BlockNumber(t.Context()); err != nil && !c.told {
					t.Error(err)
				}
			})
		})
	}
}

func TestADelayPassesAndTheCallGoesOn(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		const delay = 30 * time.Millisecond
		p.On("eth_chainId", Delay(delay))
		start := time.Now()
		if _, err := client.ChainID(t.Context()); err != nil || time.Since(start) < delay {
			t.Errorf("answered after %v, %v", time.Since(start), err)
		}
	})
}

func TestAnswersWithoutMeasure(t *testing.T) {
	_, p := behind(t)
	const size = 100 << 20
	p.On("eth_blockNumber", Big(size))
	resp, err := http.Post(p.URL(), "application/json", strings.NewReader(blockNumber))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if n != size || err != nil {
		t.Errorf("%d bytes, %v; want %d", n, err, size)
	}
	p.Clear()

	p.On("eth_blockNumber", Endless)
	resp, err = http.Post(p.URL(), "application/json", strings.NewReader(blockNumber))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, resp.Body, 32<<20); err != nil {
		t.Errorf("it ended after %d bytes: %v", n, err)
	}
	resp.Body.Close()

	ws := dialRaw(t, p.WS())
	ws.send(blockNumber)
	_, r, err := ws.conn.NextReader()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, r, 32<<20); err != nil {
		t.Errorf("over a WebSocket it ended after %d bytes: %v", n, err)
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
	p.On("eth_blockNumber", Result("a"), Skip(1), Times(2))
	want("skip one and meet two", "0x1", "a", "a", "0x1")
	all := p.On(All, Result("all"))
	p.On("eth_blockNumber", Result("new"), Times(1))
	want("the newest, then all", "new", "all")
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
	hold := p.On("eth_chainId", HoldAnswer)
	ws.send(batch)
	hold.Await(1)
	hold.End()
	if got, want := ws.next(), "["+first+","+second+"]"; got != want {
		t.Errorf("after it was held %q, want %q", got, want)
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

func TestTheUpgradeCanFail(t *testing.T) {
	_, p := behind(t)
	for _, c := range []struct {
		fault  Fault
		status int
	}{{Status(429), 429}, {Status(503), 503}, {Redirect("ws://127.0.0.1:1"), 302}, {NotJSON, 200}, {Cut, 0}} {
		rule := p.On(Upgrade, c.fault)
		conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
		if err == nil {
			conn.Close()
			t.Fatalf("%v: there is a WebSocket", c.fault)
		}
		if got := status0(resp); got != c.status {
			t.Errorf("%v: %d, %v; want %d", c.fault, got, err, c.status)
		}
		rule.End()
	}
	held := p.On(Upgrade, HoldRequest)
	dialled := make(chan error, 1)
	go func() {
		conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), p.WS(), nil)
		if err == nil {
			conn.Close()
		}
		dialled <- err
	}()
	held.Await(1)
	held.End()
	if err := <-dialled; err != nil {
		t.Errorf("an upgrade that was held: %v", err)
	}
}

func status0(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func TestSubscriptionsThatFallSilent(t *testing.T) {
	s, p := behind(t)
	client := dial(t, p.WS())
	heads := make(chan *types.Header, 8)
	p.Mute(true)
	sub, err := client.SubscribeNewHead(t.Context(), heads)
	if err != nil {
		t.Fatalf("a subscription that is muted: %v", err)
	}
	defer sub.Unsubscribe()
	s.CommitN(3)
	p.AwaitNotifications(3)
	// Its connection answers on.
	if number, err := client.BlockNumber(t.Context()); err != nil || number != 4 {
		t.Errorf("block %d, %v", number, err)
	}
	p.Mute(false)
	want := s.CommitEmpty()
	if got := (<-heads).Hash(); got != want {
		t.Errorf("told of %v first, want %v", got, want)
	}
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

func TestWhatIsHeldAtTheEndIsLetGo(t *testing.T) {
	_, p := behind(t)
	rules := []*Rule{p.On("eth_chainId", HoldRequest), p.On("eth_blockNumber", HoldAnswer), p.On("net_version", NoAnswer)}
	ws := dialRaw(t, p.WS())
	ended := make(chan error, len(rules))
	for _, method := range []string{"eth_chainId", "eth_blockNumber", "net_version"} {
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)
		ws.send(text)
		go func() {
			_, _, err := post(t, p.URL(), text)
			ended <- err
		}()
	}
	for _, r := range rules {
		r.Await(2)
	}
	p.Close()
	for range rules {
		if err := <-ended; err == nil {
			t.Error("a call that was held was answered")
		}
	}
	if got := ws.next(); got != "closed" {
		t.Errorf("the WebSocket got %q", got)
	}
	p.Close()
}
