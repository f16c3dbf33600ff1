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
	return cmp.Or(c.about(&r.op, nonce.KindMarkSigned, p.Signer, p.Nonce, p.Attempt), setHash(&r.op, p.TxHash), c.setGuard(r, p.Guard))
}
