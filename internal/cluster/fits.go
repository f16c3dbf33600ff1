package cluster

import (
	"noncegate/nonce"
	"noncegate/wire"
)

// fits is why a result cannot be that of a request; nil: it can. One that is another's, or half of
// one, must never reach a client.
func fits(q *nonce.Request, a *nonce.Result) error {
	ok, held := false, !a.HeldUntil.IsZero() && a.HoldLeft >= 0
	switch {
	case a.Err != nil:
		ok = a.Err != nonce.ErrGone && a.Err != nonce.ErrPeerAway // these are of what is sent nowhere
	case q.Kind == nonce.KindAllocate:
		ok = held && handsOut(q.Count, a)
	case q.Kind == nonce.KindRepair:
		ok = held && handsOut(1, a) && (q.Nonce < 0 || a.Nonces[0] == q.Nonce)
	case q.Kind == nonce.KindExtend:
		ok = held && a.Attempt == q.Attempt
	case q.Kind == nonce.KindMarkRecyclable:
		ok = marks(q, a) && (a.Status == nonce.Released || a.Status == nonce.Consumed || q.Keep && a.Status == nonce.Held)
	case q.Kind == nonce.KindMarkUsed:
		ok = marks(q, a) && a.Status == nonce.Consumed
	case q.Kind == nonce.KindMarkSigned:
		ok = marks(q, a) && (a.Status == nonce.Consumed || a.Status == nonce.Held && held)
	case q.Kind == nonce.KindSetFloor:
		ok = a.Floor >= q.Floor && a.Next >= 0
	default: // a read
		ok = a.Said != nil && len(a.Said.Words) <= wire.MaxListLimit
	}
	if ok {
		return nil
	}
	return nonsense("no result of a %v: nonces %d with attempts %d, or attempt %d as %v until %v, floor %d, error %v",
		q.Kind, a.Nonces, a.Attempts, a.Attempt, a.Status, a.HeldUntil, a.Floor, a.Err)
}

// handsOut is about the nonces of an allocate or repair.
func handsOut(count int, a *nonce.Result) bool {
	if len(a.Nonces) != count || len(a.Attempts) != count || len(a.Earlier) != 0 && len(a.Earlier) != count {
		return false
	}
	before := int64(-1)
	for i, n := range a.Nonces {
		if n <= before || a.Attempts[i] < 1 || len(a.Earlier) > 0 && !follows(a.Earlier[i], a.Attempts[i]) {
			return false
		}
		before = n
	}
	return true
}

func follows(was *nonce.Earlier, attempt int64) bool {
	return was == nil || was.Attempt >= 1 && was.Attempt < attempt && (was.Reason == nonce.ReasonUnseen || was.Reason == nonce.ReasonRepair)
}

// marks is about the hold that a mark found.
func marks(q *nonce.Request, a *nonce.Result) bool {
	return a.Attempt >= 1 && (q.Attempt == 0 || a.Attempt == q.Attempt) &&
		(q.TxHash == nonce.TxHash{} || q.Kind == nonce.KindMarkRecyclable || a.Hashes.Contains(q.TxHash)) &&
		(len(a.Earlier) == 0 || len(a.Earlier) == 1 && follows(a.Earlier[0], a.Attempt))
}
