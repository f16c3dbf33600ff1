//go:build unix

// Package target has servers for tests of the load test: the gateway itself, as a process on a
// store of its own, and WebSocket servers that answer whatever a test likes. Everything a call
// starts ends with its test. The gateway is built once, by Main.
package target

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/wait"
)

// Program is the gateway that Main built. It is set before any test runs.
var Program string

// Main builds the gateway, runs the tests, and fails when they leave goroutines behind. A TestMain
// calls it.
func Main(m *testing.M) {
	var err error
	if Program, err = gateway.Program(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// Gateway is a gateway that serves.
type Gateway struct {
	URL     string // of its WebSocket
	Metrics string // URL
	Kill    func() // ends it without asking, and waits; may be called again
}

// StartGateway starts a gateway on an empty store, with further flags of serve, and returns once it
// serves.
func StartGateway(t testing.TB, flags ...string) *Gateway {
	t.Helper()
	room, err := guarded.Open("loadtest", nil)
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, room.Close()) })
	g, err := gateway.Start(t.Context(), room, gateway.Config{
		Program: Program, Log: "gateway.log", Args: append([]string{"--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db")}, flags...),
	})
	expect.Must(t, err)
	return &Gateway{URL: g.URL, Metrics: g.Admin + "/metrics", Kill: func() { expect.Check(t, g.Kill()) }}
}

// Conn is one connection to a server of Serve.
type Conn struct {
	*websocket.Conn
	Number int // of the connection, from 0
}

// Reply sends one message.
func (c *Conn) Reply(text string) error { return c.WriteMessage(websocket.TextMessage, []byte(text)) }

// Serve starts a WebSocket server that hands every message of a connection to
// answer, with its number from 0. An error of answer ends the connection. It
// returns the server's URL.
func Serve(t testing.TB, answer func(c *Conn, n int, message []byte) error) string {
	t.Helper()
	var connections atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(wait.Patience))
		c := &Conn{Conn: conn, Number: int(connections.Add(1)) - 1}
		for n := 0; ; n++ {
			_, message, err := conn.ReadMessage()
			if err != nil || answer(c, n, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}
