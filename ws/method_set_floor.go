package ws

import (
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// setFloorMethod raises the lowest nonce that is handed out.
var setFloorMethod = method{
	name: wire.MethodSetFloor, right: access.RightAdmin, level: audit.Refusals,
	prepare: by((*conn).setFloor),
	reply:   func(_ *conn, op *op) any { return floorResult(op) },
	audited: func(op *op, _ bool, e *audit.Entry) { e.Nonce, e.HasNonce = op.Request.Floor, true },
}

func (c *conn) setFloor(r *request, p wire.SetFloorParams) *wire.Error {
	r.op.Kind, r.op.Request.Floor = nonce.KindSetFloor, p.Floor
	return c.setSigner(&r.op, p.Signer)
}

func floorResult(op *op) *wire.FloorResult {
	return &wire.FloorResult{Signer: op.Signer, Floor: op.Result.Floor, Next: op.Next}
}
