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

	"noncegate/scripts/loadtest/target"
	"noncegate/wire"
)

func TestRequestsAreMaskedFramesOfWhatTheProtocolAsksFor(t *testing.T) {
	const big = int64(1<<63 - 1)
	for want, r := range map[string]request{
		fmt.Sprintf(`{"signer":%q}`, Signer(0xabc)):                                                                {nonceOf: nonceOf{account: 0xabc}},
		fmt.Sprintf(`{"signer":%q,"nonce":5,"attempt":2,"txHash":%q}`, Signer(big), txHash(nonceOf{big, 5, 2}, 3)): {method: MarkUsed, nonceOf: nonceOf{big, 5, 2}},
		fmt.Sprintf(`{"signer":%q,"nonce":%d,"attempt":1}`, Signer(1), big):                                        {method: MarkRecyclable, nonceOf: nonceOf{1, big, 1}},
		fmt.Sprintf(`{"signer":%q}`, Signer(2)):                                                                    {method: Status, nonceOf: nonceOf{account: 2}},
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
	s, err := (&Load{URLs: []string{url}}).open(t.Context(), 0)
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
	for _, n := range []int{0, 1, 125, 126, 65535} {
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
	s, err := (&Load{URLs: []string{"ws" + strings.TrimPrefix(srv.URL, "http")}}).open(t.Context(), 0)
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
			if got.refusal() != "server_busy" {
				t.Errorf("%s: %q; want server_busy", text, got.refusal())
			}
			continue
		}
		var of nonceOf
		if holdMs, err := got.handedOut(&of); err != nil || of != (nonceOf{0, 5, 2}) || holdMs != 60000 {
			t.Errorf("%s: %+v, %d, %v; want nonce 5, attempt 2, 60000", text, of, holdMs, err)
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
		if _, err := r.handedOut(new(nonceOf)); err == nil {
			t.Errorf("%s was taken for a hand-out", text)
		}
	}
	if got := (&reply{failed: true, body: []byte(`{"code":1}}`)}).refusal(); got != "error without reason" {
		t.Errorf("refusal %q, want that it has no reason", got)
	}
}
