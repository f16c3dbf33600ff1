package cluster

import (
	"strings"
	"time"

	"noncegate/nonce"
	"noncegate/wire"
)

// maxErrorBytes bounds an error of another node that is passed on as it is. It is
// below the slot that a reply has in the client's queue.
const maxErrorBytes = 900

// refused reads an error. It is the counterpart of the table of errors in ws.
func refused(q asked, e *wire.Error) (answer, error) {
	if e.Data == nil {
		return answer{}, nonsense("an error without a reason: %.200q", e.Message)
	}
	switch e.Code {
	case wire.CodeNotOwner:
		return bounced(&nonce.NotOwnerError{Node: e.Data.OwnerNode, URL: e.Data.OwnerURL})
	case wire.CodeFenced:
		return bounced(nonce.ErrFenced)
	case wire.CodeDraining:
		return bounced(nonce.ErrDraining)
	case wire.CodeForbidden: // a node is forbidden nothing but this
		return answer{err: nonce.ErrNotHolder}, nil
	case wire.CodeNotFound:
		if e.Data.Cause == wire.CauseNewSigner {
			return answer{err: nonce.ErrNewSigner}, nil
		}
		return answer{err: nonce.ErrNotFound}, nil
	case wire.CodeHoldLimit:
		return holdLimit(e.Data)
	case wire.CodeUnavailable:
		return answer{err: unavailable(e)}, nil
	case wire.CodeConflict:
		return conflict(q, e)
	}
	written, err := wire.Marshal(e)
	if err != nil || len(written) > maxErrorBytes {
		return answer{}, nonsense("an error of %d bytes", len(written))
	}
	return answer{err: e}, nil
}

func bounced(err error) (answer, error) { return answer{bounced: true, err: err}, nil }

func holdLimit(d *wire.ErrorData) (answer, error) {
	e := &nonce.HoldLimitError{Limit: int(d.Limit), OfPrincipal: d.Signer == ""}
	if d.Cause == wire.CauseWindow {
		if d.Nonce == nil || *d.Nonce < 0 {
			return answer{}, nonsense("a window that begins nowhere")
		}
		e.Window, e.Lowest = true, *d.Nonce
	}
	return answer{err: e}, nil
}

// unavailable reads the error of that name. What does not say that nothing happened
// is unknown.
func unavailable(e *wire.Error) error {
	outcome := nonce.Unknown
	if e.Data.Outcome == wire.OutcomeNone {
		outcome = nonce.NotSent
	}
	return &nonce.UnavailableError{Outcome: outcome, Err: e}
}

func conflict(q asked, e *wire.Error) (answer, error) {
	d := e.Data
	c := &nonce.ConflictError{
		Sentence: strings.TrimPrefix(e.Message, d.Reason+": "),
		Nonce:    -1, Attempt: d.Attempt, Cause: d.Cause,
	}
	c.Status, c.Unknown = statusOf(d.Status)
	if d.Nonce != nil {
		c.Nonce = *d.Nonce
	}
	if d.HeldUntil != nil {
		c.HeldUntil = time.Time(*d.HeldUntil)
	}
	if d.TxHash != "" {
		hash, err := nonce.ParseTxHash(d.TxHash)
		if err != nil {
			return answer{}, nonsense("a conflict with the hash %.70q", d.TxHash)
		}
		c.TxHash = hash
	}
	if len(d.Nonces) > max(q.count, 1) || d.Nonce != nil && c.Status == 0 {
		return answer{}, nonsense("a conflict that does not fit the request")
	}
	for _, h := range d.Nonces {
		state := nonce.HoldState{Nonce: h.Nonce, Attempt: h.Attempt}
		state.Status, state.Unknown = statusOf(h.Status)
		if state.Status == 0 {
			return answer{}, nonsense("a hold in the state %.40q", h.Status)
		}
		c.Holds = append(c.Holds, state)
	}
	return answer{err: c}, nil
}
