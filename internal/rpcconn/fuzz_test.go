package rpcconn

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"noncegate/wire"
)

// heard is a subscription that keeps nothing.
type heard struct{ ids int }

func (h *heard) Live(*Conn, string) bool { h.ids++; return true }
func (h *heard) Notify(wire.Raw) error   { return nil }
func (h *heard) Ended(*Conn, error)      {}

// FuzzReceive: whatever the other side sends, three messages of it, is understood or ends the connection; a call is
// answered once, only by a message with its id, and not before it was sent.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"nonce":7}}`), []byte(`{"method":"event","params":{"subscription":"0x1","result":{}}}`), []byte(`{"id":2,"result":"0x2"}`), true)
	f.Add([]byte(`{"id":4,"result":1}`), []byte(`{"id":null,"error":{"code":-32700}}`), []byte(`{"method":"later"}`), true)
	f.Add([]byte(`{"id":null,"error":{"code":-32700}}`), []byte(`[{"id":3,"result":1},{"id":4,"error":"no"}]`), []byte(`[{"id":1},{"id":1}]`), false)
	f.Add([]byte(`{"method":"event","params":{"subscription":"0x9","result":1}}`), []byte(`{"id":1,"method":"ask"}`), []byte(`[]`), false)
	f.Fuzz(func(t *testing.T, first, second, third []byte, strict bool) {
		c := &Conn{
			cfg:   &Config{Event: "event", Unsubscribe: "unsubscribe", Strict: strict, Lost: func(err error) error { return err }},
			queue: make(chan *exchange, 4), slots: make(chan struct{}, 4), pending: make(map[uint64]*exchange), subs: map[string]Sub{`"0x1"`: new(heard)},
		}
		c.lastID.Store(5)
		all := []*exchange{{first: 1, n: 1}, {first: 2, n: 1, sub: new(heard)}, {first: 3, n: 2}, {first: 5, n: 1}}
		for i, x := range all {
			x.done = make(chan outcome, 1)
			if i < 3 {
				x.state.Store(sent)
			}
			for id := range x.n {
				c.pending[x.first+id] = x
			}
			c.slots <- struct{}{}
		}
		for _, data := range [][]byte{first, second, third} {
			if c.receive(data) != nil {
				break
			}
		}
		for i, x := range all {
			if len(x.done) == 0 {
				continue
			}
			o := <-x.done
			if i == 3 || o.err != nil || len(o.answer.Messages) == 0 || len(o.answer.Messages) > int(x.n) || c.pending[x.first] != nil {
				t.Errorf("request %d got %+v", x.first, o)
			}
			for _, m := range o.answer.Messages {
				if id, ok := m.Number(); ok && id-x.first >= x.n || !ok && (strict || !m.Failed()) {
					t.Errorf("request %d was answered by a message with id %s", x.first, m.ID)
				}
			}
		}
	})
}

// FuzzStatusError: whatever a refusal of the upgrade says, it is shown in one line, and keeps nobody away for longer
// than it may.
func FuzzStatusError(f *testing.F) {
	f.Add("5", []byte("full: too many connections\nmore"))
	f.Add("9223372036854775807", []byte("\x1b[2J\xff"))
	f.Add("-1", []byte{})
	f.Add("Fri, 01 Jan 2100 00:00:00 GMT", []byte(strings.Repeat("é", 3000)))
	f.Fuzz(func(t *testing.T, after string, body []byte) {
		e := NewStatusError(&http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {after}}}, body, time.Minute)
		if e.RetryAfter < 0 || e.RetryAfter > time.Minute || len(e.Text) > maxText || strings.ContainsFunc(e.Text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is read as %v, %q", after, e.RetryAfter, e.Text)
		}
	})
}
