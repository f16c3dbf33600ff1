package ws

import (
	"errors"
	"time"
	"unicode/utf8"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

// How long a client had better wait before it asks again, where waiting helps.
// They are hints: an answer may come sooner or later.
const (
	RetryBusy        = 50 * time.Millisecond  // a queue drains in a few commits
	retryFenced      = 50 * time.Millisecond  // the signer only has to be acquired again
	retryUnavailable = 500 * time.Millisecond // a store that reconnects
	retryHoldLimit   = time.Second            // a client has to mark, or a hold to end
	retryDraining    = time.Second            // time to find another node
)

// maxErrorText bounds each text in an error that is not the gateway's own, such as a node
// id, so that every error has a bound.
const maxErrorText = 192

// errorOf turns an error of the service into one of the wire. It is the one
// table of them. signer and count are the request's: a conflict shows at most
// count holds, which are all when the parameters were those of the first time.
func errorOf(err error, signer string, count int) *wire.Error {
	if errors.Is(err, nonce.ErrPeerAway) {
		return errPeerAway(err)
	}
	if e, ok := errors.AsType[*nonce.NotOwnerError](err); ok {
		return errLike(wire.CodeNotOwner, e, wire.ErrorData{OwnerNode: clip(e.Node), OwnerURL: clip(e.URL)})
	}
	if e, ok := errors.AsType[*nonce.UnavailableError](err); ok {
		outcome := wire.OutcomeNone
		if e.Outcome == nonce.Unknown {
			outcome = wire.OutcomeUnknown
		}
		return errLike(wire.CodeUnavailable, e, wire.ErrorData{Outcome: outcome, RetryAfterMs: retryUnavailable.Milliseconds()})
	}
	if e, ok := errors.AsType[*nonce.ConflictError](err); ok {
		return errLike(wire.CodeConflict, e, conflictData(e, signer, count))
	}
	if e, ok := errors.AsType[*nonce.HoldLimitError](err); ok {
		data := wire.ErrorData{Signer: signer, Limit: int64(e.Limit), RetryAfterMs: retryHoldLimit.Milliseconds()}
		switch {
		case e.Window:
			data.Cause, data.Nonce = wire.CauseWindow, &e.Lowest
		case e.OfPrincipal:
			data.Signer = "" // other signers have it too
		}
		return errLike(wire.CodeHoldLimit, e, data)
	}
	if e, ok := errors.AsType[*nonce.InvalidError](err); ok {
		return invalidParams(clip(e.Field), clip(e.Rule))
	}
	switch {
	case errors.Is(err, nonce.ErrBusy):
		return Busy(wire.StageWorker)
	case errors.Is(err, nonce.ErrEventsBusy):
		return Busy(wire.StagePostDB)
	case errors.Is(err, nonce.ErrForwardBusy):
		return Busy(wire.StageForward)
	case errors.Is(err, nonce.ErrFenced):
		return errLike(wire.CodeFenced, nonce.ErrFenced, wire.ErrorData{RetryAfterMs: retryFenced.Milliseconds()})
	case errors.Is(err, nonce.ErrNotHolder):
		return with(wire.Errorf(wire.CodeForbidden, "%s, and the right %s on this signer is missing; nothing happened",
			nonce.ErrNotHolder, access.RightMarkAny), wire.ErrorData{Right: access.RightMarkAny.String()})
	case errors.Is(err, nonce.ErrNoChain):
		return invalidParams("nonce", nonce.ErrNoChain.Error())
	case errors.Is(err, nonce.ErrNewSigner):
		return errLike(wire.CodeNotFound, nonce.ErrNewSigner, wire.ErrorData{Signer: signer, Cause: wire.CauseNewSigner})
	case errors.Is(err, nonce.ErrNotFound):
		return errLike(wire.CodeNotFound, nonce.ErrNotFound, wire.ErrorData{Signer: signer})
	case errors.Is(err, nonce.ErrDraining), errors.Is(err, nonce.ErrGone):
		return errDraining()
	case errors.Is(err, nonce.ErrInternal):
		return ErrOurs()
	}
	return ErrUnknown("the gateway met an error it does not know")
}

// Reason is what clients are told of an error of the service as data.reason.
func Reason(err error) string { return errorOf(err, "", 0).Data.Reason }

// errLike says of an error what it says itself.
func errLike(code int, err error, data wire.ErrorData) *wire.Error {
	return with(wire.Errorf(code, "%s", clip(err.Error())), data)
}

// errPeerAway says that the node which owns the signer was not reached, in the
// words of the forwarder, which name it.
func errPeerAway(err error) *wire.Error {
	why := err.Error()
	if e, ok := errors.AsType[*nonce.UnavailableError](err); ok {
		why = e.Err.Error()
		if e.Outcome == nonce.Unknown {
			return ErrUnknown(clip(why))
		}
	}
	data := wire.ErrorData{Outcome: wire.OutcomeNone, RetryAfterMs: retryUnavailable.Milliseconds()}
	if e, ok := errors.AsType[*nonce.PeerAwayError](err); ok {
		data.OwnerNode, data.OwnerURL = clip(e.Node), clip(e.URL)
	}
	return with(wire.Errorf(wire.CodeUnavailable, "%s; nothing happened", clip(why)), data)
}

// ErrOurs says that a mistake of ours has ended what may have changed nothing.
func ErrOurs() *wire.Error {
	return wire.Errorf(wire.CodeInternal, "the gateway met an error of its own; nothing was committed")
}

// ErrUnknown says that the work may have happened.
func ErrUnknown(why string) *wire.Error {
	return with(wire.Errorf(wire.CodeUnavailable, "%s; ask again with the same request id", why),
		wire.ErrorData{Outcome: wire.OutcomeUnknown, RetryAfterMs: retryUnavailable.Milliseconds()})
}

// errNotEncoded stands in the place of an answer that could not be encoded.
func errNotEncoded() *wire.Error { return ErrUnknown("the answer could not be encoded") }

// conflictData is the present state a conflict is about.
func conflictData(e *nonce.ConflictError, signer string, count int) wire.ErrorData {
	data := wire.ErrorData{Signer: signer, Cause: e.Cause, TxHash: e.TxHash.String(), Attempt: e.Attempt}
	if e.Nonce >= 0 {
		data.Nonce, data.Status = &e.Nonce, wordOf(e.Status, e.Unknown)
	}
	if !e.HeldUntil.IsZero() {
		until := wire.Time(e.HeldUntil)
		data.HeldUntil = &until
	}
	for _, h := range e.Holds[:min(len(e.Holds), max(count, 1))] {
		data.Nonces = append(data.Nonces, wire.HoldState{Nonce: h.Nonce, Attempt: h.Attempt, Status: wordOf(h.Status, h.Unknown)})
	}
	return data
}

// Busy says that a bounded stage is full and that nothing happened.
func Busy(stage string) *wire.Error {
	return with(wire.Errorf(wire.CodeServerBusy, "stage %s is full, nothing happened; ask again", stage),
		wire.ErrorData{Stage: stage, RetryAfterMs: RetryBusy.Milliseconds()})
}

// errDraining says that this node takes nothing new.
func errDraining() *wire.Error {
	return with(wire.Errorf(wire.CodeDraining, "this node is going away; reconnect"),
		wire.ErrorData{RetryAfterMs: retryDraining.Milliseconds()})
}

// invalidParams names the field and the rule it breaks.
func invalidParams(field, rule string) *wire.Error {
	return with(wire.Errorf(wire.CodeInvalidParams, "%s: %s", field, rule), wire.ErrorData{Field: field})
}

// with sets the data of an error; its reason stays.
func with(e *wire.Error, data wire.ErrorData) *wire.Error {
	data.Reason = e.Data.Reason
	e.Data = &data
	return e
}

// clip bounds a text that is not the gateway's own by the bytes it has in JSON.
func clip(s string) string { return clipTo(s, maxErrorText) }

func clipTo(s string, maxBytes int) string {
	written := 0
	for i, r := range s {
		written += writtenRune(r)
		if written > maxBytes {
			return s[:i]
		}
	}
	return s
}

func writtenRune(r rune) int {
	switch {
	case r < ' ' || r == utf8.RuneError:
		return 6 // \u and four digits
	case r == '"' || r == '\\':
		return 2
	}
	return utf8.RuneLen(r)
}
