package ws

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/wire"
	"noncegate/writer"
)

// Bounds are those of a Room. All are required.
type Bounds struct {
	// MaxInflight bounds the requests of one connection, or of one POST, that are not answered
	// yet; MaxInflightTotal those of the Room. More keeps more memory in use under overload;
	// fewer refuses bursts that would have been served. Below the encode pool's queue a refusal
	// finds a slot there at once; above, it waits for one, and its connection is not read
	// meanwhile.
	MaxInflight, MaxInflightTotal int
	// MaxMessageBytes bounds one frame's payload, and the body of a POST; a larger one closes
	// the connection with 1009.
	MaxMessageBytes int64
}

func (b *Bounds) validate(maxBatch int, maxReceiveBytes int64) error {
	switch {
	case b.MaxInflightTotal < b.MaxInflight:
		return fmt.Errorf("%d requests in flight in all are fewer than the %d of one connection", b.MaxInflightTotal, b.MaxInflight)
	case maxBatch > b.MaxInflight:
		return fmt.Errorf("a batch of %d could never be admitted with %d requests in flight on a connection", maxBatch, b.MaxInflight)
	case b.MaxMessageBytes < 1024:
		return fmt.Errorf("max message bytes of %d are too few for a request, at least 1024 are needed", b.MaxMessageBytes)
	case maxReceiveBytes < b.MaxMessageBytes:
		return fmt.Errorf("%d bytes being received are fewer than the %d of one message", maxReceiveBytes, b.MaxMessageBytes)
	}
	return nil
}

// RoomConfig are the bounds of a Room for a Protocol. Its slots are its own: calls that wait for
// another server take none of those that answer at once. With authentication principals have equal
// parts of three quarters of MaxInflightTotal, and an array at least.
type RoomConfig struct {
	Bounds
	MaxAnswerBytes int64 // of one answer; twice as much may wait for a connection
}

// Room is a path of a Server, and what its connections have in common: /ws, or one where a Protocol
// is spoken.
type Room struct {
	srv      *Server
	protocol Protocol // nil: that of nonces
	bounds   Bounds
	inflight *backpressure.Gate // the requests of all
	fair     *fairness.Shares   // of inflight, by principal; nil: they are not shared
	writer   writer.Config
}

func (s *Server) newRoom(p Protocol, b Bounds) *Room {
	return &Room{srv: s, protocol: p, bounds: b, inflight: backpressure.NewGate(b.MaxInflightTotal), writer: s.cfg.Writer}
}

// longAnswer is how many bytes a second a client should be able to read, at least, when
// it asks for long answers: by it the patience with slow clients is measured.
const longAnswer = 128 << 10

// Room makes room for a Protocol, which must live until Stop has returned. An error names the bound
// that is wrong.
func (s *Server) Room(p Protocol, cfg RoomConfig) (*Room, error) {
	if err := cfg.validate(s.cfg.MaxBatch, s.cfg.MaxReceiveBytes); err != nil {
		return nil, err
	}
	if least := s.cfg.MaxBatch * (smallReplyBytes + maxIDBytes); cfg.MaxAnswerBytes < int64(least) {
		return nil, fmt.Errorf("%d bytes for an answer are too few, a batch of %d may need %d", cfg.MaxAnswerBytes, s.cfg.MaxBatch, least)
	}
	t := s.newRoom(p, cfg.Bounds)
	t.fair = fairness.NewShares(int64(cfg.MaxInflightTotal), int64(s.cfg.MaxBatch), 0)
	marks := &t.writer.Marks
	t.writer.MaxNotifications = marks.Max // as of the gateway's own protocol
	// A client that reads one long answer is not slow. What is promised comes on top.
	marks.High, marks.Low = max(marks.High, cfg.MaxAnswerBytes), max(marks.Low, cfg.MaxAnswerBytes/4)
	marks.Max = 2 * max(marks.Max, cfg.MaxAnswerBytes)
	if marks.MaxAge > 0 {
		marks.MaxAge += time.Duration(marks.Max/longAnswer) * time.Second
	}
	t.writer.MaxMessages = max(t.writer.MaxMessages, 4*cfg.MaxInflight)
	t.writer.Share = max(t.writer.Share, cfg.MaxInflight)
	return t, t.writer.Validate()
}

// Open upgrades a request to a connection, as Server.ServeHTTP does. true: it was no POST, and is
// answered.
func (t *Room) Open(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case websocket.IsWebSocketUpgrade(r), r.Method == http.MethodGet, r.Method == http.MethodHead:
		t.open(w, r)
	case r.Method == http.MethodPost, r.Method == http.MethodOptions:
		return false
	default:
		w.Header().Set("Allow", "GET, POST, OPTIONS")
		http.Error(w, "POST a JSON-RPC request, or open a WebSocket", http.StatusMethodNotAllowed)
	}
	return true
}

// Limits are those of the Server that concern a Protocol.
func (t *Room) Limits() (maxBatch int, writeTimeout time.Duration) {
	return t.srv.cfg.MaxBatch, t.writer.WriteTimeout
}

// maxAnswer is the largest answer that a connection has room for, without its frame's header.
func (t *Room) maxAnswer() int64 { return t.writer.Marks.Max - encodepool.MaxHeader }

// used is the number of requests not answered yet, and their bound.
func (t *Room) used() (used, capacity int) { return t.inflight.Used(), t.inflight.Capacity() }

// enter counts n requests of a share as in flight. Draining is looked at after the
// count was raised and before anything else: Drain looks at the count after it
// said draining, so one of the two sees the other.
func (t *Room) enter(share *backpressure.Share, p nonce.Principal, n int) *wire.Error {
	switch {
	case t.inflight.TryTake(share, n):
		if t.fair != nil {
			if ok, crowded := t.fair.Try(p, int64(n)); !ok {
				t.inflight.Give(share, n)
				if crowded {
					return BusyQuota("this principal has as many calls in flight as its share", RetryBusy)
				}
				return Busy(wire.StageInflight)
			}
		}
		if t.srv.draining.Load() {
			t.leave(share, p, n)
			return errDraining()
		}
		return nil
	case share.Closed():
		return errDraining()
	case share.Used()+n > t.bounds.MaxInflight:
		return Busy(wire.StageConnection)
	}
	return Busy(wire.StageInflight)
}

// leave gives back slots that were taken by enter.
func (t *Room) leave(share *backpressure.Share, p nonce.Principal, n int) {
	if t.fair != nil {
		t.fair.Release(p, int64(n))
	}
	t.inflight.Give(share, n)
}
