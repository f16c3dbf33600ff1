package ws

import (
	"noncegate/internal/access"
	"noncegate/wire"
)

// everySigner is the pattern that a subscription to all signers needs a right on. No
// narrower pattern covers it.
const everySigner = "*"

// authorize looks whether the client may do what it asks of a signer, and signs the
// op with who it is. What another node brings was looked at there.
func (c *conn) authorize(r *request) *wire.Error {
	if c.peer != nil || r.op.Kind == 0 {
		return nil
	}
	r.op.Principal = c.asker
	right := r.kind().right
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

// seesHolders reports whether the client is told who else holds nonces of the signer:
// who may do something about it is.
func (c *conn) seesHolders(signer string) bool {
	return c.session.May(access.RightMarkAny, signer) || c.session.May(access.RightRepair, signer) || c.session.May(access.RightAdmin, signer)
}

// may refuses who has not the right on the signer. The answer is the same whether
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
