package chaintest

import (
	"encoding/json"
	"errors"
	"maps"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"noncegate/test/lab/fakenode"
)

// view is what a lagging node knows: nothing after one block.
type view struct {
	number uint64
	hash   common.Hash
	// The node has finality, and this is its finalized block, or an older one.
	hasFinal bool
	final    uint64
}

// Lag has the node behind the proxy be one that stopped following so many blocks ago:
// until CatchUp the block then canonical at that height is its newest. Bent are
// eth_blockNumber, eth_getBlockByNumber and ByHash, eth_getTransactionByHash,
// eth_getTransactionReceipt, what is asked at a block (eth_getTransactionCount, getBalance,
// getCode, getStorageAt, getProof, call, estimateGas, getBlockReceipts), by tag, by number
// or by hash, and notifications of heads and logs, which are kept and handed on by CatchUp.
// Its pool is empty: "pending" is what it knows of the newest block. Its finalized block is
// not after its newest.
//
// It returns the number of that block. A reorg meanwhile does not reach what is asked by
// tag, and does reach what is asked by number.
func (p *Proxy) Lag(blocks uint64) uint64 {
	p.t.Helper()
	v, err := p.newView(blocks)
	if err != nil {
		p.t.Fatalf("lag by %d blocks: %v", blocks, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = v
	return v.number
}

// CatchUp ends Lag, and hands the notifications on that it kept.
func (p *Proxy) CatchUp() {
	p.mu.Lock()
	p.view = nil
	subs := maps.Clone(p.subs)
	p.mu.Unlock()
	for id, s := range subs {
		s.mu.Lock()
		s.tellLocked(id)
		s.mu.Unlock()
	}
}

// blockID is what the view has to know of a block.
type blockID struct {
	Number hexutil.Uint64
	Hash   common.Hash
}

func (p *Proxy) newView(blocks uint64) (*view, error) {
	head, err := p.block("eth_getBlockByNumber", "latest")
	if err == nil && (head == nil || uint64(head.Number) < blocks) {
		err = errors.New("the chain is not that long")
	}
	if err != nil {
		return nil, err
	}
	at, err := p.block("eth_getBlockByNumber", hexutil.EncodeUint64(uint64(head.Number)-blocks))
	if err == nil && at == nil {
		err = errors.New("that block is not there")
	}
	if err != nil {
		return nil, err
	}
	v := &view{number: uint64(at.Number), hash: at.Hash}
	// A node without finality answers an error; then it has none here either.
	if final, err := p.block("eth_getBlockByNumber", "finalized"); err == nil && final != nil {
		v.hasFinal, v.final = true, min(uint64(final.Number), v.number)
	}
	return v, nil
}

// block asks the node itself; nil is a block that is not there.
func (p *Proxy) block(method string, which any) (*blockID, error) {
	var block *blockID
	return block, p.result(&block, method, which, false)
}

// atBlock says which of a method's params names a block.
var atBlock = map[string]int{
	"eth_getBlockByNumber": 0, "eth_getBlockReceipts": 0,
	"eth_getTransactionCount": 1, "eth_getBalance": 1, "eth_getCode": 1, "eth_call": 1, "eth_estimateGas": 1,
	"eth_getStorageAt": 2, "eth_getProof": 2,
}

// bend changes a call, or its answer, to what the view knows. It may ask the node.
func (v *view) bend(p *Proxy, j *job) {
	switch j.method {
	case "eth_blockNumber":
		j.reply = &reply{result: quoted(hexutil.EncodeUint64(v.number))}
	case "eth_getBlockByHash":
		j.edits = append(j.edits, v.hide("number"))
	case "eth_getTransactionReceipt", "eth_getTransactionByHash":
		j.edits = append(j.edits, v.hide("blockNumber"))
	default:
		if at, ok := atBlock[j.method]; ok && len(j.params) >= at {
			v.bendBlock(p, j, at)
		}
	}
}

// hide makes null of a result whose member is a number above the view's.
func (v *view) hide(member string) func(json.RawMessage) json.RawMessage {
	return func(result json.RawMessage) json.RawMessage {
		var members map[string]json.RawMessage
		var number hexutil.Uint64
		if json.Unmarshal(result, &members) == nil && json.Unmarshal(members[member], &number) == nil && uint64(number) > v.number {
			return json.RawMessage("null")
		}
		return result
	}
}

// bendBlock changes the param that names a block.
func (v *view) bendBlock(p *Proxy, j *job, at int) {
	if len(j.params) == at {
		j.params = append(j.params, quoted("latest"))
	}
	byNumber := j.method == "eth_getBlockByNumber" || j.method == "eth_getBlockReceipts"
	switch v.find(p, j.params[at]) {
	case unknownBlock:
		j.reply = &reply{err: &fakenode.Error{Code: -32000, Message: "header not found"}}
		if byNumber {
			j.reply = &reply{result: json.RawMessage("null")}
		}
	case finalBlock:
		j.params[at] = quoted(hexutil.EncodeUint64(v.final))
	case newestBlock:
		j.params[at] = quoted(v.hash.Hex())
		if !byNumber {
			j.params[at] = json.RawMessage(`{"blockHash":` + string(j.params[at]) + `}`)
		}
		if j.method == "eth_getBlockByNumber" {
			j.method = "eth_getBlockByHash"
		}
	}
}

// found is which block a param names.
type found int

const (
	asAsked found = iota
	newestBlock
	finalBlock
	unknownBlock
)

func (v *view) find(p *Proxy, param json.RawMessage) found {
	var tag string
	var object struct {
		BlockNumber *hexutil.Uint64
		BlockHash   *common.Hash
	}
	if json.Unmarshal(param, &tag) != nil {
		if json.Unmarshal(param, &object) != nil {
			return asAsked
		}
	} else if number, err := hexutil.DecodeUint64(tag); err == nil {
		object.BlockNumber = (*hexutil.Uint64)(&number)
	} else if hash, err := hexutil.Decode(tag); err == nil && len(hash) == common.HashLength {
		object.BlockHash = (*common.Hash)(hash)
	}
	switch {
	case tag == "latest" || tag == "pending":
		return newestBlock
	case (tag == "finalized" || tag == "safe") && v.hasFinal:
		return finalBlock
	case object.BlockNumber != nil && uint64(*object.BlockNumber) > v.number:
		return unknownBlock
	case object.BlockHash != nil:
		if block, err := p.block("eth_getBlockByHash", object.BlockHash); err == nil && block != nil && uint64(block.Number) > v.number {
			return unknownBlock
		}
	}
	return asAsked
}

func quoted(text string) json.RawMessage { return json.RawMessage(`"` + text + `"`) }
