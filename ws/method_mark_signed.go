package ws

import (
	"cmp"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// markSignedMethod records the hash of a transaction before it is sent.
var markSignedMethod = method{
	name: wire.MethodMarkSigned, right: access.RightMark, level: audit.Changes,
	prepare: by((*conn).markSigned),
	size:    mediumReplyBytes,
	reply:   func(_ *conn, op *op) any { return markResult(op) },
	audited: auditNonce,
}

func (c *conn) markSigned(r *request, p wire.MarkSignedParams) *wire.Error {
	if err := c.setSigner(&r.op, p.Signer); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt = nonce.KindMarkSigned, p.Nonce, p.Attempt
	return cmp.Or(setHash(&r.op, p.TxHash), c.setGuard(r, p.Guard))
}
