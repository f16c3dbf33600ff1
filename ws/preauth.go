package ws

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/quota"
)

const (
	// authTimeout bounds the authentication of a client; past it the client is answered 503.
	authTimeout = 5 * time.Second
	// retryCrowded is the Retry-After of a client that has its connections.
	retryCrowded = 5 * time.Second
)

// preAuthLimiter knows the sockets whose clients were not let in yet.
type preAuthLimiter struct {
	addresses *quota.Addresses

	mu      sync.Mutex // guards what follows; the locks of addresses are taken under it
	sockets map[net.Conn]*newcomer
}

type newcomer struct {
	slot  *quota.Slot
	shown string // the credential that was shown last, by POST
}

func newPreAuthLimiter(cfg quota.AddressConfig) *preAuthLimiter {
	return &preAuthLimiter{addresses: quota.NewAddresses(cfg), sockets: make(map[net.Conn]*newcomer)}
}

// ConnState is for the http.Server that serves this handler: with authentication,
// sockets are counted from when they are accepted until they were upgraded or closed,
// and what is too many is closed before a byte of it is read.
func (s *Server) ConnState(c net.Conn, state http.ConnState) {
	if s.preAuth == nil {
		return
	}
	switch state {
	case http.StateNew:
		if reason := s.preAuth.arrive(c); reason != "" {
			s.counters.upgradeRefused.Inc(reason)
			_ = c.Close() // without an answer: the client learns no more
		}
	case http.StateHijacked, http.StateClosed:
		s.preAuth.depart(c)
	}
}

func (d *preAuthLimiter) arrive(c net.Conn) (refused upgradeReason) {
	slot, why := d.addresses.Arrive(c.RemoteAddr().String(), time.Now())
	switch why {
	case quota.TooFast:
		return upgradeAddressFast
	case quota.TooMany:
		return upgradeAddressWaiting
	case quota.Crowded:
		return upgradeWaiting
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sockets[c] = &newcomer{slot: slot}
	return ""
}

// enter counts a socket as a connection of its address: a client was let in on it, and
// it goes on being one of HTTP. It is one for the requests that follow, too. false: the
// address has as many as it may. A socket that was not counted before is not counted now.
func (d *preAuthLimiter) enter(c net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.sockets[c]
	if known == nil || known.slot.Entered() {
		return true
	}
	now := time.Now()
	in, _ := d.addresses.Enter(c.RemoteAddr().String(), now)
	if in == nil {
		return false
	}
	known.slot.Leave(now)
	known.slot = in
	return true
}

// shows reports whether a credential is another one than the socket showed last.
func (d *preAuthLimiter) shows(c net.Conn, credential string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.sockets[c]
	if known == nil {
		return true // nothing would forget it
	}
	was := known.shown
	known.shown = credential
	return was != credential
}

// depart does nothing for a socket that was refused.
func (d *preAuthLimiter) depart(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.sockets[c]; known != nil {
		delete(d.sockets, c)
		known.slot.Leave(time.Now())
	}
}

// socketKey is the key of a request's socket in its context.
type socketKey struct{}

// ConnContext is for the http.Server that serves a Room, as ConnState
// is: requests know their sockets by it.
func (s *Server) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, socketKey{}, c)
}

// Waiting is how many sockets are open whose clients were not let in yet; always 0
// without authentication.
func (s *Server) Waiting() int {
	if s.preAuth == nil {
		return 0
	}
	return s.preAuth.addresses.Waiting()
}

// identity is the principal a client was let in as, and the account its connection counts for.
type identity struct {
	session *access.Session // nil: there is no authentication
	account *quota.Usage
	slot    *quota.Slot

	replaces bool // the request that opened it says that replacements are meant
	dryRun   bool // the same: what is asked is not to be done
}

// ReplaceHeader and ReplaceParam, of a URL's query, say with ReplaceAny that each transaction of a
// connection, or of a POST, may replace another one of its nonce, whatever that pays.
const (
	ReplaceHeader = "Noncegate-Replace"
	ReplaceParam  = "replace"
	ReplaceAny    = "any"
)

// DryRunHeader says, with any value, that nothing of what is asked on a connection is to be done: each
// request is answered as it would be.
const DryRunHeader = "Noncegate-Dry-Run"

// asksReplace reports whether a request says so.
func asksReplace(r *http.Request) bool {
	return r.Header.Get(ReplaceHeader) == ReplaceAny || r.URL.Query().Get(ReplaceParam) == ReplaceAny
}

// leave gives back what the connection counts for. It is called once.
func (g *identity) leave() {
	now := time.Now()
	if g.account != nil {
		g.account.Leave(now)
	}
	if g.slot != nil {
		g.slot.Leave(now)
	}
}

// admitClient looks where a client comes from, authenticates it and counts it. Not ok:
// it was answered. The cheapest check comes first.
func (s *Server) admitClient(w http.ResponseWriter, r *http.Request) (g identity, ok bool) {
	if r.Context().Value(originKey{}) == nil && !s.cfg.Origins.Allow(r) {
		s.refuseClient(w, http.StatusForbidden, upgradeOrigin, "pages of this origin may not connect")
		return identity{}, false
	}
	return s.admitKnown(w, r, func(g *identity) bool {
		g.slot, _ = s.preAuth.addresses.Enter(r.RemoteAddr, time.Now())
		return g.slot != nil
	})
}

// admitKnown authenticates a client, and counts its connection: of its address by enter, which
// is false if that has as many as it may, and of its principal. Not ok: it was answered.
func (s *Server) admitKnown(w http.ResponseWriter, r *http.Request, enter func(*identity) bool) (g identity, ok bool) {
	if s.cfg.Auth == nil {
		return identity{}, true
	}
	if g.session = s.authenticate(w, r); g.session == nil {
		return identity{}, false
	}
	reason := upgradeAddress
	if enter(&g) {
		if g.account, ok = s.principals.Enter(g.session.Principal, g.session.Quota().Connections, time.Now()); ok {
			return g, true
		}
		reason = upgradePrincipal
	}
	g.leave()
	w.Header().Set("Retry-After", seconds(retryCrowded))
	s.refuseClient(w, http.StatusTooManyRequests, reason, "there are as many connections as may be from here, or of this principal")
	s.auditRefused(r, g.session, string(reason))
	return identity{}, false
}

// authenticate returns nil for a client that was answered.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) *access.Session {
	ctx, cancel := context.WithTimeout(r.Context(), authTimeout)
	defer cancel()
	session, err := s.cfg.Auth.Authenticate(r.WithContext(ctx))
	if err == nil {
		return session
	}
	status, sentence := access.Answer(w, r, err)
	reason := upgradeUnchecked
	switch status {
	case http.StatusUnauthorized:
		reason = upgradeUnauthorized
	case http.StatusTooManyRequests:
		reason = upgradeThrottled
	}
	s.refuseClient(w, status, reason, sentence)
	s.auditRefused(r, nil, err.Error())
	return nil
}

// refuseClient answers a client that is not let in. It closes the socket, so that a refused
// client holds nothing here.
func (s *Server) refuseClient(w http.ResponseWriter, status int, reason upgradeReason, why string) {
	s.counters.upgradeRefused.Inc(reason)
	w.Header().Set("Connection", "close")
	http.Error(w, why, status)
}

// auditRefused writes down which client was not let in, as far as that is known.
func (s *Server) auditRefused(r *http.Request, session *access.Session, why string) {
	if !s.cfg.Audit.Wants(audit.Refusals) {
		return
	}
	e := entryOf(audit.LoginRefused, session, r.RemoteAddr)
	e.Why = clip(why)
	s.cfg.Audit.Refused(e)
}
