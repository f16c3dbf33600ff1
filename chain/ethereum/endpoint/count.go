package endpoint

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// count answers eth_getTransactionCount. A client that has a right on the signer is told as
// the pending count what the gateway would hand out next; every other count is a node's.
//
// It is an ordered call, so that a count right behind a transaction knows of it; nothing waits
// for a count.
func (e *Endpoint) count(ctx context.Context, c *relay.Call) relay.Answer {
	c.Pass()
	list, err := elements(c.Params, 0, 8)
	if err != nil {
		return relay.Answer{Err: err}
	}
	account, ours := pendingOf(list)
	if !ours {
		return e.pass(ctx, c)
	}
	signer := e.nodes.ID() + ":" + account
	if !mayKnow(c, signer) {
		return e.pass(ctx, c)
	}
	if err := c.Charge(signer, true); err != nil {
		return relay.Answer{Err: err}
	}
	n, err := e.next(ctx, c, signer, account)
	if err != nil {
		return relay.Answer{Err: err}
	}
	return result(quantity(uint64(n)))
}

// mayKnow reports whether the client has a right on the signer.
func mayKnow(c *relay.Call, signer string) bool {
	for _, right := range []access.Right{access.RightAllocate, access.RightMark, access.RightMarkAny, access.RightRead} {
		if c.May(right, signer) {
			return true
		}
	}
	return false
}

// pendingOf is the account that a pending count is asked for of.
func pendingOf(list []json.RawMessage) (account string, ok bool) {
	if len(list) != 2 {
		return "", false
	}
	spelled, isText := text(list[0])
	tag, isTag := text(list[1])
	if !isText || !isTag || tag != "pending" {
		return "", false
	}
	a, err := address.Parse(strings.ToLower(spelled)) // nodes do not look at the checksum either
	return a.String(), err == nil
}

// next is what a wallet is to sign with now: what the gateway would hand out, or a lower nonce
// that the wallet has and whose transaction the nodes refused, so that no other fills it.
func (e *Endpoint) next(ctx context.Context, c *relay.Call, signer, account string) (int64, *wire.Error) {
	free, err := e.free(ctx, c, signer, account)
	if err != nil {
		return 0, err
	}
	sent, failed := e.sentOf(ctx, signer, e.mined(ctx, signer, account))
	if failed != nil {
		return 0, errStore()
	}
	for _, n := range refusedBelow(sent, free) {
		row, there, err := rowOf(c, signer, n)
		if err != nil {
			return 0, err
		}
		if there && isHole(c, sent, &row) {
			return n, nil
		}
	}
	return free, nil
}

// refusedBelow are the nonces below a number of which all transactions were refused, ascending.
func refusedBelow(sent []nonce.Sent, below int64) (list []int64) {
	for i := 0; i < len(sent) && sent[i].Nonce < below; {
		n, refused := sent[i].Nonce, true
		for ; i < len(sent) && sent[i].Nonce == n; i++ {
			refused = refused && sent[i].State == nonce.SentRefused
		}
		if refused {
			list = append(list, n)
		}
	}
	return list
}

// isHole reports whether the caller has the nonce of a row, and nodes refused what is recorded
// for it.
func isHole(c *relay.Call, sent []nonce.Sent, row *nonce.Row) bool {
	caller := nonce.Request{Principal: c.Principal()}
	if row.Status == nonce.Released || !caller.MayMark(*row) {
		return false
	}
	if row.TxHash == (nonce.TxHash{}) {
		return row.Status == nonce.Held && row.Reason == nonce.ReasonRefused
	}
	t := find(sent, row.Nonce, row.TxHash)
	return t != nil && t.State == nonce.SentRefused
}

// free is what the gateway would hand out now: the lowest nonce that was given back and
// that the chain has not used, or the one after all. It is read from the store, whichever
// node owns the signer. One that was not used here yet begins at what the nodes say.
func (e *Endpoint) free(ctx context.Context, c *relay.Call, signer, account string) (int64, *wire.Error) {
	status, err := c.Do(&nonce.Request{Kind: nonce.KindStatus, Signer: signer})
	if err != nil {
		return 0, err
	}
	sum := &status.Summary
	if sum.Version == 0 {
		start, err := e.start(ctx, account)
		if err != nil {
			return 0, errOfNodes(err)
		}
		if start.Doubt != nil {
			return 0, unavailable(wire.OutcomeNone, retryUnavailable, "%v; nothing happened", start.Doubt)
		}
		return max(sum.Next, start.Latest, start.Pending), nil
	}
	mined := e.mined(ctx, signer, account)
	if sum.Released > 0 {
		list, err := c.Do(&nonce.Request{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{
			Signer: signer, Status: nonce.Released, From: max(sum.Floor, mined), Limit: 1,
		}})
		if err != nil {
			return 0, err
		}
		if rows := list.Page.Rows; len(rows) > 0 {
			return rows[0].Nonce, nil
		}
	}
	return max(sum.Next, mined), nil
}

// mined is how far the account is; 0 while that is not known.
func (e *Endpoint) mined(ctx context.Context, signer, account string) int64 {
	if st, ok := e.chains.State(signer); ok {
		return st.Mined
	}
	start, err := e.start(ctx, account)
	if err != nil {
		return 0
	}
	return start.Latest
}

func (e *Endpoint) start(ctx context.Context, account string) (chain.Start, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var starts []chain.Start
	err := e.patiently(ctx, func() (err error) {
		starts, err = e.nodes.Start(ctx, []string{account})
		return err
	})
	if err != nil {
		return chain.Start{}, err
	}
	return starts[0], nil
}

// number is a param that is a number, in decimal or as a quantity.
func number(param json.RawMessage) (uint64, bool) {
	if len(param) == 0 {
		return 0, false
	}
	spelled, isText := text(param)
	if !isText {
		n, err := strconv.ParseUint(string(param), 10, 63)
		return n, err == nil
	}
	digits, ok := strings.CutPrefix(spelled, "0x")
	n, err := strconv.ParseUint(digits, 16, 63)
	return n, ok && err == nil
}

// accountOf is the account of a signer of the chain.
func accountOf(signer string) string { return signer[strings.LastIndexByte(signer, ':')+1:] }
