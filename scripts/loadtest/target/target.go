// Package target has servers for tests of the load test: the gateway itself, as
// a process on a store of its own, and WebSocket servers that answer whatever a
// test likes.
//
// Everything a call starts ends with its test. The gateway is built once, by
// Main.
package target

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/gateway"
)

// patience is the safety net of every wait.
const patience = 30 * time.Second

// Program is the gateway that Main built. It is set before any test runs.
var Program string

// Main builds the gateway, runs the tests, and fails when they leave goroutines
// behind. A TestMain calls it.
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

	cmd *exec.Cmd
}

var greeted = regexp.MustCompile(`listens on (ws://\S+)\s+\(metrics: (http://\S+/metrics)\)`)

// StartGateway starts a gateway on an empty store, with further flags of serve,
// and returns once it serves.
func StartGateway(t testing.TB, flags ...string) *Gateway {
	t.Helper()
	args := append([]string{
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
		"--store=sqlite:" + filepath.Join(t.TempDir(), "nonces.db"),
	}, flags...)
	g := &Gateway{cmd: exec.Command(Program, append([]string{"serve"}, args...)...)}
	g.cmd.Env = []string{} // no settings of whoever runs the test
	var stderr bytes.Buffer
	g.cmd.Stderr = &stderr
	stdout, err := g.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Kill)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if found := greeted.FindStringSubmatch(lines.Text()); found != nil {
			g.URL, g.Metrics = found[1], found[2]
			return g
		}
	}
	g.Kill()
	t.Fatalf("the gateway did not say where it listens: %s", stderr.Bytes())
	return nil
}

// Kill ends the gateway without asking, and waits. It may be called again.
func (g *Gateway) Kill() {
	g.cmd.Process.Kill() // it may have ended
	g.cmd.Wait()         // how is not of interest
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
		conn.SetReadDeadline(time.Now().Add(patience))
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
