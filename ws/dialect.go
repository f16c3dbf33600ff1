package ws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/wire"
)

// Dialect is a protocol beside that of nonces, on a path of its own: JSON-RPC 2.0 as
// well, over a WebSocket or by POST, with methods whose answers take as long as somebody
// else needs for them. Whom a Server lets in, what it bounds, how it closes and what it
// counts and writes down is the same for both.
type Dialect interface {
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

// Foreign is an error in somebody else's words, which is passed on as it is.
type Foreign struct {
	Code    int
	Message string
	Data    []byte // JSON; none is left out
}

// DialectConfig are the bounds of a dialect. All are required.
type DialectConfig struct {
	// MaxInflight bounds the calls of one connection, or of one request by POST, that
	// are not answered yet; MaxInflightTotal those of all. They are slots of the
	// dialect's own: calls that wait for somebody else take none of those that answer
	// at once. With authentication principals have equal parts of three quarters of
	// MaxInflightTotal, and an array at least.
	MaxInflight, MaxInflightTotal int
	// MaxMessageBytes bounds a frame, and the body of a POST.
	MaxMessageBytes int64
	// MaxAnswerBytes bounds one answer; twice as much may wait for a connection.
	// MaxWaitingBytes bounds the answers of all connections that wait until there is
	// room for them.
	MaxAnswerBytes, MaxWaitingBytes int64
}

func (c *DialectConfig) validate(maxBatch int) error {
	switch {
	case c.MaxInflight < maxBatch:
		return fmt.Errorf("a batch of %d could never be admitted with %d requests in flight on a connection", maxBatch, c.MaxInflight)
	case c.MaxInflightTotal < c.MaxInflight:
		return fmt.Errorf("%d requests in flight in all are fewer than the %d of one connection", c.MaxInflightTotal, c.MaxInflight)
	case c.MaxMessageBytes < 1024:
		return fmt.Errorf("max message bytes of %d are too few for a request, at least 1024 are needed", c.MaxMessageBytes)
	case c.MaxAnswerBytes < int64(maxBatch)*(smallReplyBytes+maxIDBytes):
		return fmt.Errorf("%d bytes for an answer are too few, a batch of %d may need %d", c.MaxAnswerBytes, maxBatch, maxBatch*(smallReplyBytes+maxIDBytes))
	case c.MaxWaitingBytes < c.MaxAnswerBytes:
		return errors.New("the bytes of all answers that wait must not be fewer than those of one")
	}
	return nil
}

// dialect is a Dialect as a Server serves it.
type dialect struct {
	Dialect
	srv     *Server
	cfg     DialectConfig
	class   class
	waiting *backpressure.Gate // bytes of answers that are larger than what was reserved for them
	fair    *fairness.Shares   // of waiting, by principal
}

// longShare is what a connection, or a POST, may have of the long answers that wait: a quarter,
// and two answers at least.
func (t *dialect) longShare() *backpressure.Share {
	return backpressure.NewShare(int(max(2*t.cfg.MaxAnswerBytes, t.cfg.MaxWaitingBytes/4)))
}

// longAnswer is how many bytes a second a client should be able to read, at least, when
// it asks for long answers: by it the patience with slow clients is measured.
const longAnswer = 128 << 10

// Dialect returns what serves d: as the handler of a path, connections and POST. An
// error names the bound that is wrong. d must live until Stop has returned.
func (s *Server) Dialect(d Dialect, cfg DialectConfig) (http.Handler, error) {
	if err := cfg.validate(s.cfg.MaxBatch); err != nil {
		return nil, err
	}
	if s.cfg.MaxReceiveBytes < cfg.MaxMessageBytes {
		return nil, fmt.Errorf("%d bytes being received are fewer than the %d of one message", s.cfg.MaxReceiveBytes, cfg.MaxMessageBytes)
	}
	t := &dialect{
		Dialect: d, srv: s, cfg: cfg, class: s.clientClass(), waiting: backpressure.NewGate(int(cfg.MaxWaitingBytes)),
		fair: fairness.NewShares(cfg.MaxWaitingBytes, cfg.MaxAnswerBytes, 0),
	}
	t.class.inflight, t.class.maxInflight = backpressure.NewGate(cfg.MaxInflightTotal), cfg.MaxInflight
	t.class.fair = fairness.NewShares(int64(cfg.MaxInflightTotal), int64(s.cfg.MaxBatch), 0)
	t.class.maxMessageBytes = cfg.MaxMessageBytes
	marks := &t.class.writer.Marks
	// A client that reads one long answer is not slow. What is promised comes on top.
	marks.High, marks.Low, marks.Max = max(marks.High, cfg.MaxAnswerBytes), max(marks.Low, cfg.MaxAnswerBytes/4), 2*max(marks.Max, cfg.MaxAnswerBytes)
	if marks.MaxAge > 0 {
		marks.MaxAge += time.Duration(marks.Max/longAnswer) * time.Second
	}
	// Notifications have what those of the gateway's own protocol have.
	t.class.writer.MaxNotifications = s.cfg.Writer.Marks.Max
	t.class.writer.MaxMessages = max(t.class.writer.MaxMessages, 4*cfg.MaxInflight)
	t.class.writer.Share = max(t.class.writer.Share, cfg.MaxInflight)
	if err := t.class.writer.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// ServeHTTP implements http.Handler.
func (t *dialect) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case websocket.IsWebSocketUpgrade(r):
		t.srv.open(w, r, t)
	case r.Method == http.MethodPost, r.Method == http.MethodOptions:
		t.post(w, r)
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		t.srv.refusePlain(w)
	default:
		w.Header().Set("Allow", "GET, POST, OPTIONS")
		http.Error(w, "POST a JSON-RPC request, or open a WebSocket", http.StatusMethodNotAllowed)
	}
}

// callOf makes a call of what was decoded; nothing of that is referred to afterwards.
func (t *dialect) callOf(call *wire.Call, who visitor) *Call {
	return &Call{Method: call.Method, Params: append([]byte(nil), call.Params...), of: t, who: who}
}

// hold counts more bytes of an answer among those of all that wait, where it may be so large.
func (t *dialect) hold(long *backpressure.Share, p nonce.Principal, bytes, more int64) *wire.Error {
	switch {
	case bytes > t.cfg.MaxAnswerBytes:
		return with(wire.Errorf(wire.CodeAnswerTooLarge, "the answer has %d bytes, and at most %d are sent; ask for less", bytes, t.cfg.MaxAnswerBytes),
			wire.ErrorData{Limit: t.cfg.MaxAnswerBytes})
	case !t.waiting.TryTake(long, int(more)):
		return busy(wire.StageConnection)
	}
	if ok, _ := t.fair.Try(p, more); !ok {
		t.waiting.Give(long, int(more))
		return busyQuota("the answers of this principal that wait to be read are as large as its share", retryBusy)
	}
	return nil
}

// unhold undoes a hold.
func (t *dialect) unhold(long *backpressure.Share, p nonce.Principal, more int64) {
	t.fair.Release(p, more)
	t.waiting.Give(long, int(more))
}

// run runs an admitted call to its end.
func (t *dialect) run(ctx context.Context, c *Call) (a Answer) {
	defer c.Pass()
	if !c.order.await(ctx) {
		return Answer{Err: errCallEnded()}
	}
	if err := t.guarded(c, func() { a = t.Answer(ctx, c) }); err != nil {
		return Answer{Err: err}
	}
	return a
}

// guarded does a part of a call, and makes an answer of a panic.
func (t *dialect) guarded(c *Call, do func()) (err *wire.Error) {
	defer func() {
		if v := recover(); v != nil {
			t.srv.panicked("a call of a dialect", c.who.address, v, "method", clip(c.Method))
			err = c.errPanicked()
		}
	}()
	do()
	return nil
}

// errCallEnded answers a call whose client has left, or whose gateway stops.
func errCallEnded() *wire.Error {
	return with(wire.Errorf(wire.CodeUnavailable, "the gateway stops; nothing happened"), wire.ErrorData{Outcome: wire.OutcomeNone})
}

// bytes is what the answer needs without its id.
func (a *Answer) bytes() int64 {
	const envelope = 128
	switch {
	case a.Err != nil:
		return smallReplyBytes
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
