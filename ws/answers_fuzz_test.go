package ws

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

// FuzzAnswers: whatever comes in a text frame, each frame that the gateway sends is
// UTF-8 and JSON without names given twice, so that every client can read it; and
// the request behind it is served. Without -fuzz it plays what the transcripts send.
func FuzzAnswers(f *testing.F) {
	for _, line := range sentLines(f) {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\ud83d\ude00\u0000\u2028","method":"\u0000\"\\\u2028x` + strings.Repeat("é", 300) + `"}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"nonce_allocate","params":{"signer":"a","\u0000\u0007\"\\` + strings.Repeat("😀", 40) + `":1}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"nonce_markRecyclable","params":["a",0,"\ufffe\uffff\u2028"]}`))
	g := startGateway(f, func(s *setup) { s.Service.Rules.MaxLive = 5 })
	var c *websocket.Conn
	f.Cleanup(func() {
		if c != nil {
			_ = c.Close()
		}
	})
	f.Fuzz(func(t *testing.T, data []byte) {
		if c == nil {
			conn, response, err := websocket.DefaultDialer.Dial("ws://"+g.address+"/ws", nil)
			must(t, err)
			must(t, response.Body.Close())
			c = conn
		}
		must(t, c.WriteMessage(websocket.TextMessage, data))
		must(t, c.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":"behind it","method":"nonce_unsubscribe","params":["0x0"]}`)))
		for {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			_, frame, err := c.ReadMessage()
			if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code == wire.CloseTooLarge {
				_ = c.Close()
				c = nil // the next one has a connection of its own
				return
			}
			if err != nil {
				t.Fatalf("instead of an answer to %q: %v", data, err)
			}
			checkReadable(t, data, frame)
			if strings.HasPrefix(string(frame), `{"jsonrpc":"2.0","id":"behind it","error":`) {
				return
			}
		}
	})
}

// sentLines are the frames that the transcripts send.
func sentLines(t testing.TB) (lines []string) {
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			if sent, ok := strings.CutPrefix(line, "--> "); ok {
				lines = append(lines, strings.TrimSuffix(sent, "\n"))
			}
		}
	}
	return lines
}

// checkReadable fails unless a frame that came behind data can be read by anybody.
func checkReadable(t *testing.T, data, frame []byte) {
	t.Helper()
	var value wire.Raw
	switch {
	case !utf8.Valid(frame):
		t.Fatalf("%q is answered %q, which is not UTF-8", data, frame)
	case !json.Valid(frame):
		t.Fatalf("%q is answered %q, which is not JSON", data, frame)
	case wire.Unmarshal(frame, &value) != nil:
		t.Fatalf("%q is answered %s: %v", data, frame, wire.Unmarshal(frame, &value))
	}
}
