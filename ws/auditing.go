package ws

import (
	"time"

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
	e := audit.Entry{At: time.Now(), Event: event, Address: c.ws.RemoteAddr().String()}
	if c.session != nil {
		e.Principal, e.Credential = c.session.Principal, c.session.Credential
	}
	return e
}

// audit says what a client asked for and what came of it, if that is wanted. It comes
// before the answer is queued. What another node brings is said there.
func (r *request) audit() {
	c := r.conn
	if !c.srv.cfg.Audit.Wants(audit.Refusals) || c.peer != nil {
		return
	}
	err := r.failure()
	if r.call != nil {
		r.call.audit(err)
		return
	}
	if !c.srv.cfg.Audit.Wants(r.auditLevel(err)) {
		return
	}
	e := c.entry(audit.Call)
	e.Method, e.Signer, e.Outcome = r.method, r.op.Signer, "ok"
	if err != nil {
		e.Outcome, e.Right = outcomeOf(err), err.Data.Right
	}
	if audited := r.kind().audited; audited != nil {
		audited(&r.op, err != nil, &e)
	}
	if refusedForRights(err) {
		c.srv.cfg.Audit.Refused(e)
		return
	}
	c.srv.cfg.Audit.Add(e)
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
	return r.kind().level
}

func refusedForRights(err *wire.Error) bool {
	return err != nil && (err.Code == wire.CodeForbidden || err.Code == wire.CodeUnauthorized)
}
