package ws

import (
	"errors"
	"net/http"

	"noncegate/internal/metrics"
	"noncegate/wire"
	"noncegate/writer"
)

// endpoint is a method with the counter of its requests, which is looked up here
// once so that a request costs it one addition.
type endpoint struct {
	name  string // "": of none
	run   method
	asked *metrics.Count
}

// endpointsOf are the methods, and what counts all others.
func endpointsOf(set *metrics.Set) (known map[string]endpoint, nowhere endpoint) {
	known = make(map[string]endpoint, len(methods))
	for name, run := range methods {
		known[name] = endpoint{name, run, set.Requests(metrics.Method(name))}
	}
	return known, endpoint{asked: set.Requests(metrics.MethodUnknown)}
}

// countRefusal counts an error reply. What another node is told is no client's to
// see: that node routes the request again, or tells its client and counts it there.
func (s *Server) countRefusal(said *wire.ErrorData, toNode bool) {
	if toNode {
		s.metrics.NodeRefused(metrics.RefuseReason(said.Reason))
		return
	}
	s.metrics.Refused(metrics.RefuseReason(said.Reason))
	if said.Outcome == wire.OutcomeUnknown {
		s.metrics.UnknownOutcomes.Inc()
	}
}

// refuseUpgrade answers a handshake that gorilla refuses, as it would itself.
func (s *Server) refuseUpgrade(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	reason := metrics.UpgradeBadRequest
	switch status {
	case http.StatusForbidden:
		reason = metrics.UpgradeOrigin
	case http.StatusInternalServerError: // the connection could not be taken over
		reason = metrics.UpgradeBroken
	}
	s.metrics.UpgradeRefused(reason)
	w.Header().Set("Sec-Websocket-Version", "13")
	http.Error(w, http.StatusText(status), status)
}

// clientsClose stands for the code of a close that the client began.
const clientsClose = -1

// closeReasons are the reasons of orderly closes, by their codes. It is never written.
var closeReasons = map[int32]metrics.CloseReason{
	clientsClose:               metrics.CloseClient,
	wire.CloseServiceRestart:   metrics.CloseRestart,
	wire.CloseExpired:          metrics.CloseExpired,
	wire.CloseRevoked:          metrics.CloseRevoked,
	wire.CloseUnsupported:      metrics.CloseUnsupported,
	wire.ClosePolicy:           metrics.ClosePolicy,
	wire.CloseGoingAway:        metrics.CloseUnused,
	wire.CloseTooLarge:         metrics.CloseTooLarge,
	wire.CloseInternal:         metrics.CloseInternal,
	wire.CloseProtocolError:    metrics.CloseProtocol,
	wire.CloseSubscriptionLost: metrics.CloseEventsLost,
}

// ending is why a connection ended: the orderly close that was begun first, or
// what ended its queue.
func (c *conn) ending() metrics.CloseReason {
	if reason := closeReasons[c.began.Load()]; reason != "" {
		return reason
	}
	cause := c.out.Cause()
	if _, kicked := errors.AsType[*writer.KickError](cause); kicked {
		return metrics.CloseSlow
	}
	switch {
	case errors.Is(cause, errSilent):
		return metrics.CloseIdle
	case errors.Is(cause, errStopped):
		return metrics.CloseStopped
	}
	return metrics.CloseLost
}

// Outbound is what waits for clients to read, over all open connections.
type Outbound struct {
	Bytes    int64 // of messages queued, encoded or being written
	Promised int64 // bytes reserved for answers whose work is under way
	Messages int   // queued, encoded, being written, or promised
	Largest  int64 // bytes of the connection that has most
	Paused   int   // connections that are not read because they do not read
}

// Outbound looks at every open connection, so it is for whoever looks now and
// then; it keeps each up for a moment only.
func (s *Server) Outbound() Outbound {
	var sum Outbound
	for _, c := range s.conns.all() {
		d := c.out.Depth()
		sum.Bytes += d.Bytes
		sum.Promised += d.Promised
		sum.Messages += d.Messages
		sum.Largest = max(sum.Largest, d.Bytes)
		if d.Paused {
			sum.Paused++
		}
	}
	return sum
}
