package ws

import (
	"net"
	"net/http"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/wire"
)

// auditLogin says that a client was let in.
func (s *Server) auditLogin(c *conn) {
	if c.session == nil || !s.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	s.cfg.Audit.Add(c.entry(audit.Login))
}

// auditPost says that a client was let in by POST: once for each credential that a socket
// shows in turn, as one is let in once for each WebSocket.
func (s *Server) auditPost(r *http.Request, g *identity) {
	if g.session == nil || !s.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	if socket, known := r.Context().Value(socketKey{}).(net.Conn); known && !s.preAuth.newcomer(socket, g.session.Credential) {
		return
	}
	e := entryOf(audit.Login, g.session, r.RemoteAddr)
	e.Method = clip("POST " + r.URL.Path)
	s.cfg.Audit.Add(e)
}

// auditLogout says how the connection of a client that was let in has ended.
func (s *Server) auditLogout(c *conn) {
	if c.session == nil || !s.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	e := c.entry(audit.Logout)
	e.Outcome = string(c.ending())
	s.cfg.Audit.Add(e)
}

// entry is a line about the client of a connection.
func (c *conn) entry(event audit.Event) audit.Entry {
	return entryOf(event, c.session, c.ws.RemoteAddr().String())
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
	if !c.srv.cfg.Audit.Wants(r.auditLevel(err)) {
		return
	}
	e := c.entry(audit.Call)
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
		e.Outcome, e.Right = outcomeOf(err), err.Data.Right
	}
	if refusedForRights(err) {
		s.cfg.Audit.Refused(e)
		return
	}
	s.cfg.Audit.Add(e)
}

// outcomeOf is the word of the audit for an error.
func outcomeOf(err *wire.Error) string {
	if err.Data.Outcome == wire.OutcomeUnknown {
		return wire.OutcomeUnknown
	}
	return err.Data.Reason
}

// failure is the error that the request is answered with; nil: none.
func (r *request) failure() *wire.Error {
	if r.err == nil && r.op.Err != nil {
		return errorOf(r.op.Err, r.op.Signer, r.op.Count)
	}
	return r.err
}

// auditLevel is the lowest level that has the request in it.
func (r *request) auditLevel(err *wire.Error) audit.Level {
	if refusedForRights(err) {
		return audit.Refusals
	}
	return r.method.level
}

func refusedForRights(err *wire.Error) bool {
	return err != nil && (err.Code == wire.CodeForbidden || err.Code == wire.CodeUnauthorized)
}
