package ws

import (
	"cmp"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// extendMethod gives a hold a new deadline.
var extendMethod = method{
	name: wire.MethodExtend, right: access.RightMark, level: audit.Changes,
	prepare: by((*conn).extend),
	reply:   func(_ *conn, op *op) any { return extendResult(op) },
	audited: auditNonce,
}

func (c *conn) extend(r *request, p wire.ExtendParams) *wire.Error {
	return cmp.Or(c.about(&r.op, nonce.KindExtend, p.Signer, p.Nonce, p.Attempt), c.setHold(&r.op, p.HoldMs))
}

func extendResult(op *op) *wire.ExtendResult {
	return &wire.ExtendResult{
		Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Result.Attempt,
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
	}
}
