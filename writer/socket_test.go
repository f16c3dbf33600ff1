package writer

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/test/lab/expect"
)

// dial upgrades a connection over loopback and gives its server side to a queue.
// The server's socket buffer is small, so that a client that does not read is
// noticed after kilobytes.
func dial(t *testing.T, cfg *Config) (q *Queue, server, client *websocket.Conn) {
	t.Helper()
	pool := newEncodePool(t)
	conns := make(chan *websocket.Conn, 1)
	up := websocket.Upgrader{ReadBufferSize: 1024, WriteBufferSize: 1024}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		expect.Check(t, err)
		conns <- c
	}))
	t.Cleanup(s.Close)
	client, resp, err := websocket.DefaultDialer.DialContext(context.Background(), "ws"+strings.TrimPrefix(s.URL, "http"), nil)
	expect.Must(t, err)
	resp.Body.Close()
	t.Cleanup(func() { client.Close() })
	server = <-conns
	raw := server.NetConn()
	expect.Must(t, raw.(*net.TCPConn).SetWriteBuffer(4096))
	q = New(raw, pool, cfg)
	t.Cleanup(func() { end(t, q) })
	return q, server, client
}

func TestAClientThatNeverReadsCostsNoMoreThanItsCap(t *testing.T) {
	cfg := testConfig()
	cfg.Marks = backpressure.Marks{High: 64 << 10, Low: 16 << 10, Max: 256 << 10, SlowAfter: 50 * time.Millisecond, Pause: true, Drop: true, Kick: true}
	dropped := make(chan struct{}, 1)
	cfg.OnDrop = func(backpressure.DropReason) {
		select {
		case dropped <- struct{}{}:
		default:
		}
	}
	kicked := make(chan backpressure.KickReason, 1)
	cfg.OnKick = func(r backpressure.KickReason) { kicked <- r }
	q, _, _ := dial(t, cfg)
	for q.Cause() == nil {
		q.Notify(sized(1000), 1000)
		q.mu.Lock()
		if held := q.queued + q.unwritten; held > cfg.Marks.Max {
			t.Errorf("%d bytes held of %d", held, cfg.Marks.Max)
		}
		q.mu.Unlock()
	}
	<-q.Done()
	if reason := <-kicked; reason != backpressure.KickSlow {
		t.Errorf("kicked with %q", reason)
	}
	select {
	case <-dropped:
	default:
		t.Error("nothing was dropped before the kick")
	}
	checkEmpty(t, q)
}
