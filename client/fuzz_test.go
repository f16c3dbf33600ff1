package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"noncegate/wire"
)

// FuzzReceive: whatever a gateway sends, three messages of it, is understood or ends
// the connection, and no call is answered twice.
func FuzzReceive(f *testing.F) {
	hold := `{"jsonrpc":"2.0","id":1,"result":{"signer":"s","nonce":7,"attempt":3,"fencingToken":9,"heldUntil":"2026-11-20T18:33:56.123Z","holdMs":1500}}`
	refusal := `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"server_busy: full","data":{"reason":"server_busy","stage":"worker","retryAfterMs":50}}}`
	event := `{"jsonrpc":"2.0","method":"nonce_subscription","params":{"subscription":"0x1","result":{"type":"used","signer":"s","nonce":4,"version":3,"at":"2026-11-20T18:33:56.123Z","missed":2}}}`
	f.Add([]byte(hold), []byte(event), []byte(`{"jsonrpc":"2.0","id":2,"result":"0x2"}`))
	f.Add([]byte(refusal), []byte(`{"id":3,"result":true}`), []byte(`{"method":"later"}`))
	f.Add([]byte(strings.Replace(event, "0x1", "0x9", 1)), []byte(`{"id":null,"error":{"code":-32700,"message":"parse_error: x"}}`), []byte(`{"id":1,"error":{"code":-32012,"data":{"outcome":"none"}}}`))
	f.Add([]byte(`{"id":1,"error":{"code":-32010,"message":"not_owner: b","data":{"reason":"not_owner","ownerUrl":"ws://b/ws","ownerNode":"b"}}}`), []byte(`{"id":1}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, first, second, third []byte) {
		c := &conn{
			cfg: &Config{}, queue: make(chan *exchange, 4), dead: make(chan struct{}), leaving: make(chan struct{}),
			pending: make(map[uint64]*exchange), subs: make(map[string]*Subscription),
		}
		s := &Subscription{events: make(chan Event, 1), lost: make(chan struct{}, 1)}
		c.subs["0x1"] = s
		exchanges := make([]*exchange, 3)
		for i := range exchanges {
			exchanges[i] = &exchange{done: make(chan arrival, 1)}
			exchanges[i].state.Store(sent)
			c.pending[uint64(i+1)] = exchanges[i]
		}
		exchanges[1].live = func(_ *conn, a answer) {
			var id string
			if wire.Unmarshal(a.result, &id) == nil {
				c.subscribe(id, s)
			}
		}
		exchanges[2].state.Store(queued)
		for _, data := range [][]byte{first, second, third} {
			if c.receive(data) != nil {
				break
			}
		}
		for i, want := range []any{new(wire.AllocateResult), new(string), nil} {
			select {
			case a := <-exchanges[i].done:
				if want == nil {
					t.Error("a call that was not sent was answered")
				} else if a.err == nil {
					_ = (&op{method: wire.MethodAllocate}).decode(a.answer, want)
				} else if a.err.Error() == "" {
					t.Error("a refusal says nothing")
				}
			default:
			}
		}
	})
}

// FuzzURL: what a gateway names as the owner's URL is made into an address that is the
// same when it is read again; what a person writes is, too, but for its user, which is
// in no address; and an error does not show a password.
func FuzzURL(f *testing.F) {
	for _, raw := range []string{
		"ws://gateway-1.internal:8080/ws", "http://127.0.0.1:8080", "https://[::1]/", "wss://user:hidden-word@host/ws", "ftp://user:hidden-word@host", "ws://", "%", "ws://localhost:1/a?b#c",
		"ws://user:hidden-word@host:x", "ws://user:hidden-word%zz@host", "wss://hidden-word@host", "ws://a%2Fb:hidden-word@host/c%2Fd#%zz",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		hides := func(err error) {
			if before, _, ok := strings.Cut(raw, "@"); ok && err != nil && strings.Contains(before, "hidden-word") && strings.Contains(err.Error(), "hidden-word") {
				t.Errorf("%q: the error shows the password: %v", raw, err)
			}
		}
		got, err := ownerURL(raw)
		hides(err)
		cfg, mine := Config{}.complete(raw)
		hides(mine)
		if err != nil {
			return
		}
		if again, err := ownerURL(got); err != nil || again != got || !strings.HasPrefix(got, "ws") {
			t.Errorf("%q became %q, and that %q, %v", raw, got, again, err)
		}
		if mine != nil || cfg.URLs[0] != got || cfg.Header != nil {
			t.Errorf("%q is dialled as %q, %v, %v", raw, cfg.URLs, cfg.Header, mine)
		}
	})
}

// FuzzDialError: whatever a refusal of the upgrade says, it is shown in one line, and
// keeps nobody away for longer than it may.
func FuzzDialError(f *testing.F) {
	f.Add("5", []byte("full: too many connections\nmore"))
	f.Add("9223372036854775807", []byte("\x1b[2J\xff"))
	f.Add("-1", []byte{})
	f.Add("Fri, 01 Jan 2100 00:00:00 GMT", []byte(strings.Repeat("é", 300)))
	f.Fuzz(func(t *testing.T, after string, body []byte) {
		resp := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {after}}, Body: io.NopCloser(bytes.NewReader(body))}
		e := dialError("ws://gateway/ws", resp, errors.New("bad handshake"))
		if e.RetryAfter < 0 || e.RetryAfter > longestAway || len(e.Reason) > maxSentence || strings.ContainsFunc(e.Reason, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is read as %v, %q", after, e.RetryAfter, e.Reason)
		}
	})
}
