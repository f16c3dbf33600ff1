package fakenode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	writeTimeout = 10 * time.Second // to a client that does not read
	maxInFlight  = 4096             // messages of a WebSocket that are answered beside each other; then it is read no more
)

// Wire speaks JSON-RPC over HTTP and WebSocket, as a node does, on one listener. Its fields
// are set before Serve; each may be nil but Answer.
type Wire struct {
	// Answer answers the calls of a message, in any order, or says what the client gets instead.
	Answer func(m *Message) ([]Reply, *Instead)
	// First sees every HTTP request, and says whether it answered it.
	First func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// Gone is told of a WebSocket that has ended.
	Gone func(s *Socket)
	// Beside has the messages of a WebSocket be answered beside each other.
	Beside bool
	// Conns is told of the state of each connection.
	Conns func(net.Conn, http.ConnState)

	http   *http.Server
	done   chan struct{}
	works  sync.WaitGroup
	failed error // of http, read after works

	mu      sync.Mutex // guards what follows
	closed  bool
	sockets map[*Socket]bool
}

// Call is a call of a message. Without an ID it wants no answer.
type Call struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// Message is what came at once: a call, or a batch.
type Message struct {
	Calls  []Call
	Batch  bool
	Socket *Socket // nil over HTTP
	// After is done when the answer has been written.
	After func()
}

// Reply is an answer to the call with its ID.
type Reply struct {
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

// Instead is what a client gets in place of the answer to a message. A WebSocket, which has
// no status, is closed where Status is not 200.
type Instead struct {
	Silent   bool // nothing, for as long as the client waits
	Status   int  // 0: the end of the connection
	Location string
	Body     func(w io.Writer) error // nil: none
}

// Serve answers whoever comes to l until Close.
func (w *Wire) Serve(l net.Listener) {
	w.done, w.sockets = make(chan struct{}), map[*Socket]bool{}
	w.http = &http.Server{Handler: w, ReadHeaderTimeout: time.Minute, ConnState: w.Conns}
	w.works.Go(func() {
		if err := w.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.failed = err
		}
	})
}

// Close ends all connections, and waits until nothing is answered any more. It may be called twice.
func (w *Wire) Close() error {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.done)
	}
	w.mu.Unlock()
	err := w.http.Close()
	w.CloseSockets()
	w.works.Wait()
	return errors.Join(err, w.failed)
}

// Go does work that Close waits for, beside what is answered.
func (w *Wire) Go(work func()) { w.works.Go(work) }

// ServeHTTP implements http.Handler.
func (w *Wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !w.enter() {
		panic(http.ErrAbortHandler)
	}
	defer w.works.Done()
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil: // the client has gone
	case w.First != nil && w.First(rw, r, body):
	case websocket.IsWebSocketUpgrade(r):
		w.upgrade(rw, r)
	default:
		m, text, instead := w.answer(body, nil)
		if instead != nil {
			w.instead(rw, r, instead)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write(text)
		m.After()
	}
}

func (w *Wire) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.works.Add(1)
	}
	return !w.closed
}

func (w *Wire) instead(rw http.ResponseWriter, r *http.Request, in *Instead) {
	if in.Silent {
		select {
		case <-r.Context().Done(): // the client gave up
		case <-w.done:
		}
	}
	if in.Status == 0 {
		panic(http.ErrAbortHandler)
	}
	if in.Location != "" {
		rw.Header().Set("Location", in.Location)
	}
	rw.WriteHeader(in.Status)
	if in.Body != nil && in.Body(rw) != nil {
		panic(http.ErrAbortHandler)
	}
}

// answer returns what is answered to a message; text is empty where no call wants an answer.
func (w *Wire) answer(body []byte, s *Socket) (m *Message, text []byte, instead *Instead) {
	m = &Message{Socket: s, After: func() {}}
	m.Batch = bytes.HasPrefix(bytes.TrimSpace(body), []byte("["))
	var err error
	if m.Batch {
		err = json.Unmarshal(body, &m.Calls)
	} else {
		m.Calls = make([]Call, 1)
		err = json.Unmarshal(body, &m.Calls[0])
	}
	if err != nil || len(m.Calls) == 0 {
		return m, encode(Reply{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: -32700, Message: "parse error"}}), nil
	}
	replies, instead := w.Answer(m)
	var wanted []Reply
	for _, r := range replies {
		if r.Version = "2.0"; r.ID != nil {
			wanted = append(wanted, r)
		}
	}
	switch {
	case len(wanted) == 0:
	case m.Batch:
		text = encode(wanted)
	default:
		text = encode(wanted[0])
	}
	return m, text, instead
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakenode: %v", err))
	}
	return data
}

// Socket is one connection over WebSocket.
type Socket struct {
	ws      *websocket.Conn
	writing sync.Mutex
}

func (w *Wire) upgrade(rw http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(rw, r, nil)
	if err != nil {
		return
	}
	s := &Socket{ws: ws}
	w.mu.Lock()
	w.sockets[s] = true
	if w.closed {
		s.Close()
	}
	w.mu.Unlock()
	w.read(s)
	s.Close()
	w.mu.Lock()
	delete(w.sockets, s)
	w.mu.Unlock()
	if w.Gone != nil {
		w.Gone(s)
	}
}

// read answers what comes over a WebSocket until it ends.
func (w *Wire) read(s *Socket) {
	var all sync.WaitGroup
	defer all.Wait()
	places := make(chan struct{}, maxInFlight)
	for {
		_, data, err := s.ws.ReadMessage()
		if err != nil {
			return
		}
		if !w.Beside {
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

func (w *Wire) answerSocket(s *Socket, data []byte) {
	m, text, in := w.answer(data, s)
	switch {
	case in == nil && text != nil:
		s.Write(text)
		m.After()
	case in == nil || in.Silent:
	case in.Status == http.StatusOK:
		s.stream(in.Body)
	default:
		s.Close()
	}
}

// Write sends a message as it is. That it cannot be sent the reader sees.
func (s *Socket) Write(data []byte) {
	s.stream(func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func (s *Socket) stream(body func(io.Writer) error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.ws.SetWriteDeadline(time.Now().Add(writeTimeout))
	w, err := s.ws.NextWriter(websocket.TextMessage)
	if err == nil {
		err = errors.Join(body(w), w.Close())
	}
	if err != nil {
		s.Close()
	}
}

// Event tells a subscriber.
func (s *Socket) Event(subscription string, result any) {
	s.Write(encode(map[string]any{
		"jsonrpc": "2.0", "method": "eth_subscription", "params": map[string]any{"subscription": subscription, "result": result},
	}))
}

// Close breaks the connection.
func (s *Socket) Close() { s.ws.Close() }

// Sockets returns the WebSockets that are open.
func (w *Wire) Sockets() (all []*Socket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.sockets {
		all = append(all, s)
	}
	return all
}

// CloseSockets breaks all WebSockets.
func (w *Wire) CloseSockets() {
	for _, s := range w.Sockets() {
		s.Close()
	}
}
