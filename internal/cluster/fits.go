package cluster

import (
	"strings"

	"noncegate/nonce"
	"noncegate/wire"
)

// fits is why a result cannot be that of a request; nil: it can. One that is another's, or half of
// one, must never reach a client.
func fits(q *nonce.Request, a *nonce.Result) error {
	if a.Err != nil {
		return errorFits(a.Err)
	}
	switch q.Kind {
	case nonce.KindAllocate:
		return handsOut(q.Count, a)
	case nonce.KindRepair:
		switch b := a.Before; {
		case handsOut(1, a) != nil:
			return handsOut(1, a)
		case q.Nonce >= 0 && a.Nonces[0] != q.Nonce:
			return nonsense("a repair of nonce %d, which was not asked for", a.Nonces[0])
		case b != nil && (b.Attempt < 0 || b.Attempt >= a.Attempts[0]):
			return nonsense("a repair with attempt %d after %d", a.Attempts[0], b.Attempt)
		case a.Offer != nil && !pays(a.Offer):
			return nonsense("a transaction that pays %.300v", *a.Offer)
		}
		return nil
	case nonce.KindExtend:
		if a.Attempt != q.Attempt || !holds(a) {
			return nonsense("a hold with attempt %d until %v, which was not to be extended", a.Attempt, a.HeldUntil)
		}
		return nil
	case nonce.KindMarkUsed, nonce.KindMarkRecyclable, nonce.KindMarkSigned:
		return marks(q, a)
	case nonce.KindSetFloor:
		if a.Floor < q.Floor || a.Next < 0 {
			return nonsense("a floor of %d", a.Floor)
		}
		return nil
	}
	if a.Said == nil || len(a.Said.Words) > wire.MaxListLimit {
		return nonsense("a read without what it was asked for")
	}
	return nil
}

func errorFits(err error) error {
	if err == nonce.ErrGone || err == nonce.ErrPeerAway { // of what is sent nowhere
		return nonsense("a refusal as of a node that forwards: %w", err)
	}
	return nil
}

// handsOut is about the nonces of an allocate or repair.
func handsOut(count int, a *nonce.Result) error {
	if len(a.Nonces) != count || len(a.Attempts) != count || !holds(a) || len(a.Earlier) != 0 && len(a.Earlier) != count {
		return nonsense("%d nonces with %d attempts until %v, where %d were asked for", len(a.Nonces), len(a.Attempts), a.HeldUntil, count)
	}
	before := int64(-1)
	for i, n := range a.Nonces {
		if n <= before || a.Attempts[i] < 1 || len(a.Earlier) > 0 && !follows(a.Earlier[i], a.Attempts[i]) {
			return nonsense("nonce %d with attempt %d after nonce %d", n, a.Attempts[i], before)
		}
		before = n
	}
	return nil
}

func holds(a *nonce.Result) bool { return !a.HeldUntil.IsZero() && a.HoldLeft >= 0 }

func follows(was *nonce.Earlier, attempt int64) bool {
	return was == nil || was.Attempt >= 1 && was.Attempt < attempt && (was.Reason == nonce.ReasonUnseen || was.Reason == nonce.ReasonRepair)
}

func marks(q *nonce.Request, a *nonce.Result) error {
	held := a.Status == nonce.Held
	switch {
	case a.Attempt < 1 || q.Attempt != 0 && a.Attempt != q.Attempt || !endsAs(q, a.Status):
		return nonsense("a mark of attempt %d as %v, which was not asked for", a.Attempt, a.Status)
	case a.Replaced != nonce.TxHash{} && !a.Hashes.Contains(a.Replaced):
		return nonsense("a mark that replaced %v", a.Replaced)
	case q.TxHash != nonce.TxHash{} && q.Kind != nonce.KindMarkRecyclable && !a.Hashes.Contains(q.TxHash):
		return nonsense("a mark with other transactions than the one that was asked for")
	case q.Kind == nonce.KindMarkSigned && held && !holds(a):
		return nonsense("a hash recorded for a hold without a deadline")
	case len(a.Earlier) > 1 || len(a.Earlier) == 1 && !follows(a.Earlier[0], a.Attempt):
		return nonsense("a mark of attempt %d after %v", a.Attempt, a.Earlier)
	}
	return nil
}

// endsAs reports whether a mark can end in a state.
func endsAs(q *nonce.Request, s nonce.Status) bool {
	switch q.Kind {
	case nonce.KindMarkUsed:
		return s == nonce.Consumed
	case nonce.KindMarkSigned:
		return s == nonce.Held || s == nonce.Consumed
	}
	return s == nonce.Released || s == nonce.Consumed || q.Keep && s == nonce.Held
}

// pays reports whether an offer has numbers of at most 256 bits, as Ethereum nodes write them.
func pays(o *nonce.Offer) bool {
	for _, s := range []string{o.GasPrice, o.MaxFeePerGas, o.MaxPriorityFeePerGas, o.MaxFeePerBlobGas} {
		digits, ok := strings.CutPrefix(s, "0x")
		if s != "" && (!ok || digits == "" || len(digits) > 64 || strings.Trim(digits, "0123456789abcdefABCDEF") != "") {
			return false
		}
	}
	return true
}
