package ws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/hub"
	"noncegate/nonce"
	"noncegate/perf"
	"noncegate/wire"
	"noncegate/writer"
)

// Service is the part of nonce.Service that runs requests.
type Service interface {
	Reserve(signer string) (nonce.Place, bool)
	Submit(p nonce.Place, op *nonce.Op)
	Lane(signer string) int
}

var _ Service = (*nonce.Service)(nil)

// Server serves WebSocket connections. It is an http.Handler for the one path
// they are opened on. Stop ends its goroutines.
type Server struct {
	service Service
	hub     *hub.Hub
	pool    *encodepool.Pool
	figures *perf.Set
	log     *slog.Logger
	cfg     Config

	upgrader  websocket.Upgrader
	endpoints map[string]endpoint // by method; never written after New
	nowhere   endpoint            // of all other methods; nothing to run
	conns     *registry
	inflight  *backpressure.Gate
	panics    atomic.Int64
	rejected  func(stage string, n int) // counts requests refused as server_busy
	draining  atomic.Bool

	stopPings context.CancelFunc
	pinger    sync.WaitGroup
}

var (
	errPeerGone = errors.New("the peer is gone")
	errSilent   = errors.New("the peer was silent for too long")
	errStopped  = errors.New("the gateway stops")
)

// readBufferBytes is gorilla's read buffer, which a connection keeps while it is
// idle: enough for a frame's header and most requests. What is read of a socket at
// once goes to a buffer that is lent for as long as it takes (see eager).
const readBufferBytes = 128

// New makes a server and starts its pinger. The encode pool and the hub's pool
// must live until Stop has returned; so must the service, to answer what is in
// flight. An error names the setting that is wrong.
func New(service Service, events *hub.Hub, pool *encodepool.Pool, figures *perf.Set, log *slog.Logger, cfg Config) (*Server, error) {
	s := &Server{
		service: service, hub: events, pool: pool, figures: figures, log: log.With("component", "ws"), cfg: cfg,
		upgrader: websocket.Upgrader{ReadBufferSize: readBufferBytes, WriteBufferPool: new(sync.Pool)},
		conns:    newRegistry(cfg.MaxConnections),
		rejected: func(stage string, n int) { figures.Rejected(perf.RejectStage(stage), n) },
	}
	s.endpoints, s.nowhere = endpointsOf(figures)
	s.upgrader.Error = s.refuseUpgrade
	s.cfg.Writer.OnEncodeError = s.encodeFailed
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	s.inflight = backpressure.NewGate(cfg.MaxInflightTotal)
	ctx, cancel := context.WithCancel(context.Background())
	s.stopPings = cancel
	s.pinger.Go(func() { s.ping(ctx) })
	return s, nil
}

// Connections is the number of open connections.
func (s *Server) Connections() int { return s.conns.len() }

// Inflight is the number of requests not answered yet, and their bound.
func (s *Server) Inflight() (used, capacity int) { return s.inflight.Used(), s.inflight.Capacity() }

// Panics is the number of connections that ended in a mistake of this program.
func (s *Server) Panics() int64 { return s.panics.Load() }

// ServeHTTP upgrades a request to a connection and returns; the connection's own
// goroutine reads on. A gateway that is full or draining answers 503 with
// Retry-After, before the upgrade.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		s.figures.UpgradeRefused(perf.UpgradeDraining)
		unavailable(w, retryDraining, "this node is going away")
		return
	}
	if !s.conns.reserve() {
		s.figures.UpgradeRefused(perf.UpgradeFull)
		unavailable(w, retryFull, "this node has as many connections as it may have")
		return
	}
	h := &hijacker{ResponseWriter: w}
	conn, err := s.upgrader.Upgrade(h, r, nil)
	if err != nil {
		s.conns.cancel() // refuseUpgrade has answered, or nobody can any more
		if _, answered := errors.AsType[websocket.HandshakeError](err); !answered {
			s.figures.UpgradeRefused(perf.UpgradeBroken)
		}
		s.log.Debug("upgrade refused", "remote", r.RemoteAddr, "error", err)
		return
	}
	h.transport.boundSendBuffer(s.cfg.SendBuffer)
	c := s.newConn(conn, h.transport)
	s.conns.enter(c)
	s.figures.Connections.Add(1)
	s.figures.ConnectionsOpened.Inc()
	go c.read()
}

// retryFull is the Retry-After of a gateway that has no place for a connection.
const retryFull = 5 * time.Second

func unavailable(w http.ResponseWriter, after time.Duration, why string) {
	w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
	http.Error(w, why, http.StatusServiceUnavailable)
}

func (s *Server) newConn(ws *websocket.Conn, t *transport) *conn {
	now := time.Now()
	c := &conn{
		srv: s, ws: ws, transport: t,
		share:   backpressure.NewShare(s.cfg.MaxInflight),
		heardAt: now, pingAt: now.Add(s.cfg.PingInterval),
	}
	c.out = writer.New(t.out(), s.pool, &s.cfg.Writer)
	t.closeFrame = c.close
	ws.SetReadLimit(s.cfg.MaxMessageBytes)
	ws.SetPingHandler(c.onPing)
	ws.SetCloseHandler(c.onClose)
	return c
}

// pingLooks is how often in one ping interval the connections are looked at, so
// that their pings are spread over it.
const pingLooks = 16

// ping is the pinger's goroutine.
func (s *Server) ping(ctx context.Context) {
	tick := time.NewTicker(max(s.cfg.PingInterval/pingLooks, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s.conns.look(now, s.cfg.PingInterval, s.dropSilent)
		}
	}
}

func (s *Server) dropSilent(c *conn) {
	s.figures.Kicked(perf.KickIdle)
	s.log.Debug("dropped a silent peer", "remote", c.ws.RemoteAddr().String())
	c.out.Kill(errSilent)
}

// left is the end of a connection.
func (s *Server) left(c *conn) {
	s.figures.Connections.Add(-1)
	s.figures.Closed(c.ending())
	s.conns.leave(c)
}

// apologizer is a message whose client waits for it.
type apologizer interface {
	// apology is what is sent when the message could not be encoded.
	apology() []byte
}

// encodeFailed says what to send in the place of a message that could not be
// encoded: a mistake of this program.
func (s *Server) encodeFailed(m writer.Message, err error) []byte {
	s.panics.Add(1)
	s.log.Error("a message could not be encoded", "error", err)
	if a, ok := m.(apologizer); ok {
		s.countRefusal(errNotEncoded().Data) // once, for a batch too: the panic counts more
		return a.apology()
	}
	return nil
}

// drainStep is how often Drain looks for connections that can be closed.
const drainStep = 10 * time.Millisecond

// Drain takes nothing new: further connections are told 503, further requests
// draining. Connections whose requests in flight are answered are closed with
// 1012, spread over CloseSpread. It returns when all are gone, or with an error
// that says how many are not when ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	began, total := time.Now(), s.conns.len()
	tick := time.NewTicker(drainStep)
	defer tick.Stop()
	for {
		left := max(s.cfg.CloseSpread-time.Since(began), 0)
		s.closeSome(int(float64(total) * float64(left) / float64(max(s.cfg.CloseSpread, 1))))
		select {
		case <-s.conns.whenEmpty():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("drain: %d connections are left, %d requests in flight: %w",
				s.conns.len(), s.inflight.Used(), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// closeSome closes connections that have nothing in flight until no more than
// keep are left that could be closed later.
func (s *Server) closeSome(keep int) {
	for _, c := range s.conns.all() {
		if c.closing.Load() {
			continue
		}
		if keep > 0 {
			keep--
		} else if c.share.Used() == 0 {
			c.close(wire.CloseServiceRestart, "restart")
		}
	}
}

// Stop ends every connection at once and the pinger, and returns when all
// goroutines are gone, or with an error when ctx ends first. After a Drain that
// succeeded there is nothing left to end. It may be called again.
func (s *Server) Stop(ctx context.Context) error {
	s.draining.Store(true)
	s.stopPings()
	s.pinger.Wait()
	for {
		for _, c := range s.conns.all() {
			c.out.Kill(errStopped)
		}
		select {
		case <-s.conns.whenEmpty():
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop: %d connections are left: %w", s.conns.len(), context.Cause(ctx))
		case <-time.After(drainStep):
		}
	}
}
