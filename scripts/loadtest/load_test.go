package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a WebSocket server that hands every message, with its number from
// 0, to answer, and returns its URL.
func serve(t *testing.T, answer func(conn *websocket.Conn, n int, message []byte) error) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for n := 0; ; n++ {
			_, message, err := conn.ReadMessage()
			if err != nil || answer(conn, n, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}

func reply(conn *websocket.Conn, text string) error {
	return conn.WriteMessage(websocket.TextMessage, []byte(text))
}

const resultReply = `{"jsonrpc":"2.0","id":100000,"result":{"signer":"s","nonce":1}}`

// short is a load that ends soon.
func short(url string) load {
	return load{url: url, connections: 3, inflight: 4, signers: 5, duration: 200 * time.Millisecond}
}

func TestBurstIsMaskedFramesOfValidRequests(t *testing.T) {
	b := newBurst(3)
	table := signerTable(0xabc, 3)
	for i := range 3 {
		b.setSigner(i, table[i*signerDigits:(i+1)*signerDigits])
	}
	got := make(chan string, 3)
	url := serve(t, func(_ *websocket.Conn, _ int, message []byte) error {
		got <- string(message)
		return nil
	})
	ws, _, err := websocket.DefaultDialer.Dial(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if _, err := ws.NetConn().Write(b.bytes); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"nonce_allocate","params":{"signer":"eip155:1:0x%040x"}}`, 100_000+i, 0xabc+i)
		message := <-got
		if message != want {
			t.Errorf("request %d is %s, want %s", i, message, want)
		}
		var f wire.Frame
		if e := f.Decode([]byte(message)); e != nil || f.Calls[0].Err != nil {
			t.Errorf("request %d is not valid: %v", i, e)
		}
	}
}

func TestServerFrameSplitsEveryLengthAndWaitsForTheRest(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 300, 65535, 65536} {
		var buf bytes.Buffer
		payload := bytes.Repeat([]byte("x"), n)
		buf.Write(serverBytes(t, payload))
		whole := buf.Bytes()
		op, got, size := serverFrame(append(whole, "next"...))
		if op != finText || !bytes.Equal(got, payload) || size != len(whole) {
			t.Errorf("%d bytes: op %#x, %d bytes, size %d; want %#x, %d, %d", n, op, len(got), size, finText, n, len(whole))
		}
		for cut := range min(len(whole), 12) {
			if _, _, size := serverFrame(whole[:cut]); size != 0 {
				t.Errorf("%d of %d bytes gave a frame of %d", cut, len(whole), size)
			}
		}
		if _, _, size := serverFrame(whole[:len(whole)-1]); size != 0 {
			t.Errorf("all but one of %d bytes gave a frame", len(whole))
		}
	}
}

// serverBytes is what gorilla sends for a text message.
func serverBytes(t *testing.T, payload []byte) []byte {
	t.Helper()
	url := serve(t, func(conn *websocket.Conn, _ int, _ []byte) error {
		if err := conn.WriteMessage(websocket.TextMessage, payload); err != nil {
			return err
		}
		return errors.New("one is enough")
	})
	ws, _, err := websocket.DefaultDialer.Dial(url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if err := ws.WriteMessage(websocket.TextMessage, nil); err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	all.ReadFrom(ws.NetConn()) // until the server closes
	return all.Bytes()
}

func TestRefusalIsTheReasonOfAnError(t *testing.T) {
	busy := wire.AppendError(nil, []byte("1"), wire.Errorf(wire.CodeServerBusy, "server_busy", "full"))
	for text, want := range map[string]string{
		resultReply:  "",
		string(busy): "server_busy",
		`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"m"}}`: "error without reason",
	} {
		if got := refusal([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestRunCountsResultsAndRefusalsApart(t *testing.T) {
	url := serve(t, func(conn *websocket.Conn, n int, _ []byte) error {
		if n%4 == 3 {
			return reply(conn, `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"m","data":{"reason":"server_busy"}}}`)
		}
		return reply(conn, resultReply)
	})
	r, err := short(url).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	busy := r.Errors["server_busy"]
	if r.Acknowledged == 0 || busy == 0 || len(r.Errors) != 1 || len(r.Lost) != 0 {
		t.Fatalf("report %+v, want results, server_busy and nothing else", r)
	}
	// Every fourth reply, but for the bursts at the edges of the measurement.
	if edge := int64(2 * 3 * 4); r.Acknowledged < 3*(busy-edge) || r.Acknowledged > 3*(busy+edge) {
		t.Errorf("%d acknowledged beside %d refused, want about three to one", r.Acknowledged, busy)
	}
	if r.LatencyMs.P50 <= 0 || r.LatencyMs.P50 > r.LatencyMs.P99 || r.LatencyMs.P99 > r.LatencyMs.Max {
		t.Errorf("latency %+v is not in order", r.LatencyMs)
	}
	if got := r.String(); !strings.Contains(got, "errors: server_busy") {
		t.Errorf("report for people lacks the errors: %s", got)
	}
}

func TestRunSendsTheNextBurstOnlyAfterAllReplies(t *testing.T) {
	var open, most atomic.Int64
	url := serve(t, func(conn *websocket.Conn, n int, _ []byte) error {
		if now := open.Add(1); now > most.Load() {
			most.Store(now)
		}
		if n%4 != 3 {
			return nil
		}
		defer open.Add(-4)
		for range 4 {
			if err := reply(conn, resultReply); err != nil {
				return err
			}
		}
		return nil
	})
	l := short(url)
	l.connections = 1
	if _, err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := most.Load(); got != 4 {
		t.Errorf("up to %d requests under way, want 4", got)
	}
}

func TestRunReportsALostConnectionWithItsCloseCode(t *testing.T) {
	var first atomic.Bool
	url := serve(t, func(conn *websocket.Conn, _ int, _ []byte) error {
		if first.CompareAndSwap(false, true) {
			conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "slow_consumer"))
			return errors.New("closed")
		}
		return reply(conn, resultReply)
	})
	r, err := short(url).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Lost) != 1 || !strings.Contains(r.Lost[0], "4001 slow_consumer") {
		t.Errorf("lost %q, want one with its code", r.Lost)
	}
	if r.Acknowledged == 0 {
		t.Error("the other connections got nothing")
	}
}

func TestRunFailsWhenEveryConnectionIsLost(t *testing.T) {
	url := serve(t, func(*websocket.Conn, int, []byte) error { return errors.New("close") })
	l := short(url)
	l.duration = time.Hour
	if _, err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), "every connection was lost") {
		t.Errorf("run: %v, want that every connection was lost", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url := serve(t, func(conn *websocket.Conn, _ int, _ []byte) error {
		cancel()
		return reply(conn, resultReply)
	})
	l := short(url)
	l.duration = time.Hour
	if _, err := l.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v, want %v", err, context.Canceled)
	}
}

func TestClientAnswersPings(t *testing.T) {
	pong := make(chan string, 1)
	url := serve(t, func(conn *websocket.Conn, n int, _ []byte) error {
		if n == 0 {
			conn.SetPongHandler(func(data string) error { pong <- data; return nil })
			if err := conn.WriteMessage(websocket.PingMessage, []byte("are you there")); err != nil {
				return err
			}
		}
		return reply(conn, resultReply)
	})
	l := short(url)
	l.connections = 1
	if _, err := l.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-pong; got != "are you there" {
		t.Errorf("pong %q, want the ping's payload", got)
	}
}

func TestReplyLongerThanTheBufferIsRead(t *testing.T) {
	long := strings.Replace(resultReply, `"s"`, `"`+strings.Repeat("s", 10_000)+`"`, 1)
	url := serve(t, func(conn *websocket.Conn, _ int, _ []byte) error { return reply(conn, long) })
	r, err := short(url).run(t.Context())
	if err != nil || r.Acknowledged == 0 || len(r.Lost) != 0 {
		t.Errorf("report %+v, %v; want results", r, err)
	}
}

func TestRateSpreadsBurstsOverTime(t *testing.T) {
	l := load{connections: 10, inflight: 2, rate: 40}
	if got, want := l.interval(), 500*time.Millisecond; got != want {
		t.Errorf("interval %v, want %v", got, want)
	}
	synctest.Test(t, func(t *testing.T) {
		c := &client{interval: time.Second}
		start := time.Now()
		if !c.sleepUntil(start.Add(3*time.Second), nil) || time.Since(start) != 3*time.Second {
			t.Errorf("woke after %v, want 3s", time.Since(start))
		}
		quit := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(quit) })
		if c.sleepUntil(time.Now().Add(time.Hour), quit) {
			t.Error("slept through quit")
		}
	})
}

func TestWrongLoadsAreRefused(t *testing.T) {
	for _, change := range []func(*load){
		func(l *load) { l.connections = 0 },
		func(l *load) { l.inflight = 0 },
		func(l *load) { l.inflight = 10_001 },
		func(l *load) { l.signers = 0 },
		func(l *load) { l.rate = -1 },
		func(l *load) { l.duration = 0 },
	} {
		l := defaultLoad
		change(&l)
		if _, err := l.run(t.Context()); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
}

func TestRunCommandFailsWithoutAcknowledgedRequests(t *testing.T) {
	url := serve(t, func(conn *websocket.Conn, _ int, _ []byte) error {
		return reply(conn, `{"jsonrpc":"2.0","id":1,"error":{"code":-32012,"message":"m","data":{"reason":"unavailable"}}}`)
	})
	var out bytes.Buffer
	err := command(t.Context(), []string{"run", "-url", url, "-warmup", "0s", "-duration", "200ms", "-connections", "1", "-json"}, &out)
	if err == nil {
		t.Error("no error")
	}
	var r report
	if err := wire.Unmarshal(out.Bytes(), &r); err != nil || r.Errors["unavailable"] == 0 {
		t.Errorf("report %s: %v, want the errors by reason", out.Bytes(), err)
	}
}

// BenchmarkExchange is the generator's own cost for a burst of 16: building it,
// and counting its replies, without the system calls.
func BenchmarkExchange(b *testing.B) {
	requests := newBurst(16)
	table := signerTable(0, 1000)
	var replies []byte
	for range 16 {
		replies = append(replies, finText, byte(len(resultReply)))
		replies = append(replies, resultReply...)
	}
	b.ReportAllocs()
	for b.Loop() {
		for i := range 16 {
			requests.setSigner(i, table[i*signerDigits:(i+1)*signerDigits])
		}
		for rest := replies; len(rest) > 0; {
			_, payload, size := serverFrame(rest)
			if refusal(payload) != "" {
				b.Fatal("a refusal")
			}
			rest = rest[size:]
		}
	}
}
