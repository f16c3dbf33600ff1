package ws

import (
	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/wire"
)

// statusMethod says how a signer is.
var statusMethod = method{
	name: wire.MethodStatus, right: access.RightRead, level: audit.All,
	prepare: by((*conn).status),
	size:    mediumReplyBytes,
	reply:   func(_ *conn, op *op) any { return statusResult(op) },
}

func (c *conn) status(r *request, p wire.StatusParams) *wire.Error {
	r.op.Kind = nonce.KindStatus
	return c.setSigner(&r.op, p.Signer)
}

func statusResult(op *op) *wire.StatusResult {
	s := &op.Summary
	r := &wire.StatusResult{
		Signer: op.Signer, Next: s.Next, Floor: s.Floor,
		Held: s.Held, Unknown: s.Unknown, Released: s.Released, Consumed: s.Consumed,
		FencingToken: s.Lease.Token, Version: s.Version, Engine: wire.EngineReliable,
	}
	if s.Performance {
		r.Engine = wire.EnginePerformance
	}
	if s.LowestHeld >= 0 && s.Held > 0 {
		r.LowestHeld = &s.LowestHeld
	}
	if s.Lease.Held(s.Now) {
		until := wire.Time(s.Lease.ExpiresAt)
		r.Owner, r.OwnerURL, r.LeaseUntil = clip(s.Lease.Holder.Node), clip(s.Lease.URL), &until
	}
	if said := op.Said; said != nil {
		r.Chain = chainStatus(said.State, said.Partial)
	}
	return r
}

// chainStatus is what a chain says of a signer; nil: nothing.
func chainStatus(st *nonce.ChainState, partial bool) *wire.ChainStatus {
	if st == nil {
		return nil
	}
	r := &wire.ChainStatus{Head: st.Head, Mined: st.Mined, Claimed: st.Claimed, Window: st.Window, Stopped: st.Stopped, Partial: partial}
	if st.FinalKnown {
		r.Final = &st.Final
	}
	if is := st.Trouble; is != nil {
		switch is.Kind {
		case nonce.WatchGap:
			r.Gap = events.Gap(is)
		case nonce.WatchStuck:
			r.Stuck = events.Gap(is)
		case nonce.WatchDropped:
			r.Dropped = events.Gap(is)
		}
	}
	return r
}
