package endpoint

import (
	"context"
	"strings"

	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
)

// row reads what is known of one nonce.
func (s *sending) row(signer string, n int64) (row nonce.Row, there bool, err *wire.Error) {
	op := &nonce.Op{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{Signer: signer, From: n, Limit: 1}}
	if err := s.call.Do(op); err != nil {
		return nonce.Row{}, false, err
	}
	if rows := op.Page.Rows; len(rows) > 0 && rows[0].Nonce == n {
		return rows[0], true, nil
	}
	return nonce.Row{}, false, nil
}

// explain says to a wallet why its transaction was not recorded, and so given to nobody.
func (s *sending) explain(ctx context.Context, err *wire.Error) *wire.Error {
	data := err.Data
	switch {
	case err.Code == wire.CodeForbidden && data.Right == access.RightMarkAny.String():
		return s.about(wire.Rejectedf("not_holder",
			"nonce %d of %s is held by somebody else, nothing was sent; ask for the pending transaction count again, and sign with that nonce", s.tx.Nonce, s.signer))
	case err.Code == wire.CodeConflict:
		return s.about(s.conflict(ctx, err))
	case err.Code == wire.CodeUnavailable && data.Outcome == wire.OutcomeUnknown:
		out := wire.Errorf(wire.CodeUnavailable,
			"the gateway does not know whether it has recorded the transaction, and has given it to no node; send the same raw transaction again")
		out.Data.Outcome, out.Data.RetryAfterMs = wire.OutcomeUnknown, retryUnavailable
		return out
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
	n, sentence := s.tx.Nonce, clip(strings.TrimPrefix(err.Message, "conflict: "))
	next, failed := s.e.next(ctx, s.call, s.signer, s.tx.Account)
	row, there, unread := s.row(s.signer, n)
	taken := there && row.Status != nonce.Released
	switch {
	case failed != nil || unread != nil:
		return wire.Rejectedf("conflict", "%s; nothing was sent", sentence)
	case n < s.e.mined(ctx, s.signer, s.tx.Account), taken && row.Status == nonce.Consumed && row.TxHash == nonce.TxHash{}, !taken && n < next:
		return wire.Rejectedf("conflict", "nonce too low: the next nonce of %s is %d, and that of the transaction, %d, is used; nothing was sent", s.signer, next, n)
	case taken:
		return wire.Rejectedf("conflict", "%s; nothing was sent", sentence)
	case n > next:
		return wire.Rejectedf("conflict", "nonce too high: nobody holds nonce %d of %s, and the next one is %d; nothing was sent", n, s.signer, next)
	case s.e.cfg.Take && !s.call.May(access.RightAllocate, s.signer):
		return s.call.Forbidden(access.RightAllocate)
	}
	return wire.Rejectedf("conflict", "nobody holds nonce %d of %s, nothing was sent; allocate it first, with nonce_allocate", n, s.signer)
}
