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

// principal is the name of the client's principal; without authentication all clients have one.
func (g *identity) principal() string {
	if g.session == nil {
		return ""
	}
	return g.session.Principal
}

// asker is the client's principal, as holds have it; 0: without authentication.
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

// everySigner is the pattern that a subscription to all signers needs a right on. No
// narrower pattern covers it.
const everySigner = "*"

// authorize looks whether the client may do what it asks of a signer, and writes its
// principal into the request.
func (c *conn) authorize(r *request) *wire.Error {
	if r.op.Kind == 0 {
		return nil
	}
	r.op.Principal, r.op.DryRun = c.asker, c.dryRun
	right := r.method.right
	switch right {
	case access.RightAllocate:
		r.op.MaxOpen = c.session.Quota().OpenHolds
	case access.RightMark:
		if r.op.MarkAny = c.session.May(access.RightMarkAny, r.op.Signer); r.op.MarkAny {
			return nil
		}
	}
	return c.may(right, r.op.Signer)
}

// may refuses a client that has not the right on the signer. The answer is the same whether
// there is such a signer or not.
func (c *conn) may(right access.Right, signer string) *wire.Error {
	if c.session.May(right, signer) {
		return nil
	}
	return forbidden(right)
}

func forbidden(right access.Right) *wire.Error {
	return with(wire.Errorf(wire.CodeForbidden, "the right %s on this signer is missing; nothing happened", right),
		wire.ErrorData{Right: right.String()})
}
