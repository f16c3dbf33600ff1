package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/wire"
)

const (
	bufferBytes   = 1 << 10 // of gorilla's reader and writer, a connection
	coalesceBytes = 4 << 10 // of the coalescing reader: what it can answer at once
	holdFor       = time.Minute
)

// backend answers requests, from many goroutines at a time.
type backend interface {
	allocate(ctx context.Context, p wire.AllocateParams) (wire.AllocateResult, *wire.Error)
	markUsed(ctx context.Context, p wire.MarkUsedParams) (wire.MarkResult, *wire.Error)
	close() // once nothing is under way any more
}

// server answers frames one after the other, in the goroutine of their connection.
type server struct {
	backend    backend
	readBuffer int         // bytes
	log        *durableLog // which has a request before it is answered; nil: none

	serving sync.RWMutex // read-locked by each connection
}

// serveOn serves /ws on ln until ctx ends; then nothing of the server is left.
func (s *server) serveOn(ctx context.Context, ln net.Listener) error {
	defer s.close()
	ctx, end := context.WithCancel(ctx)
	defer end() // before close
	if s.log != nil {
		ln = coalescingListener{ln, s.log.await}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s)
	srv := &http.Server{Handler: mux, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP is one connection, from upgrade to end.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serving.RLock()
	defer s.serving.RUnlock()
	up := websocket.Upgrader{ReadBufferSize: s.readBuffer, WriteBufferSize: bufferBytes}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer conn.Close()
	defer context.AfterFunc(r.Context(), func() { conn.Close() })()
	s.serve(conn)
}

// close waits for all connections, which have been told to end, and closes the backend.
func (s *server) close() {
	s.serving.Lock()
	defer s.serving.Unlock()
	s.backend.close()
	if s.log != nil {
		s.log.close()
	}
}

// serve reads, answers and writes until the connection ends, which is the only way it ends.
func (s *server) serve(conn *websocket.Conn) {
	var (
		in    bytes.Buffer
		frame wire.Frame
		out   []byte
	)
	for {
		_, r, err := conn.NextReader()
		if err != nil {
			return
		}
		in.Reset()
		if _, err := in.ReadFrom(r); err != nil {
			return
		}
		if s.log != nil {
			s.log.add(in.Bytes())
		}
		out = s.answer(context.Background(), &frame, in.Bytes(), out[:0])
		if len(out) == 0 {
			continue
		}
		if err := conn.WriteMessage(websocket.TextMessage, out); err != nil {
			return
		}
	}
}

var decodeAllocate, decodeMarkUsed = wire.Params[wire.AllocateParams](), wire.Params[wire.MarkUsedParams]()

// answer appends the reply to one frame; nothing for a notification.
func (s *server) answer(ctx context.Context, f *wire.Frame, data, out []byte) []byte {
	if e := f.Decode(data); e != nil {
		return wire.AppendError(out, nil, e)
	}
	if f.Batch {
		return wire.AppendError(out, nil, wire.Errorf(wire.CodeInvalidRequest, "a reference server takes no batches"))
	}
	call := f.Calls[0]
	result, e := s.call(ctx, call)
	if call.ID == nil {
		return out
	}
	if e == nil {
		replied, err := wire.AppendResult(out, call.ID, result)
		if err == nil {
			return replied
		}
		e = wire.Errorf(wire.CodeInternal, "%v", err)
	}
	return wire.AppendError(out, call.ID, e)
}

// call returns a pointer to the result.
func (s *server) call(ctx context.Context, call wire.Call) (any, *wire.Error) {
	if call.Err != nil {
		return nil, call.Err
	}
	switch string(call.Method) {
	case wire.MethodAllocate:
		p, e := decodeAllocate(call.Params)
		if e != nil {
			return nil, e
		}
		if p.Count > 1 {
			return nil, wire.Errorf(wire.CodeInvalidParams, "count: a reference server hands out one at a time")
		}
		result, e := s.backend.allocate(ctx, p)
		return &result, e
	case wire.MethodMarkUsed:
		p, e := decodeMarkUsed(call.Params)
		if e != nil {
			return nil, e
		}
		result, e := s.backend.markUsed(ctx, p)
		return &result, e
	}
	return nil, wire.Errorf(wire.CodeMethodNotFound, "a reference server knows %s and %s only", wire.MethodAllocate, wire.MethodMarkUsed)
}

func marked(p wire.MarkUsedParams) wire.MarkResult {
	return wire.MarkResult{Signer: p.Signer, Nonce: p.Nonce, Attempt: p.Attempt, Status: wire.StatusConsumed, TxHash: p.TxHash}
}

// unavailable is what a backend says whose store fails.
func unavailable(err error) *wire.Error {
	return wire.Errorf(wire.CodeUnavailable, "%v", err)
}

// echo answers with what a gateway would send, made up.
type echo struct{}

func (echo) allocate(_ context.Context, p wire.AllocateParams) (wire.AllocateResult, *wire.Error) {
	held := wire.Time(time.Now().Add(holdFor))
	return wire.AllocateResult{Signer: p.Signer, Nonce: 12345, Attempt: 1, FencingToken: 1, HeldUntil: held, HoldMs: holdFor.Milliseconds()}, nil
}

func (echo) markUsed(_ context.Context, p wire.MarkUsedParams) (wire.MarkResult, *wire.Error) {
	return marked(p), nil
}

func (echo) close() {}
