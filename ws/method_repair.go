package ws

import (
	"cmp"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// repairMethod hands out the nonce that blocks others, whatever its state.
var repairMethod = method{
	name: wire.MethodRepair, right: access.RightRepair, level: audit.Refusals,
	prepare: by((*conn).repair),
	size:    largeReplyBytes,
	reply:   func(_ *conn, op *op) any { return repairResult(op) },
	audited: auditRepaired,
}

func (c *conn) repair(r *request, p wire.RepairParams) *wire.Error {
	r.op.Kind, r.op.Nonce = nonce.KindRepair, -1
	if p.Nonce != nil {
		r.op.Nonce = *p.Nonce
	}
	return cmp.Or(c.setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs), setRequestID(&r.op, p.RequestID))
}

// maxQuantity bounds a fee: 256 bits in hexadecimal digits.
const maxQuantity = 66

func repairResult(op *op) *wire.RepairResult {
	r := &wire.RepairResult{
		Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0],
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
		Was: wasOf(op.Before), Reissued: reissuedOf(op, 0),
	}
	var newest string
	newest, r.TxHashes = hashesOf(op.Hashes)
	if newest != "" && r.TxHashes == nil {
		r.TxHashes = []string{newest}
	}
	if offer := op.Offer; offer != nil {
		quantity := func(s string) string { return clipTo(s, maxQuantity) }
		r.Offer = &wire.Offer{
			GasPrice: quantity(offer.GasPrice), MaxFeePerGas: quantity(offer.MaxFeePerGas),
			MaxPriorityFeePerGas: quantity(offer.MaxPriorityFeePerGas), MaxFeePerBlobGas: quantity(offer.MaxFeePerBlobGas),
		}
	}
	return r
}

// wasOf is the state in which a repair found its nonce. One that was never held, because
// a floor or the chain skipped it, counts as CONSUMED.
func wasOf(b *nonce.Before) *wire.Was {
	switch {
	case b == nil:
		return nil
	case b.Status == 0:
		return &wire.Was{Status: wire.StatusConsumed}
	}
	unknown := b.Status == nonce.Held && b.Reason == nonce.ReasonUnknown
	return &wire.Was{Status: wordOf(b.Status, unknown), Attempt: b.Attempt, Reason: b.Reason}
}

func auditRepaired(op *op, failed bool, e *audit.Entry) {
	if !failed && len(op.Nonces) > 0 {
		e.Nonce, e.HasNonce = op.Nonces[0], true
		return
	}
	e.Nonce, e.HasNonce = max(0, op.Nonce), op.Nonce >= 0
}
