package cluster

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/lease"
	"noncegate/nonce"
)

// quick is a node that spends as little as it can on an answer, so that the
// benchmark is about the link.
func quick(w http.ResponseWriter, r *http.Request) {
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	var out []byte
	for {
		_, data, err := ws.ReadMessage()
		if err != nil {
			return
		}
		_, id, _ := bytes.Cut(data, []byte(`"id":`))
		id = id[:bytes.IndexByte(id, ',')]
		text := `{"jsonrpc":"2.0","id":` + string(id) + `,"result":{"signer":"eip155:1:0x00000000000000000000000000000000000000ab","nonce":` + strconv.Itoa(len(out)) +
			`,"attempt":1,"fencingToken":3,"heldUntil":"2026-11-20T18:00:00.000Z","holdMs":60000}}`
		out = append(out, 0x81, 126, byte(len(text)>>8), byte(len(text)))
		if out = append(out, text...); len(out) > 16<<10 {
			ws.NetConn().Write(out)
			out = out[:0]
		}
	}
}

// counter keeps a number of ops under way.
type counter struct{ free chan *nonce.Op }

func (c *counter) Return(op *nonce.Op, _ nonce.Verdict) nonce.Waker {
	op.Err = nil
	c.free <- op
	return nil
}

func BenchmarkForward(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(quick))
	defer srv.Close()
	svc := &counter{free: make(chan *nonce.Op, 1024)}
	r, err := New("self", Config{Forward: true}, NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Stop(b.Context())
	r.Serve(1, svc, new(sink))
	n := node("a", 1)
	n.URL = srv.URL
	r.Nodes([]lease.Node{n})
	for range cap(svc.free) {
		op := allocation("eip155:1:0x00000000000000000000000000000000000000ab")
		op.RequestID = "0123456789abcdef"
		svc.free <- op
	}
	b.ReportAllocs()
	for b.Loop() {
		if op := <-svc.free; r.Forward("a", "", op) != nil {
			b.Fatal("refused")
		}
	}
}
