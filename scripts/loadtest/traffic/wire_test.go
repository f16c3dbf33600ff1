//go:build unix

package traffic

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/target"
	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

func TestRequestsAreMaskedFramesOfWhatTheProtocolAsksFor(t *testing.T) {
	const big = int64(1<<63 - 1)
	for want, r := range map[string]request{
		fmt.Sprintf(`{"signer":%q}`, verify.Signer(0xabc)):                                                              {account: 0xabc},
		fmt.Sprintf(`{"signer":%q,"nonce":5,"attempt":2,"txHash":%q}`, verify.Signer(big), verify.TxHash(big, 5, 2, 3)): {method: MarkUsed, account: big, nonce: 5, attempt: 2},
		fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":1}`, verify.Signer(1), big):                                      {method: MarkRecyclable, account: 1, nonce: big, attempt: 1},
		fmt.Sprintf(`{"signer":%q}`, verify.Signer(2)):                                                                  {method: Status, account: 2},
	} {
		frame := appendFrame(nil, finText, appendRequest(nil, firstID, &r, 3))
		message := asServerReads(t, frame)
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":100000,"method":%q,"params":%s}`, wireNames[r.method], want)
		if strings.TrimSpace(message) != want {
			t.Errorf("request %s, want %s", message, want)
		}
		var f wire.Frame
		if e := f.Decode([]byte(message)); e != nil || f.Calls[0].Err != nil {
			t.Errorf("request %s is not valid: %v", message, e)
		}
		if len(frame) > maxRequestBytes {
			t.Errorf("a frame of %d bytes, more than %d: %s", len(frame), maxRequestBytes, message)
		}
	}
}

// asServerReads is what a WebSocket server makes of the bytes of a client.
func asServerReads(t *testing.T, frame []byte) string {
	t.Helper()
	got := make(chan string, 1)
	url := target.Serve(t, func(_ *target.Conn, _ int, message []byte) error {
		got <- string(message)
		return errEnd
	})
	s, err := dial(t.Context(), url, access.Access{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	if _, err := s.conn.Write(frame); err != nil {
		t.Fatal(err)
	}
	return <-got
}

func TestFramesOfEveryLengthAreReadByAServer(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		payload := strings.Repeat("x", n)
		if got := asServerReads(t, appendFrame(nil, finText, []byte(payload))); got != payload {
			t.Errorf("%d bytes arrived, want %d", len(got), n)
		}
	}
}

func TestServerFramesOfEveryLengthAreSplitAndTheRestIsWaitedFor(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 300, 65535, 65536} {
		payload := bytes.Repeat([]byte("x"), n)
		whole := serverBytes(t, payload)
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

// serverBytes is what a server sends for a text message.
func serverBytes(t *testing.T, payload []byte) []byte {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		conn.ReadMessage()
		conn.WriteMessage(websocket.TextMessage, payload)
	}))
	defer srv.Close()
	s, err := dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), access.Access{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.conn.Close()
	s.conn.Write(appendFrame(nil, finText, nil))
	var all bytes.Buffer
	all.ReadFrom(s.conn) // until the server closes
	return all.Bytes()
}

func TestRepliesAreUnderstood(t *testing.T) {
	for text, want := range map[string]reply{
		`{"jsonrpc":"2.0","id":100001,"result":{"nonce":5,"attempt":2,"holdMs":60000,"nonces":[{"nonce":6,"attempt":1}]}}`: {id: 100001},
		`{"jsonrpc":"2.0","id":100001,"result":{"holdMs":60000,"attempt":2,"nonce":5}} `:                                   {id: 100001},
		`{"jsonrpc":"2.0","id":100002,"error":{"code":-32005,"message":"m","data":{"reason":"server_busy"}}}`:              {id: 100002, failed: true},
	} {
		got, err := parseReply([]byte(text))
		if err != nil || got.id != want.id || got.failed != want.failed {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
			continue
		}
		if want.failed {
			if got.refusal() != "server_busy" || got.refused().Code != wire.CodeServerBusy {
				t.Errorf("%s: %q, %+v; want server_busy", text, got.refusal(), got.refused())
			}
			continue
		}
		if a, err := got.handedOut(); err != nil || a != (handed{5, 2, 60000}) {
			t.Errorf("%s: %+v, %v; want nonce 5, attempt 2, 60000", text, a, err)
		}
	}
}

func TestWhatIsNoReplyIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "hello", "{}", `{"id":null,"result":1}`, `{"id":1}`, `{"id":1,"result":1,"error":{}}`,
		`{"jsonrpc":"2.0","id":,"result":{}}`, `{"jsonrpc":"2.0","id":"a","result":{}}`, `{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}`,
	} {
		if r, err := parseReply([]byte(text)); err == nil {
			t.Errorf("%s was taken for %+v", text, r)
		}
	}
	for _, text := range []string{`{}`, `{"nonce":-1,"attempt":1,"holdMs":1}`, `5`} {
		r := reply{body: []byte(text + "}")}
		if a, err := r.handedOut(); err == nil {
			t.Errorf("%s was taken for %+v", text, a)
		}
	}
	if got := (&reply{failed: true, body: []byte(`{"code":1}}`)}).refusal(); got != "error without reason" {
		t.Errorf("refusal %q, want that it has no reason", got)
	}
}

func TestNotificationsAreUnderstood(t *testing.T) {
	signer := verify.Signer(0x1f)
	want := notice{event: event{account: 0x1f, nonce: 5, attempt: 2, method: MarkUsed}, missed: 3, ours: true}
	body := wire.AppendEvent(nil, &wire.Event{Type: wire.EventUsed, Signer: signer, Nonce: 5, Attempt: 2, TxHash: "0x1"})
	for _, text := range []string{
		string(wire.AppendSubscription(nil, wire.MethodSubscription, "0x9", body, 3)),
	} {
		if got, err := parseNotice([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestEventsThatNoLoadCausesAreNotOurs(t *testing.T) {
	for _, e := range []wire.Event{
		{Type: wire.EventExpired, Signer: verify.Signer(1)},
		{Type: wire.EventAllocated, Signer: "alice"},
		{Type: wire.EventAllocated, Signer: verify.Signer(1) + "0"},
		{Type: wire.EventAllocated, Signer: strings.Replace(verify.Signer(1), "0x00", "0x01", 1)},
	} {
		body := wire.AppendEvent(nil, &e)
		if got, err := parseNotice(wire.AppendSubscription(nil, wire.MethodSubscription, "0x9", body, 0)); err != nil || got.ours {
			t.Errorf("%s of %s: %+v, %v; want one that is not ours", e.Type, e.Signer, got, err)
		}
	}
	for _, text := range []string{"", "hello", "{}", `{"params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		if n, err := parseNotice([]byte(text)); err == nil {
			t.Errorf("%q was taken for %+v", text, n)
		}
	}
}
