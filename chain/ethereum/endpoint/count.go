package endpoint

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/internal/access"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/ws"
)

// count answers eth_getTransactionCount. The pending count of who may know it is the
// nonce that the gateway would hand out next; every other count is a node's.
func (e *Endpoint) count(ctx context.Context, c *ws.Call) ws.Answer {
	list, err := elements(c.Params, 0, 8)
	if err != nil {
		return ws.Answer{Err: err}
	}
	account, ours := pendingOf(list)
	if !ours {
		return e.pass(ctx, c)
	}
	signer := e.nodes.ID() + ":" + account
	if !mayKnow(c, signer) {
		return e.pass(ctx, c)
	}
	if err := c.Charge(signer); err != nil {
		return ws.Answer{Err: err}
	}
	n, err := e.next(ctx, c, signer, account)
	if err != nil {
		return ws.Answer{Err: err}
	}
	return result(quantity(uint64(n)))
}

// mayKnow reports whether who asks has something to do with the signer.
func mayKnow(c *ws.Call, signer string) bool {
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

// next is what the gateway would hand out now: the lowest nonce that was given back and
// that the chain has not used, or the one after all. It is read from the store, whoever
// owns the signer. One that nobody has used here yet begins at what the nodes say.
func (e *Endpoint) next(ctx context.Context, c *ws.Call, signer, account string) (int64, *wire.Error) {
	status := &nonce.Op{Kind: nonce.KindStatus, Signer: signer}
	if err := c.Do(status); err != nil {
		return 0, err
	}
	sum := &status.Summary
	if sum.Version == 0 {
		start, err := e.start(ctx, account)
		if err != nil {
			return 0, errOfNodes(err)
		}
		return max(sum.Next, start.Latest, start.Pending), nil
	}
	mined := e.mined(ctx, signer, account)
	if sum.Released > 0 {
		list := &nonce.Op{Kind: nonce.KindList, Signer: signer, List: nonce.ListQuery{
			Signer: signer, Status: nonce.Released, From: max(sum.Floor, mined), Limit: 1,
		}}
		if err := c.Do(list); err != nil {
			return 0, err
		}
		if rows := list.Page.Rows; len(rows) > 0 {
			return rows[0].Nonce, nil
		}
	}
	return max(sum.Next, mined), nil
}

// mined is how far the account is, as far as anybody knows: 0 while nobody does.
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
	ctx, cancel := context.WithTimeout(ctx, e.cfg.ReadTimeout)
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
