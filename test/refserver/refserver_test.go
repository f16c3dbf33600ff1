//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
	"noncegate/wire"
)

var postgres *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &postgres)) }

// readTimeout is a safety net; nothing waits for it when things work.
const readTimeout = 30 * time.Second

// start serves one kind on a free port, as run does, and returns its URL. The
// server has ended, with every goroutine, when the test has.
func start(t *testing.T, kind string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := newServer(ctx, kind, storeFor(t, kind))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.serveOn(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "ws://" + ln.Addr().String() + "/ws"
}

// storeFor is an empty store for the kinds that have one.
func storeFor(t *testing.T, kind string) options {
	o := options{pool: 8}
	switch kind {
	case "naive":
		o.database = postgres.NewDatabase(t)
	case "redis-incr":
		o.redis = startRedis(t).URL()
	}
	return o
}

func startRedis(t *testing.T) *redistest.Server {
	t.Helper()
	s, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(readTimeout))
	return conn
}

type reply struct {
	ID     int         `json:"id"`
	Result *result     `json:"result"`
	Error  *wire.Error `json:"error"`
}

// result is that of either method.
type result struct {
	wire.AllocateResult
	Status string `json:"status"`
	TxHash string `json:"txHash"`
}

func send(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn *websocket.Conn) reply {
	t.Helper()
	_, data, err := conn.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := wire.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return r
}

func request(id int, signer string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"nonce_allocate","params":{"signer":%q}}`, id, signer)
}

func TestEveryKindAnswersPipelinedRequestsInOrder(t *testing.T) {
	for _, kind := range []string{"echo", "floor", "naive", "redis-incr"} {
		t.Run(kind, func(t *testing.T) {
			conn := dial(t, start(t, kind))
			const n = 100 // more than one buffer holds
			for id := range n {
				send(t, conn, request(id, "signer"))
			}
			for id := range n {
				r := receive(t, conn)
				if r.ID != id || r.Result == nil || r.Result.Signer != "signer" || r.Result.Attempt != 1 {
					t.Fatalf("reply %d is %+v", id, r)
				}
				if left := time.Until(time.Time(r.Result.HeldUntil)); left <= 0 || left > holdFor {
					t.Fatalf("held for another %v, want up to %v", left, holdFor)
				}
			}
		})
	}
}

// mark is a request that marks a nonce with attempt 1.
func mark(id int, signer string, nonce int64, hash string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"nonce_markUsed","params":{"signer":%q,"nonce":%d,"attempt":1,"txHash":%q}}`, id, signer, nonce, hash)
}

func TestEveryKindTakesTheMarkOfWhatItHandedOut(t *testing.T) {
	for _, kind := range []string{"echo", "floor", "naive", "redis-incr"} {
		t.Run(kind, func(t *testing.T) {
			conn := dial(t, start(t, kind))
			send(t, conn, request(1, "signer"))
			got := receive(t, conn).Result
			if got == nil {
				t.Fatal("nothing was handed out")
			}
			send(t, conn, mark(2, "signer", got.Nonce, "0x1"))
			want := &result{wire.AllocateResult{Signer: "signer", Nonce: got.Nonce, Attempt: 1}, wire.StatusConsumed, "0x1"}
			if r := receive(t, conn); r.ID != 2 || !reflect.DeepEqual(r.Result, want) {
				t.Errorf("the mark is answered %+v, %+v", r.Result, r.Error)
			}
		})
	}
}

func TestAMarkIsStoredAndNaiveRefusesOneOfANonceThatNobodyHas(t *testing.T) {
	database, redisServer := postgres.NewDatabase(t), startRedis(t)
	n, err := newNaive(t.Context(), database, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	r, err := newRedisIncr(t.Context(), redisServer.URL(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	used := wire.MarkUsedParams{Signer: "signer", Nonce: 1, Attempt: 1, TxHash: "0xab"}
	for _, b := range []backend{n, r} {
		for range 3 {
			if _, e := b.allocate(t.Context(), wire.AllocateParams{Signer: "signer"}); e != nil {
				t.Fatal(e)
			}
		}
		if _, e := b.markUsed(t.Context(), used); e != nil {
			t.Errorf("%T: %v", b, e)
		}
	}
	var marks string
	if err := n.pool.QueryRow(t.Context(), `SELECT string_agg(status || coalesce(tx_hash, ''), ' ' ORDER BY nonce) FROM naive_allocation`).Scan(&marks); err != nil || marks != "1 30xab 1" {
		t.Errorf("naive stored %q, %v; want the mark at nonce 1", marks, err)
	}
	if marks, err := r.client.HGetAll(t.Context(), redisUsed+"signer").Result(); err != nil || len(marks) != 1 || marks["1"] != "0xab" {
		t.Errorf("redis-incr stored %v, %v; want the mark of nonce 1", marks, err)
	}
	for name, p := range map[string]wire.MarkUsedParams{
		"signer":  {Signer: "other", Attempt: 1},
		"nonce":   {Signer: "signer", Nonce: 3, Attempt: 1},
		"attempt": {Signer: "signer", Nonce: 1, Attempt: 2},
	} {
		if _, e := n.markUsed(t.Context(), p); e == nil || e.Code != wire.CodeNotFound {
			t.Errorf("another %s: %v, want not_found", name, e)
		}
	}
}

// TestFloorAnswersNothingThatIsNotOnDisk: a disk that fails ends the connection.
func TestFloorAnswersNothingThatIsNotOnDisk(t *testing.T) {
	l, err := openLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.add([]byte("a request"))
	if err := l.await(); err != nil {
		t.Fatal(err)
	}
	stored := make([]byte, 9)
	if _, err := l.file.ReadAt(stored, 0); err != nil || string(stored) != "a request" {
		t.Errorf("stored %q, %v", stored, err)
	}
	near, far := net.Pipe()
	defer far.Close()
	c := &coalescingConn{Conn: near, durable: l.await}
	l.file.Close()
	l.add([]byte("another"))
	if _, err := c.Write([]byte("an answer")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it went on: %v", err)
	}
}

func TestRedisThatEndsIsToldAsUnavailableAndOneThatIsAwayEndsTheServer(t *testing.T) {
	redis := startRedis(t)
	o := options{redis: redis.URL(), pool: 8} // of one, go-redis would go on dialling for a second
	r, err := newRedisIncr(t.Context(), o.redis, o.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, e := r.allocate(t.Context(), wire.AllocateParams{Signer: "signer"}); e == nil || e.Data.Reason != "unavailable" {
		t.Errorf("allocate without Redis: %+v, want unavailable", e)
	}
	if _, e := r.markUsed(t.Context(), wire.MarkUsedParams{Signer: "signer"}); e == nil || e.Data.Reason != "unavailable" {
		t.Errorf("mark without Redis: %+v, want unavailable", e)
	}
	if _, err := newServer(t.Context(), "redis-incr", o); err == nil || !strings.Contains(err.Error(), "redis-incr:") {
		t.Errorf("newServer without Redis: %v, want an error", err)
	}
	if _, err := newServer(t.Context(), "redis-incr", options{pool: 1}); err == nil || !strings.Contains(err.Error(), "-redis") {
		t.Errorf("newServer without a URL: %v, want the flag's name", err)
	}
}

func TestCoalescingConnWritesOnceBeforeItReads(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	c := &coalescingConn{Conn: near, durable: func() error { return nil }}
	for _, part := range []string{"one ", "two ", "three"} {
		if _, err := c.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	go c.Read(make([]byte, 1))
	buf := make([]byte, 64)
	n, err := far.Read(buf) // a pipe hands over one write at a time
	if got := string(buf[:n]); got != "one two three" || err != nil {
		t.Errorf("first write is %q, %v; want all three parts", got, err)
	}
	c.Close()
	if _, err := far.Read(buf); err != io.EOF {
		t.Errorf("after close: %v, want EOF", err)
	}
}

func TestPlainHTTPIsAnsweredThroughTheCoalescingListener(t *testing.T) {
	url := start(t, "floor")
	resp, err := http.Get("http" + strings.TrimPrefix(url, "ws"))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("status %d, want %d", resp.StatusCode, http.StatusBadRequest)
	}
}
