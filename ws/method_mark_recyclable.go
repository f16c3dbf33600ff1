package ws

import (
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// markRecyclableMethod gives a nonce back.
var markRecyclableMethod = method{
	name: wire.MethodMarkRecyclable, right: access.RightMark, level: audit.Changes,
	prepare: by((*conn).markRecyclable),
	size:    mediumReplyBytes,
	reply:   func(_ *conn, op *op) any { return markResult(op) },
	audited: auditNonce,
}

func (c *conn) markRecyclable(r *request, p wire.MarkRecyclableParams) *wire.Error {
	if err := c.about(&r.op, nonce.KindMarkRecyclable, p.Signer, p.Nonce, p.Attempt); err != nil {
		return err
	}
	reason, bad := nonce.ParseReason(p.Reason)
	if bad != nil {
		return invalidParams("reason", bad.Error())
	}
	r.op.Reason, r.op.Unsent = reason, p.Unsent
	return c.setGuard(r, p.Guard)
}
