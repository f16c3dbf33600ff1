package ws

import (
	"cmp"
	"fmt"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// allocateMethod hands out one nonce, or several.
var allocateMethod = method{
	name: wire.MethodAllocate, right: access.RightAllocate, level: audit.Changes,
	prepare: by((*conn).allocate),
	more:    func(r *nonce.Request) int64 { return int64(r.Count) * nonceBytes }, sizedBy: "count",
	reply:   func(_ *conn, op *op) any { return allocateResult(op) },
	audited: auditHandedOut,
}

func (c *conn) allocate(r *request, p wire.AllocateParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs)); err != nil {
		return err
	}
	if chain := c.srv.cfg.Chain; chain != nil {
		if why := chain.Refuses(r.op.Signer); why != "" {
			return invalidParams("signer", why)
		}
	}
	if p.Count > nonce.MaxCount {
		return invalidParams("count", fmt.Sprintf("must be at most %d", nonce.MaxCount))
	}
	r.op.Kind, r.op.Count, r.op.RecordFirst = nonce.KindAllocate, int(p.Count), p.RecordFirst
	return cmp.Or(setRequestID(&r.op, p.RequestID), c.setGuard(r, p.Guard))
}

func allocateResult(op *op) *wire.AllocateResult {
	r := &op.allocated
	*r = wire.AllocateResult{
		Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0],
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
	}
	if op.Count > 1 {
		r.Nonces = make([]wire.NonceAttempt, len(op.Nonces))
		for i, n := range op.Nonces {
			r.Nonces[i] = wire.NonceAttempt{Nonce: n, Attempt: op.Attempts[i], Reissued: reissuedOf(op, i)}
		}
	}
	r.Reissued = reissuedOf(op, 0)
	return r
}

// reissuedOf is what the i-th nonce of an op was before, where its holder must know it.
func reissuedOf(op *op, i int) *wire.Reissued {
	if i >= len(op.Earlier) {
		return nil
	}
	return reissued(op.Earlier[i])
}

func reissued(was *nonce.Earlier) *wire.Reissued {
	if was == nil {
		return nil
	}
	return &wire.Reissued{Attempt: was.Attempt, Reason: was.Reason, TxHash: was.TxHash.String()}
}

func auditHandedOut(op *op, failed bool, e *audit.Entry) {
	if !failed && len(op.Nonces) > 0 {
		e.Nonce, e.HasNonce, e.Count = op.Nonces[0], true, len(op.Nonces)
	}
}
