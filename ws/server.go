package ws

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/quota"
	"noncegate/internal/events"
	"noncegate/internal/metrics"
	"noncegate/internal/socket"
	"noncegate/nonce"
	"noncegate/writer"
)

// Service runs requests; see service.Service.
type Service interface {
	Reserve(signer string, p nonce.Principal) (nonce.Slot, bool)
	Submit(slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion)
	WorkerIndex(signer string) int
}

// Server serves WebSocket connections. It is an http.Handler for the one path
// they are opened on. Stop ends its goroutines.
type Server struct {
	service  Service
	hub      *events.Hub
	pool     *encodepool.Pool
	perf     *metrics.Set
	counters *counters
	log      *slog.Logger
	cfg      Config

	upgrader  websocket.Upgrader
	endpoints map[string]endpoint // by method; never written after New
	nowhere   endpoint            // of all other methods; nothing to run
	elsewhere endpoint            // of all methods of Rooms
	conns     *registry
	clients   *Room
	panics    atomic.Int64
	rejected  func(stage string, n int) // counts requests refused as server_busy

	draining atomic.Bool // no request is taken any more

	principals *quota.Principals
	signers    *quota.Signers     // nil: no limit for one signer
	seen       *quota.Seen        // signers that were counted as new
	reads      *quota.Signers     // the same for what only reads, so that a reader uses up nothing else; nil with signers
	names      *backpressure.Gate // signers that subscriptions of clients name
	receiving  *receiving
	preAuth    *preAuthLimiter // nil: without authentication, what comes from an address is not bounded

	life      context.Context // ends with Stop
	endOfLife context.CancelFunc
	pinger    sync.WaitGroup
	lined     sync.WaitGroup // the lines of all connections, the calls of Rooms, and requests that ask a chain for their results

	sights    context.Context // ends when no request waits for a chain any more; of life
	endSights context.CancelFunc
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

// New makes a server, registers its metrics with reg, and starts its pinger. The encode pool and the hub's pool
// must live until Stop has returned; so must the service, to answer what is in
// flight. An error names the setting that is wrong; then nothing was registered.
func New(service Service, hub *events.Hub, pool *encodepool.Pool, cfg Config, perf *metrics.Set, reg prometheus.Registerer,
	log *slog.Logger) (*Server, error) {
	cfg.setDefaults()
	s := &Server{
		service: service, hub: hub, pool: pool, perf: perf, log: log.With("component", "ws"), cfg: cfg,
		// EnableCompression stays false: an extension that a client offers is not taken.
		upgrader: websocket.Upgrader{
			ReadBufferSize: readBufferBytes, WriteBufferPool: new(sync.Pool), HandshakeTimeout: handshakeTime,
			CheckOrigin: func(*http.Request) bool { return true }, // admitClient has looked
		},
		principals: quota.NewPrincipals(), signers: quota.NewSigners(cfg.Signers), reads: quota.NewSigners(cfg.Signers),
		seen: quota.NewSeen(), names: backpressure.NewGate(nodeNames),
		conns:    newRegistry(cfg.MaxConnections),
		rejected: perf.Rejected,
	}
	s.upgrader.Error = s.refuseUpgrade
	s.cfg.Writer.OnEncodeError = s.encodeFailed
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	s.clients = s.newRoom(nil, s.cfg.Bounds)
	s.receiving = newReceiving(s.cfg.MaxReceiveBytes, s.cfg.MaxConnections)
	if s.cfg.Auth != nil {
		s.preAuth = newPreAuthLimiter(s.cfg.Addresses)
	}
	s.registerMetrics(reg)
	s.life, s.endOfLife = context.WithCancel(context.Background())
	s.sights, s.endSights = context.WithCancel(s.life)
	s.pinger.Go(func() { s.ping(s.life) })
	return s, nil
}

// Panics is the number of mistakes of this program that a connection, a call or a message
// has ended in.
func (s *Server) Panics() int64 { return s.panics.Load() }

// panicked counts a mistake of ours, and logs it with the stack. The function that has recovered
// from it calls this, while it is still deferred.
func (s *Server) panicked(what, remote string, v any, more ...any) {
	s.panics.Add(1)
	s.log.Error(what+" panicked", append([]any{"remote", remote, "panic", v, "stack", string(debug.Stack())}, more...)...)
}

// ServeHTTP upgrades a request to a connection and returns; the connection's own
// goroutine reads on. A gateway that is full or draining answers 503 with
// Retry-After, before the upgrade; a client without a good credential is answered
// 401, or 503 where that cannot be said; one of a page that may not connect 403; one
// whose principal or address has its connections 429.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.clients.open(w, r) }

func (t *Room) open(w http.ResponseWriter, r *http.Request) {
	s := t.srv
	if !websocket.IsWebSocketUpgrade(r) { // its credential is not looked at
		w.Header().Set("Sec-Websocket-Version", "13")
		s.refuseClient(w, http.StatusBadRequest, upgradeBadRequest,
			"a WebSocket is opened with the headers Upgrade: websocket and Connection: Upgrade, and this request came without; "+
				"a proxy in between has to pass both on (nginx: proxy_http_version 1.1, proxy_set_header Upgrade and Connection)")
		return
	}
	if s.refuseLeaving(w) {
		return
	}
	g, ok := s.admitClient(w, r)
	if !ok || !s.reserve(w, &g) {
		return
	}
	g.replaces = asksReplace(r)
	g.dryRun = r.Header.Get(DryRunHeader) != ""
	h := &socket.Hijacker{ResponseWriter: w}
	ws, err := s.upgrader.Upgrade(h, r, nil)
	if err != nil {
		if _, answered := errors.AsType[websocket.HandshakeError](err); !answered {
			s.counters.upgradeRefused.Inc(upgradeBroken)
		}
		g.leave()
		s.conns.release(nil) // refuseUpgrade has answered, or the client is gone
		s.log.Debug("upgrade refused", "remote", r.RemoteAddr, "error", err)
		return
	}
	c := t.newConn(ws, h.Conn, g)
	s.conns.add(c)
	s.perf.Connections.Add(1)
	s.counters.opened.Inc()
	c.auditLogin(audit.Login, "")
	go c.read()
}

// RefusedNode counts another node that was not let in, for one of the reasons of package cluster.
func (s *Server) RefusedNode(reason string) { s.counters.upgradeRefused.Inc(upgradeReason(reason)) }

// refuseLeaving answers a client of a node that is going away.
func (s *Server) refuseLeaving(w http.ResponseWriter) bool {
	if !s.conns.isLeaving() {
		return false
	}
	s.counters.upgradeRefused.Inc(upgradeDraining)
	unavailable(w, retryDraining, "this node is going away")
	return true
}

// reserve takes a slot for the connection of a client, and tells it where there is none. The
// node may have begun to leave during the authentication.
func (s *Server) reserve(w http.ResponseWriter, g *identity) bool {
	if s.conns.reserve() {
		if name := g.principal(); s.cfg.Met != nil && name != "" {
			s.cfg.Met(name)
		}
		return true
	}
	g.leave()
	if !s.refuseLeaving(w) {
		s.counters.upgradeRefused.Inc(upgradeFull)
		unavailable(w, retryFull, "this node has as many connections as it may have")
	}
	return false
}

const (
	handshakeTime = 5 * time.Second // bounds the write of the answer to an upgrade
	retryFull     = 5 * time.Second // the Retry-After of a gateway that has no slot for a connection
)

func unavailable(w http.ResponseWriter, after time.Duration, why string) {
	w.Header().Set("Retry-After", seconds(after))
	http.Error(w, why, http.StatusServiceUnavailable)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

func (t *Room) newConn(ws *websocket.Conn, transport *socket.Conn, g identity) *conn {
	s, now := t.srv, time.Now()
	c := &conn{
		srv: s, room: t, ws: ws, transport: transport, identity: g, asker: g.asker(),
		share: backpressure.NewShare(t.bounds.MaxInflight), out: writer.New(transport.Writer(), s.pool, &t.writer),
		heardAt: now, pingAt: now.Add(s.firstPing()), watch: watch{partAt: now, usedAt: now},
	}
	if t.protocol != nil {
		c.speaker = t.protocol.Join(&Visitor{identity: g, srv: s, address: c.remote(), conn: c, gone: c.gone.Load})
	}
	transport.BoundSendBuffer(s.cfg.SendBuffer)
	transport.OnClose = c.close
	ws.SetReadLimit(t.bounds.MaxMessageBytes)
	ws.SetPingHandler(c.onPing)
	ws.SetPongHandler(func(string) error { c.control(); return nil }) // that something was heard is noted already
	ws.SetCloseHandler(c.onClose)
	return c
}

// pingLooks is how often in one ping interval the connections are looked at, so
// that their pings are spread over it.
const pingLooks = 16

func (s *Server) ping(ctx context.Context) {
	tick := time.NewTicker(s.lookEvery())
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, c := range s.conns.all() {
				c.oversee(now)
			}
		}
	}
}

func (s *Server) dropSilent(c *conn) {
	s.perf.Kicked(metrics.KickIdle)
	s.log.Debug("dropped a silent peer", "remote", c.ws.RemoteAddr().String())
	c.out.Kill(errSilent)
}

func (s *Server) left(c *conn) {
	s.perf.Connections.Add(-1)
	why := c.ending()
	s.counters.closed.Inc(why)
	c.auditLogin(audit.Logout, why)
	c.identity.leave()
	s.conns.release(c)
}

// encodeFailed says what to send in the place of a message that could not be
// encoded: a mistake of this program.
func (s *Server) encodeFailed(m writer.Message, err error) (instead []byte) {
	s.panics.Add(1)
	var method string // "": an array of several
	var to *conn
	switch m := m.(type) {
	case *request:
		method, to, instead = m.name(), m.conn, m.errorReply()
	case *batch:
		to, instead = m.conn, m.errorReply()
	case *notification:
		method, to = m.subscription.method, m.subscription.conn
	}
	details := []any{"error", err, "method", clip(method), "remote", to.remote()}
	if p, ok := errors.AsType[*writer.PanicError](err); ok {
		details = append(details, "stack", string(p.Stack))
	}
	s.log.Error("a message could not be encoded", details...)
	if instead != nil {
		s.countRefusal(errNotEncoded().Data) // once, for a batch too: the panic counts more
	}
	return instead
}
