package ws

import (
	"cmp"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// markUsedMethod says that a transaction used a nonce.
var markUsedMethod = method{
	name: wire.MethodMarkUsed, right: access.RightMark, level: audit.Changes,
	prepare: by((*conn).markUsed),
	size:    mediumReplyBytes,
	reply:   func(_ *conn, op *op) any { return markResult(op) },
	audited: auditNonce,
}

func (c *conn) markUsed(r *request, p wire.MarkUsedParams) *wire.Error {
	return cmp.Or(c.about(&r.op, nonce.KindMarkUsed, p.Signer, p.Nonce, p.Attempt), setHash(&r.op, p.TxHash), c.setGuard(r, p.Guard))
}

// markResult answers all three marks.
func markResult(op *op) *wire.MarkResult {
	r := &op.marked
	*r = wire.MarkResult{
		Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Result.Attempt,
		Status: op.Status.String(), Replaced: op.Replaced.String(),
	}
	r.TxHash, r.TxHashes = hashesOf(op.Hashes)
	if op.Kind == nonce.KindMarkSigned && op.Status == nonce.Held {
		until := wire.Time(op.HeldUntil)
		r.HeldUntil, r.HoldMs = &until, op.HoldLeft.Milliseconds()
	}
	return r
}

// hashesOf are the newest of some hashes, and all of them if there are several. They
// are ordered newest first.
func hashesOf(hs nonce.TxHashes) (newest string, all []string) {
	n := hs.Len()
	if n == 0 {
		return "", nil
	}
	if n == 1 {
		return hs.At(0).String(), nil
	}
	all = make([]string, n)
	for i := range all {
		all[i] = hs.At(i).String()
	}
	return all[0], all
}

func auditNonce(op *op, _ bool, e *audit.Entry) { e.Nonce, e.HasNonce = op.Nonce, true }
