package fakenode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writeTimeout = 10 * time.Second // to a client that does not read
	maxInFlight  = 4096             // messages of a WebSocket that are answered beside each other; then it is read no more
)

// wire speaks JSON-RPC over HTTP and WebSocket for a node, on one listener.
type wire struct {
	node  *Node
	http  *http.Server
	works sync.WaitGroup

	mu      sync.Mutex // guards what follows
	closed  bool
	sockets map[*socket]bool
}

type call struct {
	ID     json.RawMessage `json:"id"` // nil: no answer is wanted
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// message is what came at once: a call, or a batch.
type message struct {
	calls  []call
	socket *socket  // nil over HTTP
	after  []func() // done when the answer has been written
}

type reply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// Error is a refusal.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Instead is an error that has a client get something in place of the answer to its message. A
// WebSocket, which has no status, is closed where Status is not 200.
type Instead struct {
	Silent bool // nothing, for as long as the client waits
	Status int  // 0: the end of the connection
	Header http.Header
	Body   func(w io.Writer) error // nil: none
}

// Error names what the client gets.
func (i *Instead) Error() string { return fmt.Sprintf("fakenode: no answer, status %d", i.Status) }

// serve answers whoever comes to l until close. A listener that fails is one that refuses.
func (w *wire) serve(l net.Listener) {
	w.sockets = map[*socket]bool{}
	w.http = &http.Server{Handler: w, ReadHeaderTimeout: time.Minute}
	w.works.Go(func() { _ = w.http.Serve(l) })
}

// close ends all connections, and waits until nothing is answered any more. It may be called twice.
func (w *wire) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.http.Close()
	w.closeSockets()
	w.works.Wait()
	return err
}

// ServeHTTP implements http.Handler.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !w.enter() {
		panic(http.ErrAbortHandler)
	}
	defer w.works.Done()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil: // the client has gone
	case w.node.first(rw, r, body):
	case websocket.IsWebSocketUpgrade(r):
		w.upgrade(rw, r)
	default:
		text, _, instead := w.answer(body, nil)
		if instead != nil {
			w.instead(rw, r, instead)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text)
	}
}

func (w *wire) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.works.Add(1)
	}
	return !w.closed
}

func (w *wire) instead(rw http.ResponseWriter, r *http.Request, in *Instead) {
	if in.Silent {
		<-r.Context().Done() // the client gave up, or the wire is closed
	}
	if in.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(rw.Header(), in.Header)
	rw.WriteHeader(in.Status)
	if in.Body != nil && in.Body(rw) != nil {
		panic(http.ErrAbortHandler)
	}
}

// answer returns what is answered to a message, nothing where no call wants an answer, and what to do afterwards.
func (w *wire) answer(body []byte, s *socket) (text []byte, after []func(), instead *Instead) {
	m := &message{socket: s}
	batch := bytes.HasPrefix(bytes.TrimSpace(body), []byte("["))
	var err error
	if batch {
		err = json.Unmarshal(body, &m.calls)
	} else {
		m.calls = make([]call, 1)
		err = json.Unmarshal(body, &m.calls[0])
	}
	if err != nil || len(m.calls) == 0 {
		return encode(reply{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: -32700, Message: "parse error"}}), nil, nil
	}
	replies, instead := w.node.answer(m)
	replies = slices.DeleteFunc(replies, func(r reply) bool { return r.ID == nil })
	switch {
	case len(replies) == 0:
	case batch:
		text = encode(replies)
	default:
		text = encode(replies[0])
	}
	return text, m.after, instead
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakenode: %v", err))
	}
	return data
}

// socket is one connection over WebSocket.
type socket struct {
	ws      *websocket.Conn
	writing sync.Mutex
}

func (w *wire) upgrade(rw http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(rw, r, nil)
	if err != nil {
		return
	}
	s := &socket{ws: ws}
	w.mu.Lock()
	w.sockets[s] = true
	if w.closed {
		s.close()
	}
	w.mu.Unlock()
	w.read(s)
	s.close()
	w.mu.Lock()
	delete(w.sockets, s)
	w.mu.Unlock()
	w.node.gone(s)
}

func (w *wire) read(s *socket) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, maxInFlight)
	for {
		_, data, err := s.ws.ReadMessage()
		if err != nil {
			return
		}
		if !w.node.intercepted() {
			w.answerSocket(s, data)
			continue
		}
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			w.answerSocket(s, data)
		})
	}
}

func (w *wire) answerSocket(s *socket, data []byte) {
	text, after, in := w.answer(data, s)
	switch {
	case in == nil && text != nil:
		s.write(text)
		for _, f := range after {
			f()
		}
	case in == nil || in.Silent:
	case in.Status == http.StatusOK:
		s.stream(in.Body)
	default:
		s.close()
	}
}

func (s *socket) write(data []byte) {
	s.stream(func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// stream sends a message. That it cannot be sent the reader sees.
func (s *socket) stream(body func(io.Writer) error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	w, err := s.ws.NextWriter(websocket.TextMessage)
	if err == nil {
		err = errors.Join(body(w), w.Close())
	}
	if err != nil {
		s.close()
	}
}

func (s *socket) event(subscription string, result any) {
	s.write(encode(map[string]any{
		"jsonrpc": "2.0", "method": "eth_subscription", "params": map[string]any{"subscription": subscription, "result": result},
	}))
}

func (s *socket) close() { s.ws.Close() }

func (w *wire) allSockets() []*socket {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.sockets))
}

func (w *wire) closeSockets() {
	for _, s := range w.allSockets() {
		s.close()
	}
}
