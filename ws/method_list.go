package ws

import (
	"cmp"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/nonce"
	"noncegate/wire"
)

// listMethod says what became of the nonces of a signer.
var listMethod = method{
	name: wire.MethodList, right: access.RightRead, level: audit.All,
	prepare: by((*conn).list),
	size:    mediumReplyBytes + smallReplyBytes, // one row of any width beside those of the usual one
	more:    func(r *nonce.Request) int64 { return int64(r.List.Limit-1) * rowBytes }, sizedBy: "limit",
	reply: func(c *conn, op *op) any { return c.listResult(op) },
}

func (c *conn) list(r *request, p wire.ListParams) *wire.Error {
	if err := c.setSigner(&r.op, p.Signer); err != nil {
		return err
	}
	r.op.Kind = nonce.KindList
	r.op.List = nonce.ListQuery{Signer: r.op.Signer, From: p.From, Limit: int(p.Limit)}
	r.op.List.Status, r.op.List.Unknown = statusOf(p.Status)
	r.op.WithHolders = c.session.SeesHolders(r.op.Signer)
	return nil
}

// statusOf reads a status that wire has checked; "" is 0, for all.
func statusOf(word string) (s nonce.Status, unknown bool) {
	switch word {
	case wire.StatusHeld:
		return nonce.Held, false
	case wire.StatusReleased:
		return nonce.Released, false
	case wire.StatusConsumed:
		return nonce.Consumed, false
	case wire.StatusUnknown:
		return nonce.Held, true
	}
	return 0, false
}

// wordOf is the word of a status.
func wordOf(s nonce.Status, unknown bool) string {
	if unknown {
		return wire.StatusUnknown
	}
	return s.String()
}

// maxPrincipal bounds the name of a principal.
const maxPrincipal = 128

// listResult is a page, of which as much is sent as there is room for: rows can be wider than what
// is reserved for each.
func (c *conn) listResult(op *op) *wire.ListResult {
	page, said := &op.Page, cmp.Or(op.Said, new(nonce.ChainSaid))
	r := &wire.ListResult{Allocations: make([]wire.Allocation, 0, len(page.Rows)), Partial: said.Partial}
	for i := range page.Rows {
		row := &page.Rows[i]
		a := allocationOf(row)
		if !op.WithHolders && row.Holder != c.asker {
			a.RequestID = "" // words of another principal, as is a reason that is none of ours
			if !nonce.IsOwnReason(a.Reason) {
				a.Reason = ""
			}
		}
		switch {
		case row.Holder == 0:
		case row.Holder == c.asker:
			a.Holder = c.principal()
		default:
			a.Holder = clipTo(op.Holders[row.Holder], 2*maxPrincipal)
		}
		a.Chain = clipTo(said.Word(row.Nonce, row.Attempt), maxWord)
		r.Allocations = append(r.Allocations, a)
	}
	if page.NextFrom >= 0 {
		r.NextFrom = &page.NextFrom
	}
	return r
}

func allocationOf(row *nonce.Row) wire.Allocation {
	a := wire.Allocation{
		Nonce: row.Nonce, Status: wordOf(row.Status, row.Unknown()), Attempt: row.Attempt,
		TxHash: row.TxHash.String(), Reason: row.Reason, RequestID: row.RequestID, Reissued: reissued(row.Earlier),
	}
	if n := row.Replaced.Len(); n > 0 {
		a.TxHashes = append(make([]string, 0, n+1), a.TxHash)
		for i := n - 1; i >= 0; i-- { // a row has the oldest first
			a.TxHashes = append(a.TxHashes, row.Replaced.At(i).String())
		}
	}
	if !row.UpdatedAt.IsZero() {
		at := wire.Time(row.UpdatedAt)
		a.UpdatedAt = &at
	}
	if row.Status == nonce.Held {
		until := wire.Time(row.HeldUntil)
		a.HeldUntil = &until
	}
	return a
}
