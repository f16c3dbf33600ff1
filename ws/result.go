package ws

import (
	"noncegate/nonce"
	"noncegate/wire"
)

// resultOf is the wire form of what an op came to. Op.Err is nil.
func resultOf(op *nonce.Op) any {
	switch op.Kind {
	case nonce.KindAllocate:
		return allocateResult(op)
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable:
		return &wire.MarkResult{
			Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Attempt,
			Status: op.Status.String(), TxHash: op.TxHash.String(),
		}
	case nonce.KindSetFloor:
		return &wire.FloorResult{Signer: op.Signer, Floor: op.Floor, Next: op.Next}
	case nonce.KindStatus:
		return statusResult(op)
	default:
		return listResult(op.Page)
	}
}

func allocateResult(op *nonce.Op) *wire.AllocateResult {
	r := &wire.AllocateResult{
		Signer: op.Signer, Nonce: op.Nonces[0], Attempt: op.Attempts[0],
		FencingToken: op.Token, HeldUntil: wire.Time(op.HeldUntil), HoldMs: op.HoldLeft.Milliseconds(),
	}
	if op.Count > 1 {
		r.Nonces = make([]wire.NonceAttempt, len(op.Nonces))
		for i, n := range op.Nonces {
			r.Nonces[i] = wire.NonceAttempt{Nonce: n, Attempt: op.Attempts[i]}
		}
	}
	return r
}

func statusResult(op *nonce.Op) *wire.StatusResult {
	s := &op.Summary
	r := &wire.StatusResult{
		Signer: op.Signer, Next: s.Next, Floor: s.Floor, Pruned: s.Pruned,
		Held: s.Held, Released: s.Released, Consumed: s.Consumed,
		FencingToken: s.Lease.Token, Version: s.Version,
	}
	if s.LowestHeld >= 0 && s.Held > 0 {
		r.LowestHeld = &s.LowestHeld
	}
	if s.Lease.Held(s.Now) {
		until := wire.Time(s.Lease.ExpiresAt)
		r.Owner, r.OwnerURL, r.LeaseUntil = clip(s.Lease.Holder.Node), clip(s.Lease.URL), &until
	}
	return r
}

// infoResult is what a gateway says of itself and of other nodes, cut to the bounds
// of its reservation.
func infoResult(info wire.InfoResult) *wire.InfoResult {
	shown := info.Nodes[:min(len(info.Nodes), wire.MaxNodes)]
	info.Nodes = make([]wire.NodeInfo, len(shown))
	for i, n := range shown {
		n.Node, n.URL, n.Mode, n.State = clip(n.Node), clip(n.URL), clipTo(n.Mode, maxWord), clipTo(n.State, maxWord)
		info.Nodes[i] = n
	}
	return &info
}

func listResult(page nonce.ListPage) *wire.ListResult {
	r := &wire.ListResult{Allocations: make([]wire.Allocation, len(page.Rows))}
	for i := range page.Rows {
		row := &page.Rows[i]
		a := wire.Allocation{
			Nonce: row.Nonce, Status: row.Status.String(), Attempt: row.Attempt,
			TxHash: row.TxHash.String(), Reason: row.Reason, RequestID: row.RequestID,
		}
		if !row.UpdatedAt.IsZero() {
			at := wire.Time(row.UpdatedAt)
			a.UpdatedAt = &at
		}
		if row.Status == nonce.Held {
			until := wire.Time(row.HeldUntil)
			a.HeldUntil = &until
		}
		r.Allocations[i] = a
	}
	if page.NextFrom >= 0 {
		r.NextFrom = &page.NextFrom
	}
	return r
}
