package ethereum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
	"noncegate/wire"
)

// Bounds of one request, because each answer may be large.
const (
	transactionsPerRequest = 32
	poolsPerRequest        = 16 // accounts
)

// Lookup implements chain.Chain. It asks every node that is of the chain, also those that
// are behind.
func (c *Client) Lookup(ctx context.Context, asks []chain.Ask) ([]chain.Sighting, error) {
	accounts := make([]string, len(asks))
	for i, a := range asks {
		accounts[i] = a.Account
	}
	ctx, done, err := c.begin(ctx, accounts...)
	if err != nil {
		return nil, err
	}
	defer done()
	replies, errs := make([][]glimpse, len(c.nodes)), make([]error, len(c.nodes))
	inParallel(c.nodes, func(i int, n *node) { replies[i], errs[i] = n.look(ctx, asks) })
	if !slices.Contains(errs, nil) {
		return nil, unreachable(c.nodes, errs)
	}
	found := make([]chain.Sighting, len(asks))
	for i := range asks {
		s, shown := &found[i], make([]glimpse, 0, len(c.nodes))
		for _, of := range replies {
			switch {
			case of == nil || of[i].err != nil:
				s.Failed = true
				if of == nil {
					continue
				}
			default:
				s.Nodes++
				s.Failed = s.Failed || of[i].maybe
			}
			shown = append(shown, of[i])
		}
		sum(s, shown, asks[i], min(2, len(c.nodes)))
	}
	return found, nil
}

// glimpse is what one node has seen of one nonce.
type glimpse struct {
	seen  chain.Seen
	tx    chain.Hash
	block chain.Block
	offer chain.Offer
	maybe bool  // it may have a transaction that it cannot show
	err   error // it did not answer all of the question
}

// sum makes one sighting of what nodes have shown: what as many show as are needed is settled, and the
// most that one shows is a hint. Of as much, a transaction that was recorded is before others.
func sum(s *chain.Sighting, shown []glimpse, ask chain.Ask, needed int) {
	all, pooled, mined := 0, map[chain.Hash]int{}, map[chain.Hash]int{}
	for _, g := range shown {
		if g.seen == chain.Absent {
			continue
		}
		all++
		pooled[g.tx]++
		if g.seen == chain.Mined {
			mined[g.tx]++
		}
		ours := slices.Contains(ask.Hashes, g.tx) && !slices.Contains(ask.Hashes, s.Tx)
		if g.seen > s.Seen || g.seen == s.Seen && ours {
			s.Seen, s.Tx, s.Block, s.Raw = g.seen, g.tx, g.block, g.offer
		}
	}
	if all >= needed {
		s.Settled, s.SettledTx = chain.Pooled, agreed(pooled, needed)
	}
	if tx := agreed(mined, needed); tx != (chain.Hash{}) {
		s.Settled, s.SettledTx = chain.Mined, tx
	}
	for _, g := range shown {
		if g.seen != chain.Absent && g.tx == s.SettledTx && g.offer != (chain.Offer{}) {
			s.Raw = g.offer
		}
	}
}

// agreed is the one transaction that as many nodes have as are needed; zero: there is none, or there are several.
func agreed(votes map[chain.Hash]int, needed int) (tx chain.Hash) {
	for h, n := range votes {
		switch {
		case n < needed:
		case tx != chain.Hash{}:
			return chain.Hash{}
		default:
			tx = h
		}
	}
	return tx
}

// look asks the node for the transactions by their hashes, by sender and nonce, and in
// its pool, as far as it has the methods for that.
func (n *node) look(ctx context.Context, asks []chain.Ask) ([]glimpse, error) {
	session, err := n.ready(ctx, useCounts, false)
	if err != nil {
		return nil, err
	}
	found := make([]glimpse, len(asks))
	var calls []*jsonrpc.Call
	var of []int // the ask of each call
	for i, a := range asks {
		for _, h := range slices.Concat(a.Hashes, a.Claims) {
			calls, of = append(calls, jsonrpc.NewCall(methodTxByHash, h.String())), append(of, i)
		}
		if !n.lacksMethod(methodTxBySender) {
			calls, of = append(calls, jsonrpc.NewCall(methodTxBySender, a.Account, quantity(a.Nonce))), append(of, i)
		}
	}
	for part := range slices.Chunk(calls, transactionsPerRequest) {
		if err := n.askOfChain(ctx, session, part, n.c.set.MaxAnswerBytes); err != nil {
			return nil, err
		}
	}
	if len(calls) > 0 && !slices.ContainsFunc(calls, func(c *jsonrpc.Call) bool { return c.Fail == nil }) {
		return nil, calls[0].Fail
	}
	for i, c := range calls {
		n.glimpseOf(c, asks[of[i]], &found[of[i]])
	}
	if err := n.lookIntoPool(ctx, session, asks, found); err != nil {
		return nil, err
	}
	if err := n.lookAtPending(ctx, session, asks, found); err != nil {
		return nil, err
	}
	for i := range found {
		if found[i].err != nil {
			n.note(found[i].err)
		}
	}
	return found, nil
}

// askOfChain asks about accounts, and in the same request for the node's chain: an account may have
// transactions of the same nonces on another one, which may be behind the address by now. An error
// says that it is. Where the node does not say of which chain it is, or wants fewer requests since the
// last one, none of the calls has an answer.
func (n *node) askOfChain(ctx context.Context, session uint64, calls []*jsonrpc.Call, limit int64) error {
	err := errBackingOff
	if !n.paused(useCounts) {
		id, doubts := jsonrpc.NewCall(methodChainID), n.doubts.Load()
		n.ask(ctx, session, append(slices.Clone(calls), id), asking{use: useCounts, limit: limit})
		err = n.readChainID(session, id, doubts)
	}
	if err == nil || errors.Is(err, errOtherChain) {
		return err
	}
	for _, c := range calls {
		c.Result, c.Err, c.Fail = nil, nil, err
	}
	return nil
}

// glimpseOf reads an answer that is a transaction or null.
func (n *node) glimpseOf(c *jsonrpc.Call, ask chain.Ask, to *glimpse) {
	if n.learn(c) {
		return
	}
	if err := failure(c); err != nil {
		to.err = err
		return
	}
	g, err := decodeGlimpse(c.Result, ask, n.c.set.chainID)
	if err != nil {
		to.err = fmt.Errorf("%s: %w", c.Method, err)
		return
	}
	if g.seen > to.seen {
		g.err = to.err
		*to = g
	}
}

type seenTransaction struct {
	transaction
	BlockHash            string `json:"blockHash"`
	BlockNumber          string `json:"blockNumber"`
	GasPrice             string `json:"gasPrice"`
	MaxFeePerGas         string `json:"maxFeePerGas"`
	MaxPriorityFeePerGas string `json:"maxPriorityFeePerGas"`
	MaxFeePerBlobGas     string `json:"maxFeePerBlobGas"`
}

// decodeGlimpse reads a transaction, which must be one of what was asked for. One that a node said to
// be of the nonce, and that is not, shows nothing: the node that answers is right.
func decodeGlimpse(result []byte, ask chain.Ask, chainID uint64) (g glimpse, err error) {
	if string(result) == "null" {
		return g, nil
	}
	var t seenTransaction
	if wire.Unmarshal(result, &t) != nil {
		return g, errors.New("result must be a transaction or null")
	}
	use, err := t.use()
	switch {
	case err != nil:
		return g, fmt.Errorf("transaction: %w", err)
	case slices.Contains(ask.Claims, use.Tx) && t.BlockHash != "" && t.authorizes(ask, chainID):
	case use.Account == ask.Account && use.Nonce == ask.Nonce:
	case slices.Contains(ask.Claims, use.Tx):
		return g, nil
	default:
		return g, fmt.Errorf("the transaction %v is of %s with nonce %d, asked for was %s with %d",
			use.Tx, use.Account, use.Nonce, ask.Account, ask.Nonce)
	}
	g = glimpse{seen: chain.Pooled, tx: use.Tx, offer: t.offer()}
	if t.BlockHash == "" {
		return g, nil
	}
	g.seen = chain.Mined
	if g.block.Hash, err = parseHash(t.BlockHash); err != nil {
		return glimpse{}, fmt.Errorf("transaction: blockHash %w", err)
	}
	if g.block.Number, err = parseQuantity(t.BlockNumber); err != nil {
		return glimpse{}, fmt.Errorf("transaction: blockNumber %w", err)
	}
	return g, nil
}

// authorizes reports whether the transaction carries an authorization of the nonce that was asked for.
func (t *seenTransaction) authorizes(ask chain.Ask, chainID uint64) bool {
	return slices.ContainsFunc(appendAuthorized(nil, t.AuthorizationList, chain.Hash{}, chainID), func(u chain.Use) bool {
		return u.Account == ask.Account && u.Nonce == ask.Nonce
	})
}

func (t *seenTransaction) offer() chain.Offer {
	o := chain.Offer{
		MaxFeePerGas: amount(t.MaxFeePerGas), MaxPriorityFeePerGas: amount(t.MaxPriorityFeePerGas),
		MaxFeePerBlobGas: amount(t.MaxFeePerBlobGas),
	}
	if o.MaxFeePerGas == "" { // otherwise it is what was paid, not what was offered
		o.GasPrice = amount(t.GasPrice)
	}
	return o
}

// lookIntoPool asks for what the pool has of accounts of which nothing was seen.
func (n *node) lookIntoPool(ctx context.Context, session uint64, asks []chain.Ask, found []glimpse) error {
	var accounts []string
	for i, a := range asks {
		if found[i].seen == chain.Absent && !slices.Contains(accounts, a.Account) {
			accounts = append(accounts, a.Account)
		}
	}
	for part := range slices.Chunk(accounts, poolsPerRequest) {
		if n.lacksMethod(methodContentFrom) {
			return nil
		}
		calls := make([]*jsonrpc.Call, len(part))
		for i, account := range part {
			calls[i] = jsonrpc.NewCall(methodContentFrom, account)
		}
		if err := n.askOfChain(ctx, session, calls, n.c.set.small); err != nil {
			return err
		}
		for i, c := range calls {
			n.readPool(c, part[i], asks, found)
		}
	}
	return nil
}

// lookAtPending asks a node that has no method to look for a transaction without its hash
// for the pending counts. A count above the nonce does not show a transaction with it, since
// some nodes count over gaps, but then the node has not said that there is none.
func (n *node) lookAtPending(ctx context.Context, session uint64, asks []chain.Ask, found []glimpse) error {
	if !n.lacksMethod(methodTxBySender) || !n.lacksMethod(methodContentFrom) {
		return nil
	}
	var calls []*jsonrpc.Call
	var of []int // the ask of each call
	for i, a := range asks {
		if len(a.Hashes) == 0 && found[i].seen == chain.Absent && found[i].err == nil {
			calls, of = append(calls, countCall(a.Account, "pending")), append(of, i)
		}
	}
	if len(calls) == 0 {
		return nil
	}
	if err := n.askOfChain(ctx, session, calls, n.c.set.small); err != nil {
		return err
	}
	for i, c := range calls {
		count, err := n.readCount(c)
		found[of[i]].maybe, found[of[i]].err = count > asks[of[i]].Nonce, err
	}
	return nil
}

// readPool reads what the pool has of an account: transactions by nonce.
func (n *node) readPool(c *jsonrpc.Call, account string, asks []chain.Ask, found []glimpse) {
	if n.learn(c) {
		return
	}
	err := failure(c)
	var pool map[string]map[string]wire.Raw // pending and queued, each by nonce
	if err == nil && wire.Unmarshal(c.Result, &pool) != nil {
		err = fmt.Errorf("%s: result must be transactions by nonce", c.Method)
	}
	for i, a := range asks {
		if !strings.EqualFold(a.Account, account) || found[i].seen != chain.Absent {
			continue
		}
		if err != nil {
			found[i].err = err
			continue
		}
		for _, byNonce := range pool {
			if raw, ok := byNonce[strconv.FormatInt(a.Nonce, 10)]; ok {
				n.glimpseOf(&jsonrpc.Call{Method: c.Method, Result: []byte(raw)}, a, &found[i])
			}
		}
	}
}
