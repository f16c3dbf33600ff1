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
	size:    mediumReply,
	reply:   func(_ *conn, op *op) any { return markResult(op) },
	audited: auditNonce,
}

func (c *conn) markSigned(r *request, p wire.MarkSignedParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.ofNodes("forwarded", p.Forwarded), c.ofNodes("take", p.Take), c.ofNodes("over", p.Over != ""),
		c.ofNodes("maxOpen", p.MaxOpen != 0)); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt = nonce.KindMarkSigned, p.Nonce, p.Attempt
	r.op.Forwarded, r.op.Take, r.op.MaxOpen = p.Forwarded, p.Take, int(p.MaxOpen)
	return cmp.Or(setHash(&r.op, p.TxHash), setOver(&r.op, p.Over), c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

// setOver reads which transaction may be replaced.
func setOver(op *op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	hash, bad := nonce.ParseTxHash(given)
	if bad != nil {
		return invalidParams("over", bad.Error())
	}
	op.Over = hash
	return nil
}
