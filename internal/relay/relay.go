// Package relay serves JSON-RPC whose answers take as long as another server needs for them: on
// connections of a ws.Server, and by POST. It is the server of /eth/CHAIN.
//
// It promises: each call runs in a goroutine of its own; ordered calls of a connection, or of an
// array by POST, begin one after the other; long answers wait for room within a bound of all, of
// which each connection and principal has a share; a subscription's first event comes after the
// reply that names it, and what a slow client misses is counted. Call.Pass, a panic and a client
// that is gone hold up no other call.
//
// It does not know any method (Handler has them), authenticates no client, and bounds nothing that a ws.Room
// bounds: calls in flight, messages, rights and quotas are the Server's.
//
// The goroutines of calls on connections are the Server's, those of a POST its own. Each lock is a
// field mu that says what it guards; under that of a stream the locks of the connection's queue and
// of the encode pool are taken, so that its events keep their order.
//
// Where to begin reading: relay.go, call.go, conn.go (calls on a WebSocket), post.go (by POST),
// stream.go.
package relay

import (
	"context"
	"errors"
	"net/http"

	"noncegate/backpressure"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/wire"
	"noncegate/ws"
)

// Handler answers the methods of a protocol.
type Handler interface {
	// Ordered reports whether calls of a method are begun in the order in which they
	// came: the next ordered call of a connection, or of an array by POST, is run when
	// the one before has called Call.Pass or has been answered. It must not block.
	Ordered(method string) bool
	// Answer answers a call. It is run in a goroutine of its own and must end by itself
	// some time after ctx has, which is when the connection, the request by POST or the
	// Server ends. What is not to be cut off then is done without ctx.
	Answer(ctx context.Context, c *Call) Answer
}

// Answer is what a call comes to: a result, or one of the two errors.
type Answer struct {
	Result  []byte      // JSON; none is null
	Err     *wire.Error // our own. Its text must be bounded, as that of every Error
	Foreign *Foreign    // passed on
}

// Foreign is an error of another server, which is passed on as it is.
type Foreign struct {
	Code    int
	Message string
	Data    []byte // JSON; none is left out
}

// Config are the bounds of a Server. All are required.
type Config struct {
	ws.RoomConfig
	// MaxWaitingBytes bounds the answers of all connections that wait until there is
	// room for them.
	MaxWaitingBytes int64
}

// Server serves a Handler: it is the http.Handler of a path.
type Server struct {
	Handler
	cfg     Config
	room    *ws.Room
	waiting *backpressure.Gate // bytes of answers that are larger than what was reserved for them
	fair    *fairness.Shares   // of waiting, by principal
}

// New makes a server of connections and POSTs of on. An error names the bound that is wrong. h must
// live until on has stopped.
func New(on *ws.Server, h Handler, cfg Config) (*Server, error) {
	if cfg.MaxWaitingBytes < cfg.MaxAnswerBytes {
		return nil, errors.New("the bytes of all answers that wait must not be fewer than those of one")
	}
	s := &Server{
		Handler: h, cfg: cfg, waiting: backpressure.NewGate(int(cfg.MaxWaitingBytes)),
		fair: fairness.NewShares(cfg.MaxWaitingBytes, cfg.MaxAnswerBytes, 0),
	}
	var err error
	s.room, err = on.Room(s, cfg.RoomConfig)
	return s, err
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.room.Open(w, r) {
		s.post(w, r)
	}
}

// longShare is what a connection, or a POST, may have of the long answers that wait: a quarter,
// and two answers at least.
func (s *Server) longShare() *backpressure.Share {
	return backpressure.NewShare(int(max(2*s.cfg.MaxAnswerBytes, s.cfg.MaxWaitingBytes/4)))
}

// held is what a long answer has of the bytes that may wait. The zero held has none.
type held struct {
	of    *Server
	share *backpressure.Share
	p     nonce.Principal
	bytes int64
}

// hold counts more bytes of an answer among those of all that wait, where it may be so large.
func (s *Server) hold(share *backpressure.Share, p nonce.Principal, bytes, more int64) (held, *wire.Error) {
	switch {
	case bytes > s.cfg.MaxAnswerBytes:
		err := wire.Errorf(wire.CodeAnswerTooLarge, "the answer has %d bytes, and at most %d are sent; ask for less", bytes, s.cfg.MaxAnswerBytes)
		err.Data.Limit = s.cfg.MaxAnswerBytes
		return held{}, err
	case !s.waiting.TryTake(share, int(more)):
		return held{}, ws.Busy(wire.StageConnection)
	}
	if ok, _ := s.fair.Try(p, more); !ok {
		s.waiting.Give(share, int(more))
		return held{}, ws.BusyQuota("the answers of this principal that wait to be read are as large as its share", ws.RetryBusy)
	}
	return held{s, share, p, more}, nil
}

// giveBack undoes a hold. It may be called again.
func (h *held) giveBack() {
	if h.bytes > 0 {
		h.of.fair.Release(h.p, h.bytes)
		h.of.waiting.Give(h.share, int(h.bytes))
		h.bytes = 0
	}
}

// run runs an admitted call to its end.
func (s *Server) run(ctx context.Context, c *Call) (a Answer) {
	defer c.Pass()
	if !c.order.await(ctx) {
		return Answer{Err: ws.ErrEnded()}
	}
	if err := c.guarded(func() { a = s.Answer(ctx, c) }); err != nil {
		return Answer{Err: err}
	}
	return a
}

// bytes is what the answer needs without its id.
func (a *Answer) bytes() int64 {
	const envelope = 128
	switch {
	case a.Err != nil:
		return ws.ErrorBytes
	case a.Foreign != nil: // a byte of the message is six in JSON at most
		return envelope + 6*int64(len(a.Foreign.Message)) + int64(len(a.Foreign.Data))
	}
	return envelope + int64(len(a.Result))
}

// append encodes the answer as one whole reply.
func (a *Answer) append(dst, id []byte) []byte {
	switch {
	case a.Err != nil:
		return wire.AppendError(dst, id, a.Err)
	case a.Foreign != nil:
		return wire.AppendForeignError(dst, id, a.Foreign.Code, a.Foreign.Message, a.Foreign.Data)
	}
	return wire.AppendRaw(dst, id, a.Result)
}
