package endpoint

import (
	"context"
	"strings"

	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// rowOf reads what is known of one nonce.
func rowOf(c *relay.Call, signer string, n int64) (row nonce.Row, there bool, err *wire.Error) {
	r, err := c.Do(listOne(signer, n))
	row, there = rowIn(&r.Page, n)
	return row, there, err
}

func listOne(signer string, n int64) *nonce.Request {
	return &nonce.Request{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{Signer: signer, From: n, Limit: 1}}
}

func rowIn(page *nonce.ListPage, n int64) (row nonce.Row, there bool) {
	if len(page.Rows) == 0 || page.Rows[0].Nonce != n {
		return row, false
	}
	return page.Rows[0], true
}

// refused is the answer of a transaction that was not recorded, and so given to no node.
func (s *sending) refused(ctx context.Context, err *wire.Error) relay.Answer {
	decided := err.Code == wire.CodeConflict || err.Code == wire.CodeForbidden
	if a, tried := s.triedBefore(); decided && tried {
		return a
	}
	out := s.explain(ctx, err)
	if out.Code == wire.CodeHoldLimit && out.Data.Cause == wire.CauseWindow {
		s.line.toldWindow(s.tx.Nonce)
	}
	return relay.Answer{Err: s.failed(out)}
}

// triedBefore is the answer of a transaction that is refused now and may be on its way since an
// earlier try: a client that is told to sign another one would pay twice. tried: it was.
func (s *sending) triedBefore() (a relay.Answer, tried bool) {
	row, there, err := rowOf(s.call, s.signer, s.tx.Nonce)
	recorded := err == nil && there && (row.TxHash == s.tx.Hash || row.Replaced.Contains(s.tx.Hash))
	if s.was != nonce.SentOpen && s.was != nonce.SentTaken && !recorded {
		return relay.Answer{}, false
	}
	switch s.whoUsed() {
	case usedByThis:
		return s.taken(), true
	case usedByOther:
		return relay.Answer{}, false // it can never be executed
	}
	if s.was == nonce.SentTaken {
		return s.taken(), true
	}
	return relay.Answer{Err: s.failed(s.about(errTriedBefore(s.tx.Hash.String())))}, true
}

// errTriedBefore refuses to offer a transaction again that may be on its way.
func errTriedBefore(hash string) *wire.Error {
	return unavailable(wire.OutcomeUnknown, 0, "the same transaction was sent before and may be on its way, and its nonce is not yours "+
		"any more, so it is not offered again: ask what became of it (eth_getTransactionReceipt of %s), "+
		"and sign nothing else for this payment before you know", hash)
}

// explain says to a wallet why its transaction was not recorded, and so given to no node.
func (s *sending) explain(ctx context.Context, err *wire.Error) *wire.Error {
	data := err.Data
	switch {
	case err.Code == wire.CodeForbidden && data.Right == access.RightMarkAny.String():
		return s.about(wire.Rejectedf("not_holder",
			"nonce %d of %s is held by somebody else, nothing was sent; ask for the pending transaction count again, and sign with that nonce",
			s.tx.Nonce, s.signer))
	case err.Code == wire.CodeConflict && data.Cause == wire.CauseReplacement:
		return s.about(wire.Rejectedf("conflict",
			"another transaction is recorded for nonce %d of %s, nothing was sent: one replaces it only if recipient, value and data are "+
				"the same, or if it sends nothing to its own account; ask for the pending transaction count again, and sign with that nonce, "+
				"or say that you mean it with ?replace=any in the URL or the header Noncegate-Replace: any", s.tx.Nonce, s.signer))
	case err.Code == wire.CodeConflict:
		return s.conflict(ctx, err)
	case err.Code == wire.CodeUnavailable && data.Outcome == wire.OutcomeUnknown:
		return unavailable(wire.OutcomeUnknown, retryUnavailable,
			"the gateway does not know whether it has recorded the transaction, and has given it to no node; send the same raw transaction again")
	}
	out := *err
	out.Message += "; nothing was sent"
	return &out
}

// about puts the nonce into an error's data.
func (s *sending) about(err *wire.Error) *wire.Error {
	err.Data.Signer, err.Data.Nonce = s.signer, &s.tx.Nonce
	return err
}

// conflict explains why the state of a nonce does not allow a transaction. Wallets know
// nonces that are too low or too high by these words.
func (s *sending) conflict(ctx context.Context, err *wire.Error) *wire.Error {
	out := s.whyNot(ctx, err)
	if out.Code == wire.CodeHoldLimit {
		return out // about the lowest nonce
	}
	return s.about(out)
}

func (s *sending) whyNot(ctx context.Context, err *wire.Error) *wire.Error {
	n, sentence := s.tx.Nonce, clip(strings.TrimPrefix(err.Message, "conflict: "))
	next, failed := s.e.free(ctx, s.call, s.signer, s.tx.Account)
	row, there, unread := rowOf(s.call, s.signer, n)
	taken := there && row.Status != nonce.Released
	switch {
	case failed != nil || unread != nil:
		return wire.Rejectedf("conflict", "%s; nothing was sent", sentence)
	case taken && usedWithoutHash(&row) && n >= s.e.mined(ctx, s.signer, s.tx.Account):
		was, by := "was marked as used without a hash, and as far as is known the chain has not used it", "it was marked for this transaction"
		if row.Reason == nonce.ReasonMined {
			was, by = "was used by a block that was replaced, by which transaction is not known, and is not used now", "this transaction used it"
		}
		return wire.Rejectedf("conflict", "nonce %d of %s %s; nothing was sent. If %s, name the hash "+
			"(nonce_markUsed with txHash %s) and send it again; sign nothing else for this payment before you know", n, s.signer, was, by, s.tx.Hash)
	case n < s.e.mined(ctx, s.signer, s.tx.Account), !taken && n < next,
		taken && row.Status == nonce.Consumed && row.TxHash == nonce.TxHash{}:
		return wire.Rejectedf("conflict", "nonce too low: the next nonce of %s is %d, and that of the transaction, %d, is used; nothing was sent",
			s.signer, next, n)
	case taken:
		return wire.Rejectedf("conflict", "%s; nothing was sent", sentence)
	case n > next && (s.beyondWindow() || s.line.awaitsWindow(next)): // those before it come again
		return s.errWindow()
	case n > next:
		return wire.Rejectedf("conflict", "nonce too high: nobody holds nonce %d of %s, and the next one is %d; nothing was sent",
			n, s.signer, next)
	case s.e.cfg.Take && !s.call.May(access.RightAllocate, s.signer):
		return s.call.Forbidden(access.RightAllocate)
	}
	return wire.Rejectedf("conflict", "nobody holds nonce %d of %s, nothing was sent; allocate it first, with nonce_allocate", n, s.signer)
}

// usedWithoutHash reports whether a client or the chain, and not a floor, said that the nonce is
// used, and not by which transaction.
func usedWithoutHash(row *nonce.Row) bool {
	return row.Status == nonce.Consumed && row.TxHash == nonce.TxHash{} && row.Reason != nonce.ReasonBelowFloor
}

// beyondWindow reports whether the nonce is further ahead of the chain than new ones may be.
func (s *sending) beyondWindow() bool {
	st, ok := s.e.chains.State(s.signer)
	return ok && st.Window > 0 && s.tx.Nonce >= st.Mined+st.Window
}

// errWindow refuses a nonce beyond the window, as if those before it had been recorded.
func (s *sending) errWindow() *wire.Error {
	st, _ := s.e.chains.State(s.signer)
	limit := &nonce.HoldLimitError{Limit: int(st.Window), Window: true, Lowest: st.Mined}
	err := wire.Errorf(wire.CodeHoldLimit, "%s; nothing was sent, send it again after those before it", limit.Error())
	err.Data.Cause, err.Data.Limit, err.Data.RetryAfterMs = wire.CauseWindow, st.Window, laterFor.Milliseconds()
	err.Data.Signer, err.Data.Nonce = s.signer, &limit.Lowest
	return err
}
