package ws

import (
	"errors"
	"time"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

const (
	// sessionLook is how often at least the sessions of all connections are looked
	// at, so how long after its end a session may go on.
	sessionLook = time.Second
	// expiryTimeout is how long a connection whose session has ended may take to answer
	// what it has in flight.
	expiryTimeout = 10 * time.Second
)

// principal is the name of who a client is; without authentication all are one.
func (g *identity) principal() string {
	if g.session == nil {
		return ""
	}
	return g.session.Principal
}

// asker is who a client is, as holds know it; 0: without authentication.
func (g *identity) asker() nonce.Principal { return nonce.PrincipalOf(g.principal()) }

// expireSession ends a connection whose session has ended: nothing new is taken, and it is
// closed once what it has in flight is answered, or when that takes too long.
func (c *conn) expireSession(now time.Time, ended error) {
	code := wire.CloseExpired
	if errors.Is(ended, access.ErrRevoked) {
		code = wire.CloseRevoked
	}
	if c.expired.CompareAndSwap(0, int32(code)) {
		c.expiredAt = now
	}
	code = int(c.expired.Load())
	if !c.isClosing() && (c.share.Close() || now.Sub(c.expiredAt) >= expiryTimeout) {
		c.close(code, expirySentence(code))
	}
}

func expirySentence(code int) string {
	if code == wire.CloseRevoked {
		return access.ErrRevoked.Error()
	}
	return access.ErrExpired.Error()
}

// errSessionEnded refuses a request of a session that has ended.
func errSessionEnded(code int) *wire.Error {
	return wire.Errorf(wire.CodeUnauthorized, "%s; nothing happened", expirySentence(code))
}
