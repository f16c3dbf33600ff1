package ethereum

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// pollOrder asks a node's poller for one poll.
type pollOrder struct{ full bool } // full: the newest block with its transactions

// view is what a node said in one poll.
type view struct {
	n     *node
	err   error       // it did not answer, or not sensibly: all else is empty
	head  *block      // its newest block
	final chain.Block // zero Hash: it has none
}

// pollLoop polls the node whenever the follower asks for it, until ctx ends.
func (n *node) pollLoop(ctx context.Context) {
	for {
		select {
		case order := <-n.polls:
			v := n.poll(ctx, order.full)
			select {
			case n.c.views <- v:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// poll asks the node for its newest and its final block, in one request.
func (n *node) poll(ctx context.Context, full bool) *view {
	session, err := n.ready(ctx, usePolls, true)
	if err != nil {
		return n.unseen(ctx, err)
	}
	head := jsonrpc.NewCall(methodBlockByNumber, "latest", full)
	id := jsonrpc.NewCall(methodChainID) // behind the address there may be another chain by now
	calls := []*jsonrpc.Call{head, id}
	var final, probe *jsonrpc.Call
	if n.c.set.finality == finalizedTag {
		final = jsonrpc.NewCall(methodBlockByNumber, "finalized", false)
		calls = append(calls, final)
	}
	if n.hashSupport() == supportUnknown {
		probe = probeCall()
		calls = append(calls, probe)
	}
	doubts := n.doubts.Load()
	n.ask(ctx, session, calls, asking{limit: n.c.set.MaxAnswerBytes, use: usePolls})
	v := &view{n: n}
	if full && errors.Is(head.Fail, ErrTooLarge) { // then the block is read like one that cannot be
		head, full = jsonrpc.NewCall(methodBlockByNumber, "latest", false), false
		n.ask(ctx, session, []*jsonrpc.Call{head}, asking{limit: n.c.set.MaxAnswerBytes, use: usePolls})
	}
	if err := cmp.Or(failure(head), n.readChainID(session, id, doubts)); err != nil {
		return n.unseen(ctx, err)
	}
	if v.head, err = decodeBlock(head.Result, full, n.c.set.chainID); err != nil {
		return n.unseen(ctx, err)
	}
	if final != nil {
		v.final = n.readFinal(final, v.head)
	}
	if probe != nil {
		n.judgeProbe(probe)
	}
	n.probe(ctx, session)
	n.seen(v.head.Block)
	n.subscribeHeads(ctx, session)
	return v
}

// unseen is the view of a node that did not answer.
func (n *node) unseen(ctx context.Context, err error) *view {
	known := n.paused(usePolls) || errors.Is(err, errNotConnected) // and noted with its cause
	if ctx.Err() == nil && !known {
		n.failed(err)
	}
	return &view{n: n, err: err}
}

// seen notes that the node answered.
func (n *node) seen(head chain.Block) {
	n.mu.Lock()
	was := n.answered
	n.answered = true
	if n.head.Hash != head.Hash {
		n.head, n.movedAt = head, time.Now()
	}
	n.mu.Unlock()
	if !was {
		n.log.Info("node of the chain answers", "head", head.Number)
	}
}

// readFinal reads the block with the tag finalized. A node without one refuses or says
// null; what makes no sense is noted and is as good as none.
func (n *node) readFinal(c *jsonrpc.Call, head *block) chain.Block {
	if c.Result == nil {
		return chain.Block{}
	}
	b, err := decodeBlock(c.Result, false, n.c.set.chainID)
	switch {
	case errors.Is(err, errNoBlock):
		return chain.Block{}
	case err == nil && b.Number > head.Number:
		err = fmt.Errorf("its final block %d is above its newest, %d", b.Number, head.Number)
	case err == nil && b.Number == head.Number && b.Hash != head.Hash:
		err = fmt.Errorf("its final block is beside its newest, %d", head.Number)
	}
	if err != nil {
		n.note(err)
		return chain.Block{}
	}
	return b.Block
}

// probeCall asks for the count at a block that no node has. Nodes that know EIP-1898
// refuse it for that; others refuse its form, or ignore the hash and answer for the
// newest block.
func probeCall() *jsonrpc.Call {
	var h chain.Hash
	_, _ = rand.Read(h[:]) // never fails
	return countCall("0x0000000000000000000000000000000000000000", byHash(h))
}

func byHash(h chain.Hash) any { return map[string]string{"blockHash": h.String()} }

func countCall(account string, at any) *jsonrpc.Call {
	return jsonrpc.NewCall(methodCount, account, at)
}

func (n *node) hashSupport() support {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byHash
}

// judgeProbe notes whether the node answers for a block hash.
func (n *node) judgeProbe(c *jsonrpc.Call) {
	if c.Fail != nil {
		return
	}
	can := unsupported
	if c.Err != nil && n.c.table.noBlock.MatchString(c.Err.Message) {
		can = supported
	}
	n.mu.Lock()
	n.byHash = can
	n.mu.Unlock()
	if can == unsupported {
		n.log.Info("node does not answer counts at a block hash (EIP-1898); they are asked for by number")
	}
}
