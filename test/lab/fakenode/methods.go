package fakenode

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// usualLocked answers a method as a node does.
func (n *Node) usualLocked(method string, params []json.RawMessage, m *message) (any, error) {
	switch method {
	case "eth_chainId":
		return Quantity(n.chainID), nil
	case "eth_blockNumber":
		return Quantity(n.head.Number), nil
	case "eth_getBlockByNumber":
		b, err := n.taggedLocked(text(params, 0))
		if b == nil || err != nil {
			return nil, err
		}
		return b.JSON(string(params[1]) == "true"), nil
	case "eth_getBlockByHash":
		b := n.byHashLocked(text(params, 0))
		if b == nil {
			return nil, nil
		}
		return b.JSON(string(params[1]) == "true"), nil
	case "eth_getTransactionCount":
		return n.countLocked(params)
	case "eth_getCode":
		if code, ok := n.code[text(params, 0)]; ok {
			return code, nil
		}
		return "0x", nil
	case "eth_getTransactionByHash":
		return n.findLocked(func(t Tx) bool { return t.Hash.String() == text(params, 0) }), nil
	case "eth_sendRawTransaction":
		return nil, errors.New("fakenode: On says what is answered to transactions")
	case "eth_subscribe", "eth_unsubscribe":
		return n.subscriptionLocked(method, params, m)
	}
	return nil, &Error{Code: -32601, Message: "the method " + method + " does not exist/is not available"}
}

// byHashLocked returns a block that the node knows: it is not above its own.
func (n *Node) byHashLocked(hash string) *Block {
	if b := n.chain.byHash(hash); b != nil && b.Number <= n.head.Number {
		return b
	}
	return nil
}

// taggedLocked returns the block that a tag or a number means.
func (n *Node) taggedLocked(tag string) (*Block, error) {
	switch tag {
	case "latest", "pending":
		return n.head, nil
	case "finalized":
		if n.final == nil {
			return nil, &Error{Code: -39001, Message: "finalized block not found"}
		}
		return n.final, nil
	}
	number, err := strconv.ParseInt(strings.TrimPrefix(tag, "0x"), 16, 64)
	if err != nil {
		return nil, &Error{Code: -32602, Message: "invalid argument 0: hex string expected"}
	}
	return n.head.at(number), nil
}

func (n *Node) countLocked(params []json.RawMessage) (any, error) {
	account, tag := text(params, 0), text(params, 1)
	var at struct{ BlockHash string }
	var b *Block
	var err error
	if json.Unmarshal(params[1], &at) == nil && at.BlockHash != "" {
		b = n.byHashLocked(at.BlockHash)
	} else {
		b, err = n.taggedLocked(tag)
	}
	switch {
	case err != nil:
		return nil, err
	case b == nil && at.BlockHash != "":
		return nil, &Error{Code: -32000, Message: "header for hash not found"}
	case b == nil:
		return nil, &Error{Code: -32000, Message: "header not found"}
	}
	count := b.counts[account]
	for _, t := range n.pool {
		if tag == "pending" && t.From == account && t.Nonce == count {
			count++
		}
	}
	return Quantity(count), nil
}

// findLocked returns the first transaction that fits, in the pool or the chain.
func (n *Node) findLocked(fits func(Tx) bool) any {
	for b := n.head; b != nil; b = b.Parent {
		for _, t := range b.Txs {
			if fits(t) {
				return t.JSON(b)
			}
		}
	}
	for _, t := range n.pool {
		if fits(t) {
			return t.JSON(nil)
		}
	}
	return nil
}

// FindBySender answers eth_getTransactionBySenderAndNonce, which not every node has.
func (n *Node) FindBySender(params []json.RawMessage) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.findLocked(func(t Tx) bool { return t.From == text(params, 0) && Quantity(t.Nonce) == text(params, 1) }), nil
}

// ContentFrom answers txpool_contentFrom, which not every node has.
func (n *Node) ContentFrom(params []json.RawMessage) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := map[string]any{}
	for _, t := range n.pool {
		if t.From == text(params, 0) {
			pending[strconv.FormatInt(t.Nonce, 10)] = t.JSON(nil)
		}
	}
	return map[string]any{"pending": pending, "queued": map[string]any{}}, nil
}
