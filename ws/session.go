package ws

import (
	"context"
	"errors"
	"net/http"
	"time"

	"noncegate/auth"
	"noncegate/perf"
	"noncegate/wire"
)

const (
	// authTime bounds the question who a client is; beyond it, it cannot be said.
	authTime = 5 * time.Second
	// retryUnchecked is the Retry-After of a client whose credential cannot be checked.
	retryUnchecked = 5 * time.Second
	// sessionLook is how often at least the sessions of all connections are looked
	// at, so how long after its end a session may go on.
	sessionLook = time.Second
	// lapseTime is how long a connection whose session has ended may take to answer
	// what it has in flight.
	lapseTime = 10 * time.Second
)

// admitClient asks who a client is. Not ok: it was answered.
func (s *Server) admitClient(w http.ResponseWriter, r *http.Request) (session *auth.Session, ok bool) {
	if s.cfg.Auth == nil {
		return nil, true
	}
	ctx, cancel := context.WithTimeout(r.Context(), authTime)
	defer cancel()
	session, err := s.cfg.Auth.Authenticate(r.WithContext(ctx))
	if err == nil {
		return session, true
	}
	why, reason := loginRefusal(err)
	s.figures.UpgradeRefused(reason)
	s.log.Debug("credential refused", "remote", r.RemoteAddr, "error", err)
	w.Header().Set("Connection", "close")
	if reason == perf.UpgradeUnchecked {
		unavailable(w, retryUnchecked, why)
		return nil, false
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="noncegate"`)
	http.Error(w, why, http.StatusUnauthorized)
	return nil, false
}

// loginRefusal is what a client is told of its credential, which is no more than the
// sentence of one of auth's errors, and under which reason it counts.
func loginRefusal(err error) (sentence string, reason perf.UpgradeReason) {
	for _, known := range []error{auth.ErrMissing, auth.ErrInvalid, auth.ErrExpired, auth.ErrRevoked} {
		if errors.Is(err, known) {
			return known.Error(), perf.UpgradeUnauthorized
		}
	}
	return auth.ErrUnavailable.Error(), perf.UpgradeUnchecked
}

// principal is the name of who a client is; without authentication all are one.
func (c *conn) principal() string {
	if c.session == nil {
		return ""
	}
	return c.session.Principal
}

// oversee is the pinger's look at a connection.
func (c *conn) oversee(now time.Time) {
	if err := c.session.Ended(now); err != nil {
		c.lapse(now, err)
	}
}

// lapse ends a connection whose session has ended: nothing new is taken, and it is
// closed once what it has in flight is answered, or when that takes too long.
func (c *conn) lapse(now time.Time, ended error) {
	code := wire.CloseExpired
	if errors.Is(ended, auth.ErrRevoked) {
		code = wire.CloseRevoked
	}
	if c.lapsed.CompareAndSwap(0, int32(code)) {
		c.lapsedAt = now
	}
	code = int(c.lapsed.Load())
	if !c.closing.Load() && (c.takeAll() || now.Sub(c.lapsedAt) >= lapseTime) {
		c.close(code, lapseSentence(code))
	}
}

func lapseSentence(code int) string {
	if code == wire.CloseRevoked {
		return auth.ErrRevoked.Error()
	}
	return auth.ErrExpired.Error()
}

// errLapsed refuses a request of a session that has ended.
func errLapsed(code int) *wire.Error {
	return wire.Errorf(wire.CodeUnauthorized, "unauthorized", "%s; nothing happened", lapseSentence(code))
}
