package ws

import (
	"crypto/sha256"
	"time"

	"noncegate/internal/guard"
	"noncegate/nonce"
	"noncegate/wire"
)

var _ guard.Caller = (*request)(nil)

// setGuard gives a call the lock that it is to take first: the one its client names,
// else one of what it asks for, where the gateway is told to.
func (c *conn) setGuard(r *request, g *wire.Guard) *wire.Error {
	cfg := &c.srv.cfg
	switch {
	case g != nil && cfg.Guard == nil:
		return invalidParams("guard", "needs a gateway with the duplicate-submit guard, which this one does not have")
	case g != nil:
		name, bad := nonce.ParseRequestID(g.Key) // the same rule
		if bad != nil {
			return invalidParams("guard.key", bad.Error())
		}
		r.lock = &guard.Lock{
			Key: guard.NamedKey(c.principal(), name), By: c.asker, Interval: time.Duration(g.IntervalMs) * time.Millisecond, Keep: g.Keep, Caller: r,
		}
	case cfg.GuardCalls > 0 && !c.dryRun:
		key := guard.CallKey(c.principal(), r.op.Kind.String(), paramsOf(&r.op.Request))
		r.lock = &guard.Lock{Key: key, By: c.asker, Interval: cfg.GuardCalls, Caller: r}
	}
	return nil
}

// paramsOf stands for what a call asks for, however it was written.
func paramsOf(r *nonce.Request) [sha256.Size]byte { return sha256.Sum256(nonce.AppendRequest(nil, r)) }

// proceed does a request when it is its turn. One whose lock was refused is answered
// so, unless it repeats a request id: that is answered as it always is.
func (r *request) proceed() {
	if r.lock == nil || r.lock.Verdict == guard.Granted {
		r.submit()
		return
	}
	refusal := errLock(r.lock)
	r.lock = nil
	if r.op.RequestID != "" {
		r.op.OnlyKnown, r.unless = true, refusal
		r.submit()
		return
	}
	r.fail(refusal)
	r.conclude()
}

// fail makes err the answer of a request that was admitted.
func (r *request) fail(err *wire.Error) {
	r.conn.srv.countBusy(err, 1)
	r.err = err
}

// errLock says why a lock was not taken.
func errLock(l *guard.Lock) *wire.Error {
	switch l.Verdict {
	case guard.Taken:
		left := (l.Left + time.Millisecond - 1).Milliseconds()
		return with(wire.Errorf(wire.CodeDuplicateSubmit, "the same submission is running or too recent; nothing happened"),
			wire.ErrorData{RetryAfterMs: max(left, 1)})
	case guard.Full:
		return Busy(wire.StageGuard)
	case guard.Gone:
		return errDraining()
	}
	return with(wire.Errorf(wire.CodeUnavailable, "the duplicate-submit guard cannot be asked; nothing happened"),
		wire.ErrorData{Outcome: wire.OutcomeNone, RetryAfterMs: retryUnavailable.Milliseconds()})
}

// keepsLock reports whether a call that ended so counts as made, so that a lock
// which is to be kept is. What was refused and only has to be sent again does not:
// the lock would refuse just that.
func keepsLock(err error) bool {
	if err == nil {
		return true
	}
	switch e := errorOf(err, "", 1); e.Code {
	case wire.CodeServerBusy, wire.CodeFenced, wire.CodeNotOwner, wire.CodeDraining:
		return false
	case wire.CodeUnavailable:
		return e.Data.Outcome == wire.OutcomeUnknown
	}
	return true
}

// Ended implements guard.Caller: the lock is free, or that is unknown, and the call is
// answered.
func (r *request) Ended(*guard.Lock) { r.conclude() }
