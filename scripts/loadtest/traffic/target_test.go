//go:build unix

package traffic

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/wait"
)

// program is the gateway, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	var err error
	if program, err = gateway.Program(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func startGateway(t testing.TB, flags ...string) *gateway.Gateway {
	return gateway.OnSQLite(t, program, flags...)
}

// conn is one connection to a server of serve.
type conn struct {
	*websocket.Conn
	number int // of the connection, from 0
}

// reply sends one message.
func (c *conn) reply(text string) error { return c.WriteMessage(websocket.TextMessage, []byte(text)) }

// serve starts a WebSocket server that hands every message of a connection to answer, with its number from 0. An error of answer ends the
// connection. It returns the server's URL.
func serve(t testing.TB, answer func(c *conn, n int, message []byte) error) string {
	t.Helper()
	var connections atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		ws.SetReadDeadline(time.Now().Add(wait.Patience))
		c := &conn{ws, int(connections.Add(1)) - 1}
		for n := 0; ; n++ {
			_, message, err := ws.ReadMessage()
			if err != nil || answer(c, n, message) != nil {
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http")
}
