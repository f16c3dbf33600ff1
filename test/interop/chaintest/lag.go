package chaintest

import (
	"encoding/json"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"noncegate/test/lab/fakenode"
)

// view is what a lagging node knows: nothing after one block.
type view struct {
	number uint64
	final  *uint64 // its finalized block, or an older one; nil: the node has no finality
}

// Lag has the node behind the proxy be one that stopped following so many blocks ago: until CatchUp the block at that height is its
// newest. Blocks, transactions and receipts above it are not there, tags mean what it knows ("pending" the newest block), what is asked
// at a newer block is refused, and heads are kept and handed on by CatchUp. Its finalized block is not after its newest. A reorg that
// goes below that height reaches it.
//
// It returns the number of that block.
func (p *Proxy) Lag(blocks uint64) uint64 {
	p.t.Helper()
	head, err := p.block("eth_getBlockByNumber", `"latest"`)
	if err == nil && (head == nil || uint64(head.Number) < blocks) {
		err = errors.New("the chain is not that long")
	}
	if err != nil {
		p.t.Fatalf("lag by %d blocks: %v", blocks, err)
	}
	v := &view{number: uint64(head.Number) - blocks}
	// A node without finality answers an error; then it has none here either.
	if final, err := p.block("eth_getBlockByNumber", `"finalized"`); err == nil && final != nil {
		v.final = new(min(uint64(final.Number), v.number))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.view = v
	return v.number
}

// CatchUp ends Lag, and hands the heads on that it kept.
func (p *Proxy) CatchUp() {
	p.mu.Lock()
	withheld := p.withheld
	p.view, p.withheld = nil, nil
	p.mu.Unlock()
	for _, head := range withheld {
		p.front.Emit("newHeads", head)
	}
}

// block asks the node itself; nil is a block that is not there.
func (p *Proxy) block(method, which string) (*struct{ Number hexutil.Uint64 }, error) {
	text, err := p.forward(method, []json.RawMessage{json.RawMessage(which), json.RawMessage("false")})
	if err != nil {
		return nil, err
	}
	var block *struct{ Number hexutil.Uint64 }
	return block, json.Unmarshal(text, &block)
}

// ask asks the node what the view can know.
func (v *view) ask(p *Proxy, method string, params []json.RawMessage) (json.RawMessage, error) {
	if method == "eth_blockNumber" {
		return quantity(v.number), nil
	}
	for i, param := range params {
		var at struct{ BlockHash *common.Hash }
		switch tag := string(param); {
		case tag == `"latest"` || tag == `"pending"`:
			params[i] = quantity(v.number)
		case (tag == `"finalized"` || tag == `"safe"`) && v.final != nil:
			params[i] = quantity(*v.final)
		case json.Unmarshal(param, &at) == nil && at.BlockHash != nil:
			b, err := p.block("eth_getBlockByHash", `"`+at.BlockHash.Hex()+`"`)
			if err == nil && b != nil && uint64(b.Number) > v.number {
				return nil, &fakenode.Error{Code: -32000, Message: "header not found"}
			}
		}
	}
	result, err := p.forward(method, params)
	var above struct{ Number, BlockNumber hexutil.Uint64 }
	if err == nil && json.Unmarshal(result, &above) == nil && uint64(max(above.Number, above.BlockNumber)) > v.number {
		return json.RawMessage("null"), nil
	}
	return result, err
}

func quantity(n uint64) json.RawMessage { return json.RawMessage(`"` + hexutil.EncodeUint64(n) + `"`) }
