package ws

import (
	"net"
	"net/http"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/wire"
)

// auditLogin says that a client was let in, or that it has left, and why.
func (c *conn) auditLogin(event audit.Event, why closeReason) {
	if s := c.srv; c.session != nil && s.cfg.Audit.Wants(audit.Refusals) {
		e := entryOf(event, c.session, c.remote())
		e.Outcome = string(why)
		s.cfg.Audit.Add(e)
	}
}

// auditPost says that a client was let in by POST: once for each credential that a socket
// shows in turn, as one is let in once for each WebSocket.
func (s *Server) auditPost(r *http.Request, g *identity) {
	if g.session == nil || !s.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	if socket, known := r.Context().Value(socketKey{}).(net.Conn); known && !s.preAuth.shows(socket, g.session.Credential) {
		return
	}
	e := entryOf(audit.Login, g.session, r.RemoteAddr)
	e.Method = clip("POST " + r.URL.Path)
	s.cfg.Audit.Add(e)
}

// entryOf is a line about a client; session is nil for one that is not known.
func entryOf(event audit.Event, session *access.Session, address string) audit.Entry {
	e := audit.Entry{At: time.Now(), Event: event, Address: address}
	if session != nil {
		e.Principal, e.Credential = session.Principal, session.Credential
	}
	return e
}

// audit says what a client asked for and what came of it, if that is wanted. It comes
// before the answer is queued.
func (r *request) audit() {
	c := r.conn
	if !c.srv.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	err := r.failure()
	if r.call != nil {
		r.call.Audit(err)
		return
	}
	if level := r.method.level; !refusedForRights(err) && !c.srv.cfg.Audit.Wants(level) {
		return
	}
	e := entryOf(audit.Call, c.session, c.remote())
	e.Method, e.Signer = r.method.name, r.op.Signer
	if audited := r.method.audited; audited != nil {
		audited(&r.op, err != nil, &e)
	}
	done := "ok"
	if r.op.DryRun {
		done = "dry_run"
	}
	c.srv.auditCall(e, done, err)
}

// auditCall adds the line about a call that came to err, or to done.
func (s *Server) auditCall(e audit.Entry, done string, err *wire.Error) {
	e.Outcome = done
	if err != nil {
		e.Outcome, e.Right = err.Data.Reason, err.Data.Right
		if err.Data.Outcome == wire.OutcomeUnknown {
			e.Outcome = wire.OutcomeUnknown
		}
	}
	if refusedForRights(err) {
		s.cfg.Audit.Refused(e)
		return
	}
	s.cfg.Audit.Add(e)
}

// failure is the error that the request is answered with; nil: none.
func (r *request) failure() *wire.Error {
	if r.err == nil && r.op.Err != nil {
		return errorOf(r.op.Err, r.op.Signer, r.op.Count)
	}
	return r.err
}

func refusedForRights(err *wire.Error) bool {
	return err != nil && (err.Code == wire.CodeForbidden || err.Code == wire.CodeUnauthorized)
}
