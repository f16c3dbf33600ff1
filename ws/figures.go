package ws

import (
	"errors"
	"net/http"

	"noncegate/perf"
	"noncegate/wire"
	"noncegate/writer"
)

// endpoint is a method with the counter of its requests, which is looked up here
// once so that a request costs it one addition.
type endpoint struct {
	name  string // "": of none
	run   method
	asked *perf.Count
}

// endpointsOf are the methods, and what counts all others.
func endpointsOf(figures *perf.Set) (known map[string]endpoint, nowhere endpoint) {
	known = make(map[string]endpoint, len(methods))
	for name, run := range methods {
		known[name] = endpoint{name, run, figures.Requests(perf.Method(name))}
	}
	return known, endpoint{asked: figures.Requests(perf.MethodUnknown)}
}

// countRefusal counts an error reply. What another node is told is no client's to
// see: that node routes the request again, or tells its client and counts it there.
func (s *Server) countRefusal(said *wire.ErrorData, toNode bool) {
	if toNode {
		s.figures.NodeRefused(perf.RefuseReason(said.Reason))
		return
	}
	s.figures.Refused(perf.RefuseReason(said.Reason))
	if said.Outcome == wire.OutcomeUnknown {
		s.figures.UnknownOutcomes.Inc()
	}
}

// refuseUpgrade answers a handshake that gorilla refuses, as it would itself.
func (s *Server) refuseUpgrade(w http.ResponseWriter, _ *http.Request, status int, _ error) {
	reason := perf.UpgradeBadRequest
	switch status {
	case http.StatusForbidden:
		reason = perf.UpgradeOrigin
	case http.StatusInternalServerError: // the connection could not be taken over
		reason = perf.UpgradeBroken
	}
	s.figures.UpgradeRefused(reason)
	w.Header().Set("Sec-Websocket-Version", "13")
	http.Error(w, http.StatusText(status), status)
}

// clientsClose stands for the code of a close that the client began.
const clientsClose = -1

// ending is why a connection ended: the orderly close that was begun first, or
// what ended its queue.
func (c *conn) ending() perf.CloseReason {
	switch c.began.Load() {
	case clientsClose:
		return perf.CloseClient
	case wire.CloseServiceRestart:
		return perf.CloseRestart
	case wire.CloseExpired:
		return perf.CloseExpired
	case wire.CloseRevoked:
		return perf.CloseRevoked
	case wire.CloseUnsupported:
		return perf.CloseUnsupported
	case wire.ClosePolicy:
		return perf.ClosePolicy
	case wire.CloseGoingAway:
		return perf.CloseUnused
	case wire.CloseTooLarge:
		return perf.CloseTooLarge
	case wire.CloseInternal:
		return perf.CloseInternal
	case wire.CloseProtocolError:
		return perf.CloseProtocol
	case wire.CloseSubscriptionLost:
		return perf.CloseEventsLost
	}
	cause := c.out.Cause()
	if _, kicked := errors.AsType[*writer.KickError](cause); kicked {
		return perf.CloseSlow
	}
	switch {
	case errors.Is(cause, errSilent):
		return perf.CloseIdle
	case errors.Is(cause, errStopped):
		return perf.CloseStopped
	}
	return perf.CloseLost
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
