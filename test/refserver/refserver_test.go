//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
	"noncegate/wire"
)

var postgres *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &postgres)) }

// dial serves one kind on a free port, as run does, and connects to it. The server has ended, with every goroutine, when the test has.
func dial(t *testing.T, kind string) *websocket.Conn {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var o options
	switch kind {
	case "naive":
		o.database = postgres.NewDatabase(t)
	case "redis-incr":
		redis, err := redistest.Start()
		expect.Must(t, err)
		t.Cleanup(func() { expect.Check(t, redis.Close()) })
		o.redis = redis.URL()
	}
	s, err := newServer(ctx, kind, o)
	expect.Must(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	expect.Must(t, err)
	done := make(chan error, 1)
	go func() { done <- s.serveOn(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		expect.Check(t, <-done)
	})
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+ln.Addr().String()+"/ws", nil)
	expect.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(time.Minute)) // a safety net
	return conn
}

type reply struct {
	ID     int `json:"id"`
	Result *struct {
		wire.AllocateResult
		Status string `json:"status"`
		TxHash string `json:"txHash"`
	} `json:"result"`
	Error *wire.Error `json:"error"`
}

func receive(t *testing.T, conn *websocket.Conn) (r reply) {
	t.Helper()
	_, data, err := conn.ReadMessage()
	expect.Must(t, err)
	expect.Must(t, wire.Unmarshal(data, &r))
	return r
}

func send(t *testing.T, conn *websocket.Conn, id int, method, params string) {
	t.Helper()
	text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"nonce_%s","params":{"signer":"signer"%s}}`, id, method, params)
	expect.Must(t, conn.WriteMessage(websocket.TextMessage, text))
}

func TestEveryKindAnswersInOrderAndTakesTheMarkOfWhatItHandedOut(t *testing.T) {
	for _, kind := range []string{"echo", "floor", "naive", "redis-incr"} {
		t.Run(kind, func(t *testing.T) {
			conn := dial(t, kind)
			const n = 100 // more than one buffer holds
			for id := range n {
				send(t, conn, id, "allocate", "")
			}
			var last reply
			for id := range n {
				last = receive(t, conn)
				if last.ID != id || last.Result == nil || last.Result.Signer != "signer" || last.Result.Attempt != 1 {
					t.Fatalf("reply %d is %+v", id, last)
				}
			}
			if kind == "naive" && last.Result.Nonce != n-1 || kind == "redis-incr" && last.Result.Nonce != n-1 {
				t.Errorf("the last nonce is %d", last.Result.Nonce)
			}
			send(t, conn, n, "markUsed", fmt.Sprintf(`,"nonce":%d,"attempt":1,"txHash":"0x1"`, last.Result.Nonce))
			if r := receive(t, conn); r.Result == nil || r.Result.Status != wire.StatusConsumed || r.Result.TxHash != "0x1" {
				t.Errorf("the mark is answered %+v, %+v", r.Result, r.Error)
			}
			if kind == "naive" {
				send(t, conn, n, "markUsed", `,"nonce":7,"attempt":2,"txHash":"0x1"`)
				if r := receive(t, conn); r.Error == nil || r.Error.Code != wire.CodeNotFound {
					t.Errorf("a mark of another attempt is answered %+v", r)
				}
			}
		})
	}
}

// A disk that fails ends the connection. What is written leaves in one piece before the next read.
func TestFloorAnswersNothingThatIsNotOnDisk(t *testing.T) {
	l, err := openLog(t.TempDir())
	expect.Must(t, err)
	defer l.close()
	near, far := net.Pipe()
	defer far.Close()
	c := &coalescingConn{Conn: near, durable: l.await}
	l.add([]byte("a request"))
	for _, part := range []string{"one ", "two"} {
		_, err = c.Write([]byte(part))
		expect.Must(t, err)
	}
	go c.Read(make([]byte, 1))
	answer, stored := make([]byte, 64), make([]byte, 9)
	n, err := far.Read(answer) // a pipe hands over one write at a time
	if _, failed := l.file.ReadAt(stored, 0); errors.Join(err, failed) != nil || string(answer[:n]) != "one two" || string(stored) != "a request" {
		t.Errorf("answered %q, %v, and %q is stored", answer[:n], err, stored)
	}
	l.file.Close()
	l.add([]byte("another"))
	broken := &coalescingConn{Conn: near, durable: l.await, pending: []byte("an answer")}
	if _, err := broken.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it went on: %v", err)
	}
}
