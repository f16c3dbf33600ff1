package ethereum

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"slices"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/chain/ethereum/rawtx"
	"noncegate/wire"
)

// Codes of answers that no node gave. They are those of JSON-RPC.
const (
	codeInvalid = -32602 // the transaction cannot be read
	codeUnknown = -32603 // what became of it is not known
)

// OtherChainError refuses a transaction that is signed for another chain.
type OtherChainError struct{ Want, Is uint64 }

// Error names both chains.
func (e *OtherChainError) Error() string {
	return fmt.Sprintf("chainId must be %d, is %d: the transaction is for another chain", e.Want, e.Is)
}

// Decode implements chain.Chain. The error names the field and the rule.
func (c *Client) Decode(raw []byte) (chain.Tx, error) {
	t, err := rawtx.Decode(raw)
	if err != nil {
		return chain.Tx{}, err
	}
	if t.HasChainID && t.ChainID != c.set.chainID {
		return chain.Tx{}, &OtherChainError{Want: c.set.chainID, Is: t.ChainID}
	}
	if t.Nonce >= math.MaxInt64 {
		return chain.Tx{}, fmt.Errorf("nonce must be below 2^63-1, is %d", t.Nonce)
	}
	return chain.Tx{
		Account: t.From.String(), Nonce: int64(t.Nonce), Hash: t.Hash, Payment: t.Payment, Cancels: t.Cancels(), Protected: t.HasChainID,
		Offer: chain.Offer{GasPrice: bigQuantity(t.GasPrice), MaxFeePerGas: bigQuantity(t.MaxFee),
			MaxPriorityFeePerGas: bigQuantity(t.Tip), MaxFeePerBlobGas: bigQuantity(t.BlobFee)},
	}, nil
}

func bigQuantity(n *big.Int) string {
	if n == nil {
		return ""
	}
	return "0x" + n.Text(16)
}

// reply is what one node said to a transaction.
type reply struct {
	grade
	n       *node
	refusal *RPCError // nil: accepted, or no answer
	err     error     // no answer
	wait    time.Duration
}

// Send implements chain.Chain. The first node that has the transaction settles the verdict; the others
// get it all the same, also if the caller stops waiting, and Run waits for that.
func (c *Client) Send(ctx context.Context, raw []byte) chain.Verdict {
	v := c.send(ctx, raw)
	c.m.answers.WithLabelValues(v.Class.String()).Inc()
	return v
}

func (c *Client) send(ctx context.Context, raw []byte) chain.Verdict {
	tx, err := c.Decode(raw)
	if err != nil {
		return chain.Verdict{Class: chain.Free, Code: codeInvalid, Message: err.Error()}
	}
	sending, done, err := c.begin(context.WithoutCancel(ctx))
	if err != nil {
		return unknown(err)
	}
	c.tried.begin(tx.Hash)
	have, over := make(chan struct{}), make(chan chain.Verdict, 1)
	go func() { // owned by Run, which waits for done
		defer done()
		over <- c.toAll(sending, tx, raw, have)
	}()
	select {
	case <-have:
		return chain.Verdict{Class: chain.InPool}
	case v := <-over:
		return v
	case <-ctx.Done():
		c.tried.mark(tx.Hash)
		return unknown(context.Cause(ctx))
	}
}

// toAll gives the transaction to all nodes and waits for what each says. It closes have
// when one has it. It ends the try that was begun.
func (c *Client) toAll(ctx context.Context, tx chain.Tx, raw []byte, have chan struct{}) chain.Verdict {
	defer c.tried.end(tx.Hash)
	nodes := c.nodes
	all, answered := make([]reply, len(nodes)), make(chan int, len(nodes))
	text := "0x" + hex.EncodeToString(raw)
	anyway := !slices.ContainsFunc(nodes, func(n *node) bool { return !n.paused(useSends) }) // all want fewer, and are asked all the same
	for i, n := range nodes {
		c.calls.Go(func() {
			all[i] = n.send(ctx, tx, text, anyway)
			n.doubtChain(ctx, &all[i], tx.Protected)
			answered <- i
		})
	}
	told := false
	for range nodes {
		a := all[<-answered]
		if a.class == chain.InPool || a.class == chain.Unknown {
			c.tried.mark(tx.Hash)
		}
		if a.class == chain.InPool && !told {
			told = true
			close(have)
		}
	}
	return combine(all, c.tried.before(tx.Hash), c.tried.underWay(tx.Hash))
}

// send gives the transaction to the node. anyway: also if it wants to be left alone.
func (n *node) send(ctx context.Context, tx chain.Tx, raw string, anyway bool) reply {
	a := reply{n: n}
	var session uint64
	if !anyway && n.paused(useSends) {
		return a.notReached(errBackingOff)
	}
	if session, a.err = n.session(ctx, false); a.err != nil {
		return a.notReached(a.err)
	}
	call := jsonrpc.NewCall(methodSend, raw)
	n.ask(ctx, session, []*jsonrpc.Call{call}, asking{use: useSends, limit: n.c.set.small})
	switch {
	case call.Fail != nil:
		a.err = call.Fail
	case call.Err != nil:
		a.refusal = call.Err
		if a.grade = n.c.table.grade(call.Err); !a.known {
			n.log.Warn("a node's answer to a transaction is not in the table; its outcome is unknown",
				"code", call.Err.Code, "message", call.Err.Message)
		}
	default:
		a.class, a.err = readSent(call.Result, tx)
	}
	if a.err == nil {
		return a
	}
	n.note(a.err)
	if standsBefore(a.err) {
		return a.notReached(a.err)
	}
	return a
}

// doubtChain asks the node for its chain after an answer from which something follows and which a node
// of another chain may give: then it has not got the transaction.
func (n *node) doubtChain(ctx context.Context, a *reply, protected bool) {
	if a.class == chain.Unknown || a.class == chain.NotReached || a.class == chain.InPool && protected {
		return
	}
	if err := n.verify(ctx, n.link.Session()); errors.Is(err, errOtherChain) {
		n.failed(err)
		*a = a.notReached(err)
	}
}

// notReached says that the node did not get the transaction, and why.
func (r reply) notReached(err error) reply {
	r.err, r.class = err, chain.NotReached
	if status, ok := errors.AsType[*jsonrpc.StatusError](err); ok {
		r.later, r.wait = status.Code == http.StatusTooManyRequests, status.RetryAfter
	}
	r.later = r.later || errors.Is(err, errBackingOff)
	return r
}

// standsBefore reports whether an error comes from before the node: the request did not leave, or
// a proxy refused the key, the rate or the request as such. A status of 500 and above proves
// nothing, since the proxy may have passed the request on; neither do those of 400 and above that
// speak of time or order.
func standsBefore(err error) bool {
	if errors.Is(err, jsonrpc.ErrNotSent) || errors.Is(err, errBackingOff) {
		return true
	}
	status, ok := errors.AsType[*jsonrpc.StatusError](err)
	if !ok {
		return false
	}
	switch status.Code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, statusClientGone:
		return false
	}
	return status.Code >= 300 && status.Code < 500
}

// statusClientGone is what nginx logs, and some proxies say, when they gave up a request that they
// had passed on.
const statusClientGone = 499

// readSent reads the result of a transaction that was accepted: its hash.
func readSent(result []byte, tx chain.Tx) (chain.Class, error) {
	var text string
	if err := wire.Unmarshal(result, &text); err != nil {
		return chain.Unknown, errors.New(methodSend + ": result must be a hash")
	}
	hash, err := parseHash(text)
	if err != nil {
		return chain.Unknown, fmt.Errorf("%s: result %w", methodSend, err)
	}
	if hash != tx.Hash {
		return chain.Unknown, fmt.Errorf("%s: result is %v, the transaction's hash is %v", methodSend, hash, tx.Hash)
	}
	return chain.InPool, nil
}

func unknown(err error) chain.Verdict {
	return chain.Verdict{Class: chain.Unknown, Code: codeUnknown,
		Message: "nobody knows what became of the transaction: " + err.Error()}
}

// combine makes one verdict of what all nodes said, as docs/ethereum.md has it. before says that an earlier try
// may have left the transaction somewhere, underWay that there is another one now.
func combine(all []reply, before, underWay bool) chain.Verdict {
	by, votes := map[chain.Class]*reply{}, map[chain.Class]int{}
	for i := range all {
		a := &all[i]
		if by[a.class] == nil {
			by[a.class] = a
		}
		votes[a.class]++
	}
	for _, class := range []chain.Class{chain.InPool, chain.Used, chain.Unknown} {
		if by[class] != nil {
			v := by[class].verdict(class)
			if class == chain.Used && votes[class] < 2 {
				v.Disputed, v.Unanswered, v.Before = by[chain.Unknown] != nil, by[chain.NotReached] != nil, before || underWay
			}
			return v
		}
	}
	v := chain.Verdict{}
	for _, class := range []chain.Class{chain.Taken, chain.Refused, chain.Free, chain.NotReached} {
		if by[class] != nil {
			v = by[class].verdict(class)
			break
		}
	}
	v.Unanswered = by[chain.NotReached] != nil
	v.Before = before
	if underWay || before && v.Unanswered {
		v.Class = chain.Unknown
	}
	for i := range all {
		v.Missing = v.Missing || all[i].missing
		v.Later = v.Later || all[i].later
		v.RetryAfter = max(v.RetryAfter, all[i].wait)
	}
	return v
}

// verdict returns what the node said as an answer of a class.
func (r *reply) verdict(class chain.Class) chain.Verdict {
	switch {
	case class == chain.InPool:
		return chain.Verdict{Class: class}
	case class == chain.NotReached:
		said := r.err
		if said == nil {
			said = r.refusal
		}
		return chain.Verdict{Class: class, Code: codeUnknown, Message: fmt.Sprintf("%s: %v", r.n.name, said)}
	case r.refusal == nil:
		return unknown(fmt.Errorf("%s: %w", r.n.name, r.err))
	}
	return chain.Verdict{Class: class, Code: r.refusal.Code, Message: r.refusal.Message, Data: r.refusal.Data}
}
