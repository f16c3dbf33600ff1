package ws

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/wire"
	"noncegate/writer"
)

// Methods that stand for others: a client may say anything, and a label may not.
const (
	methodUnknown = "unknown" // what is no method of the protocol, and what is no request at all
	methodDialect = "dialect" // all methods of the protocols beside that of nonces
)

// refuseReasons are the stable words of error replies: data.reason.
var refuseReasons = append(wire.Reasons(), "not_holder")

// upgradeReason is why a client was not let in.
type upgradeReason string

// The reasons for refusing an upgrade. All but upgradeBroken are answered in HTTP.
const (
	upgradeFull       upgradeReason = "full"        // as many connections as there may be
	upgradeDraining   upgradeReason = "draining"    // the node is going away
	upgradeOrigin     upgradeReason = "origin"      // a browser's page of another host
	upgradeBadRequest upgradeReason = "bad_request" // not a WebSocket handshake
	upgradeBroken     upgradeReason = "broken"      // the client went or spoke before it was answered

	upgradeUnauthorized upgradeReason = "unauthorized"   // without a credential that is good
	upgradeThrottled    upgradeReason = "throttled"      // too many bad credentials came from its address
	upgradeUnchecked    upgradeReason = "unchecked"      // it could not be said whether the credential is good
	upgradePrincipal    upgradeReason = "principal_full" // its principal has as many connections as it may
	upgradeAddress      upgradeReason = "address_full"   // its address has

	// Sockets that were closed before anything was read of them.
	upgradeAddressFast    upgradeReason = "address_fast"    // its address opens too many a second
	upgradeAddressWaiting upgradeReason = "address_waiting" // its address has too many that were not let in yet
	upgradeWaiting        upgradeReason = "waiting_full"    // all addresses together have

	upgradeNodeSecret  upgradeReason = "node_secret" // another node without the secret, or from another host where there is none
	upgradeMisdirected upgradeReason = "misdirected" // a node that meant another one
)

var upgradeReasons = []upgradeReason{
	upgradeFull, upgradeDraining, upgradeOrigin, upgradeBadRequest, upgradeBroken,
	upgradeUnauthorized, upgradeThrottled, upgradeUnchecked, upgradePrincipal, upgradeAddress,
	upgradeAddressFast, upgradeAddressWaiting, upgradeWaiting,
	upgradeNodeSecret, upgradeMisdirected,
}

// closeReason is how a connection ended: what came first, where several did.
type closeReason string

// The ends of a connection.
const (
	closeClient      closeReason = "client"      // the client closed it, in order
	closeLost        closeReason = "lost"        // it broke, or the client went without a word
	closeSlow        closeReason = "slow"        // kicked, see noncegate_kicked_total
	closeIdle        closeReason = "idle"        // nothing was heard from the client
	closeRestart     closeReason = "restart"     // a draining node sent it away
	closeStopped     closeReason = "stopped"     // it was left when the drain ran out of time
	closeExpired     closeReason = "expired"     // its credential has expired
	closeRevoked     closeReason = "revoked"     // its credential was revoked
	closeUnsupported closeReason = "unsupported" // a binary frame
	closeProtocol    closeReason = "protocol"    // frames against RFC 6455
	closePolicy      closeReason = "policy"      // frames without a request, or control frames, without end; a message that did not come
	closeUnused      closeReason = "unused"      // it had asked for nothing for too long
	closeTooLarge    closeReason = "too_large"   // a frame that is too long
	closeInternal    closeReason = "internal"    // a mistake of this program
	closeEventsLost  closeReason = "events_lost" // events of a subscription are lost for good
)

var closeReasons = append(slices.Collect(maps.Values(reasonsByCode)), closeLost, closeSlow, closeIdle, closeStopped)

// counters are what a Server counts beside what ws_perf tells.
type counters struct {
	opened          *metrics.Count
	unknownOutcomes *metrics.Count

	requests       metrics.Family[string]
	refused        metrics.Family[string]
	upgradeRefused metrics.Family[upgradeReason]
	closed         metrics.Family[closeReason]
}

func newCounters(reg prometheus.Registerer) *counters {
	names := slices.Concat(slices.Collect(maps.Keys(methods)), []string{methodDialect, methodUnknown})
	return &counters{
		opened: metrics.NewCount(reg, "connections_opened_total", "WebSocket connections that were accepted."),
		unknownOutcomes: metrics.NewCount(reg, "unknown_outcomes_total",
			"Replies to clients: unavailable with outcome unknown: the work may or may not have happened, and only the same request id asks."),
		requests: metrics.NewFamily(reg, "requests_total", "method",
			"Requests read, refused ones included; unknown is what is no method, or no request.", names...),
		refused: metrics.NewFamily(reg, "refused_total", "reason", "Error replies to clients, by data.reason.", refuseReasons...),
		upgradeRefused: metrics.NewFamily(reg, "upgrade_refused_total", "reason",
			"Clients not let in, before or at the WebSocket handshake.", upgradeReasons...),
		closed: metrics.NewFamily(reg, "connections_closed_total", "reason",
			"Connections that ended, by what ended them first.", closeReasons...),
	}
}

// endpoint is a method with the counter of its requests, which is looked up here
// once so that a request costs it one addition.
type endpoint struct {
	*method
	asked *metrics.Count
}

// registerMetrics is the last that New does which can go wrong.
func (s *Server) registerMetrics(reg prometheus.Registerer) {
	s.counters = newCounters(reg)
	s.endpoints = make(map[string]endpoint, len(methods))
	for name, method := range methods {
		s.endpoints[name] = endpoint{method, s.counters.requests.Of(name)}
	}
	s.nowhere = endpoint{&noMethod, s.counters.requests.Of(methodUnknown)}
	s.elsewhere = endpoint{&noMethod, s.counters.requests.Of(methodDialect)}
	s.registerGauges(reg)
}

func (s *Server) countRefusal(said *wire.ErrorData) {
	s.counters.refused.Inc(said.Reason)
	if said.Outcome == wire.OutcomeUnknown {
		s.counters.unknownOutcomes.Inc()
	}
}

// countBusy counts n requests that were refused with err, if for want of a slot.
func (s *Server) countBusy(err *wire.Error, n int) {
	if err.Data.Stage != "" {
		s.rejected(err.Data.Stage, n)
	}
}

// refuseUpgrade answers a handshake that gorilla refuses, as it would itself.
func (s *Server) refuseUpgrade(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	reason := upgradeBadRequest
	switch status {
	case http.StatusForbidden:
		reason = upgradeOrigin
	case http.StatusInternalServerError: // the connection could not be taken over
		reason = upgradeBroken
	}
	s.counters.upgradeRefused.Inc(reason)
	w.Header().Set("Sec-Websocket-Version", "13")
	http.Error(w, http.StatusText(status), status)
}

// clientsClose stands for the code of a close that the client began.
const clientsClose = -1

// reasonsByCode are the reasons of orderly closes, by their codes. It is never written.
var reasonsByCode = map[int32]closeReason{
	clientsClose:               closeClient,
	wire.CloseServiceRestart:   closeRestart,
	wire.CloseExpired:          closeExpired,
	wire.CloseRevoked:          closeRevoked,
	wire.CloseUnsupported:      closeUnsupported,
	wire.ClosePolicy:           closePolicy,
	wire.CloseGoingAway:        closeUnused,
	wire.CloseTooLarge:         closeTooLarge,
	wire.CloseInternal:         closeInternal,
	wire.CloseProtocolError:    closeProtocol,
	wire.CloseSubscriptionLost: closeEventsLost,
}

// ending is why a connection ended: the orderly close that was begun first, or
// what ended its queue.
func (c *conn) ending() closeReason {
	if reason := reasonsByCode[c.began.Load()]; reason != "" {
		return reason
	}
	cause := c.out.Cause()
	if _, kicked := errors.AsType[*writer.KickError](cause); kicked {
		return closeSlow
	}
	switch {
	case errors.Is(cause, errSilent):
		return closeIdle
	case errors.Is(cause, errStopped):
		return closeStopped
	}
	return closeLost
}

// registerGauges registers what is read when Prometheus asks.
func (s *Server) registerGauges(reg prometheus.Registerer) {
	number := func(name, help string, n int) {
		metrics.Gauge(reg, name, help, func() float64 { return float64(n) })
	}
	metrics.Slots(reg, "inflight", "Requests not answered yet", s.clients.used)
	metrics.Gauge(reg, "receive_bytes", "Bytes of messages above 8 KiB that are being received, or by /eth/CHAIN are not answered yet.",
		func() float64 { return float64(s.receiving.shares.Taken()) })
	number("receive_bytes_max", "Most of them.", int(s.cfg.MaxReceiveBytes))
	metrics.Gauge(reg, "receive_waiting",
		"Messages that wait unread because as many bytes are being received as may, or as their principal may.",
		func() float64 { return float64(s.receiving.shares.Waits()) })
	number("connections_max", "Most open WebSocket connections.", s.cfg.MaxConnections)
	metrics.Gauge(reg, "sockets_waiting", "Open sockets whose clients were not let in yet. 0 without --rights.",
		func() float64 { return float64(s.Waiting()) })
	number("sockets_waiting_max", "Most of them.", s.cfg.Addresses.Waiting)
	metrics.Gauges(reg, outboundGauges, s.outbound)
}

// outboundGauges are what waits for clients to read.
var outboundGauges = []metrics.Named{
	{Name: "outbound_bytes", Help: "Bytes that wait for clients to read: queued, encoded or being written, over all connections."},
	{Name: "outbound_promised_bytes",
		Help: "Bytes of --write-max-bytes that are promised to answers whose work is under way, over all connections."},
	{Name: "outbound_messages", Help: "Messages that wait for clients to read, and answers under way, over all connections."},
	{Name: "outbound_largest_bytes", Help: "Bytes that wait for the client that has most."},
	{Name: "connections_paused", Help: "Connections that are not read now because their clients do not read."},
}

// Connection is an open connection, for people who look.
type Connection struct {
	Principal, Remote string
	Queued            int64 // bytes that wait for the client to read
	Paused            bool  // nothing of it is read, because it does not read
}

// Connected are the open connections, in no order. It looks at each, as outbound does.
func (s *Server) Connected() []Connection {
	all := s.conns.all()
	list := make([]Connection, len(all))
	for i, c := range all {
		d := c.out.Depth()
		list[i] = Connection{c.principal(), c.ws.RemoteAddr().String(), d.Bytes, d.Paused}
	}
	return list
}

// outbound is what waits for clients to read, over all open connections, in the order of
// outboundGauges. It looks at every connection, so it must be called now and then only; it
// holds each up for a moment.
func (s *Server) outbound() []float64 {
	var sum writer.Depth
	var largest int64
	paused := 0
	for _, c := range s.conns.all() {
		d := c.out.Depth()
		sum.Bytes += d.Bytes
		sum.Promised += d.Promised
		sum.Messages += d.Messages
		largest = max(largest, d.Bytes)
		if d.Paused {
			paused++
		}
	}
	return []float64{float64(sum.Bytes), float64(sum.Promised), float64(sum.Messages), float64(largest), float64(paused)}
}
