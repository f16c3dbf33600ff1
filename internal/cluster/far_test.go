package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// far is the other node's side of one link.
type far struct {
	t        *testing.T
	ws       *websocket.Conn
	raw      net.Conn
	header   http.Header
	requests chan received
	ended    chan error
	deaf     chan struct{} // it reads no further while there is a token in it
	mute     atomic.Bool   // it does not answer pings
}

type received struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
}

func (f *far) read() {
	defer f.ws.Close()
	for {
		f.deaf <- struct{}{}
		<-f.deaf
		_, data, err := f.ws.ReadMessage()
		if err != nil {
			f.ended <- err
			close(f.requests)
			return
		}
		var r received
		if err := json.Unmarshal(data, &r); err != nil {
			f.t.Errorf("request %s: %v", data, err)
		}
		f.requests <- r
	}
}

// stopReading makes the node take nothing more off the wire, after the message that
// it waits for, until the function it returns is called.
func (f *far) stopReading() (readOn func()) {
	f.deaf <- struct{}{}
	readOn = sync.OnceFunc(func() { <-f.deaf })
	f.t.Cleanup(readOn)
	return readOn
}

// next is the next request, which must be of method.
func (f *far) next(method string) received {
	f.t.Helper()
	r, ok := <-f.requests
	if !ok {
		f.t.Fatalf("the link ended, want a request %s", method)
	}
	if r.Method != method {
		f.t.Fatalf("got a request %s %s, want %s", r.Method, r.Params, method)
	}
	return r
}

func (f *far) send(format string, args ...any) {
	f.t.Helper()
	if err := f.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		f.t.Errorf("node writes: %v", err)
	}
}

func (f *far) answer(r received, result any) {
	f.t.Helper()
	data, err := json.Marshal(result)
	if err != nil {
		f.t.Fatal(err)
	}
	f.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, r.ID, data)
}

// grant answers an allocate of one nonce.
func (f *far) grant(r received, n int64) {
	f.t.Helper()
	f.answer(r, held(decode[wire.AllocateParams](f.t, r).Signer, n))
}

func (f *far) refuse(r received, code int, reason string, data wire.ErrorData) {
	f.t.Helper()
	data.Reason = reason
	e, err := json.Marshal(wire.Error{Code: code, Message: reason + ": so it is", Data: &data})
	if err != nil {
		f.t.Fatal(err)
	}
	f.send(`{"jsonrpc":"2.0","id":%s,"error":%s}`, r.ID, e)
}

// cut ends the link without a word.
func (f *far) cut() { f.raw.Close() }

func (f *far) closeWith(code int) {
	why := "as the test says"
	if code == wire.CloseServiceRestart {
		why = wire.CloseTextRestart
	}
	f.closeSaying(code, why)
}

func (f *far) closeSaying(code int, why string) {
	f.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, why), time.Now().Add(time.Second))
	f.raw.Close()
}

func held(signer string, n int64) wire.AllocateResult {
	return wire.AllocateResult{
		Signer: signer, Nonce: n, Attempt: 1, FencingToken: 7,
		HeldUntil: wire.Time(time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)), HoldMs: 59_321,
	}
}

func decode[T any](t *testing.T, r received) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(r.Params, &v); err != nil {
		t.Fatalf("params %s: %v", r.Params, err)
	}
	return v
}
