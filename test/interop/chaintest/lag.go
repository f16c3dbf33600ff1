package chaintest

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
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
	sockets := make([]*socket, 0, len(p.sockets))
	for s := range p.sockets {
		sockets = append(sockets, s)
	}
	p.mu.Unlock()
	for _, s := range sockets {
		s.catchUp()
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

// result asks the node itself for the result of a call.
func (p *Proxy) result(result any, method string, params ...any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	frame, err := json.Marshal(request{Version: "2.0", ID: json.RawMessage("1"), Method: method, Params: text})
	if err != nil {
		return err
	}
	if text, err = p.ask(frame); err != nil {
		return err
	}
	answers, err := readAnswers(text)
	if err != nil {
		return err
	}
	a := answers[1]
	if a == nil || a.Error != nil {
		return fmt.Errorf("%s: the node answered %.200s", method, text)
	}
	return json.Unmarshal(a.Result, result)
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
		j.local = &answer{Result: quoted(hexutil.EncodeUint64(v.number))}
	case "eth_getBlockByHash":
		v.hide(j, "number")
	case "eth_getTransactionReceipt", "eth_getTransactionByHash":
		v.hide(j, "blockNumber")
	default:
		if at, ok := atBlock[j.method]; ok {
			v.bendBlock(p, j, at)
		}
	}
}

// hide answers null where the result's member is a number above the view's.
func (v *view) hide(j *job, member string) {
	late := func(_ *job, a *answer) {
		var result map[string]json.RawMessage
		var number hexutil.Uint64
		if json.Unmarshal(a.Result, &result) == nil && json.Unmarshal(result[member], &number) == nil && uint64(number) > v.number {
			a.Result = json.RawMessage("null")
		}
	}
	j.edits = append([]func(*job, *answer){late}, j.edits...) // before what a rule edits
}

// bendBlock changes the param that names a block.
func (v *view) bendBlock(p *Proxy, j *job, at int) {
	var params []json.RawMessage
	if json.Unmarshal(j.params, &params) != nil || len(params) < at {
		return // the node refuses it
	}
	if len(params) == at {
		params = append(params, quoted("latest"))
	}
	byNumber := j.method == "eth_getBlockByNumber" || j.method == "eth_getBlockReceipts"
	switch block := v.find(p, params[at]); block {
	case asAsked:
		return
	case unknownBlock:
		j.local = &answer{Error: json.RawMessage(`{"code":-32000,"message":"header not found"}`)}
		if byNumber {
			j.local = &answer{Result: json.RawMessage("null")}
		}
		return
	case finalBlock:
		params[at] = quoted(hexutil.EncodeUint64(v.final))
	case newestBlock:
		params[at] = quoted(v.hash.Hex())
		if !byNumber {
			params[at] = json.RawMessage(`{"blockHash":` + string(params[at]) + `}`)
		}
		if j.method == "eth_getBlockByNumber" {
			j.method = "eth_getBlockByHash"
		}
	}
	if text, err := json.Marshal(params); err == nil {
		j.params = text
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
