//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/test/lab/fakenode"
	"noncegate/test/lab/history"
)

// The chain of a run: what it is called, its accounts, and its times, as short as those
// of the gateways. A hold that is over stays unknown for chainUnknown.
const (
	chainNumber   = 1337
	chainID       = "eip155:1337"
	chainAccounts = 4
	chainPayers   = 4
	blockEvery    = 150 * time.Millisecond
	finalAfter    = 8 // blocks
	deepestReorg  = 3 // blocks
	chainUnknown  = 2 * time.Second
	chainTold     = 4 * time.Second // until a gateway knows of a block: a node may be paused while it has a request
	chainSlack    = 50 * time.Millisecond
	chainSettles  = chainUnknown + chainTold + 2*time.Second // from the last fault until the chain's signers are judged
	maxChainThink = 40 * time.Millisecond
	chainTurn     = 1500 * time.Millisecond // then other accounts are paid from
)

// chainSide is a chain with two nodes beside a cluster, which makes blocks and takes some
// back, and what the gateways' clients sent to it.
type chainSide struct {
	chain  *fakenode.Chain
	nodes  [2]*chainNode
	rnd    *rand.Rand
	cancel context.CancelFunc
	works  sync.WaitGroup
	calm   atomic.Bool  // no more blocks are taken back
	mined  atomic.Int64 // transactions

	mu    sync.Mutex // guards what follows
	began time.Time  // of the run
	head  *fakenode.Block
	sent  []fakenode.Tx // by account and nonce; each is in txs at the same place
	txs   []history.Tx
	blind []history.Span // the last may not have ended
	away  int            // faults that make nodes blind now
}

// chainNode is one node, which may be away or behind.
type chainNode struct {
	*fakenode.Node
	away   atomic.Bool
	behind atomic.Int64 // blocks
}

// startChain starts a chain and its nodes on free ports of 127.0.0.1.
func startChain(seed uint64) (*chainSide, error) {
	c := &chainSide{rnd: rand.New(rand.NewPCG(seed, 2000)), began: time.Now()}
	c.chain = fakenode.NewChain(time.Now(), blockEvery)
	c.head = c.chain.First()
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for i := range c.nodes {
		node, err := fakenode.Serve(c.chain, chainNumber)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		n := &chainNode{Node: node}
		n.On("eth_getTransactionBySenderAndNonce", n.FindBySender)
		n.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			if n.away.Load() {
				http.Error(w, "out of order", http.StatusServiceUnavailable)
			}
			return n.away.Load()
		})
		n.SetFinal(c.head)
		c.nodes[i] = n
	}
	c.works.Go(func() {
		for lasts(ctx, blockEvery); ctx.Err() == nil; lasts(ctx, blockEvery) {
			c.mine()
		}
	})
	return c, nil
}

func (c *chainSide) close() error {
	c.cancel()
	c.works.Wait()
	var err error
	for _, n := range c.nodes {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}

// flags are the settings of a gateway that asks the nodes.
func (c *chainSide) flags() []string {
	return []string{
		"--chain=" + chainID + "=" + c.nodes[0].URL() + "," + c.nodes[1].URL(), "--chain-poll=100ms", "--chain-timeout=1s",
		"--chain-wait=500ms", "--chain-gap-after=1s", "--unknown-ttl=" + chainUnknown.String(),
	}
}

// mine makes a block of what was sent, of each account in the order of its nonces. Now
// and then it takes blocks back first; what they had is in the pool again.
func (c *chainSide) mine() {
	c.mu.Lock()
	defer c.mu.Unlock()
	blocks := 1
	if !c.calm.Load() && c.rnd.IntN(15) == 0 && c.head.Number > deepestReorg {
		blocks += 1 + c.rnd.IntN(deepestReorg)
		c.head = back(c.head, int64(blocks-1))
	}
	for range blocks {
		var txs []fakenode.Tx
		used := make(map[string]int64) // in this block
		for i, tx := range c.sent {
			if tx.Nonce == c.head.Used(tx.From)+used[tx.From] && (c.calm.Load() || c.rnd.IntN(5) > 0) {
				used[tx.From]++
				txs = append(txs, tx)
				if c.txs[i].Mined == 0 {
					c.txs[i].Mined = time.Since(c.began)
					c.mined.Add(1)
				}
			}
		}
		c.head = c.chain.Extend(c.head, txs...)
	}
	c.show()
}

func back(b *fakenode.Block, by int64) *fakenode.Block {
	for ; by > 0 && b.Parent != nil; by-- {
		b = b.Parent
	}
	return b
}

// show brings the nodes to the newest block that they may know. A transaction that is not in a node's chain is in its pool.
func (c *chainSide) show() {
	for _, n := range c.nodes {
		head := back(c.head, n.behind.Load())
		n.SetPool(slices.DeleteFunc(slices.Clone(c.sent), func(tx fakenode.Tx) bool { return tx.Nonce < head.Used(tx.From) })...)
		n.SetHead(head)
		n.SetFinal(back(head, finalAfter))
	}
}

// send takes a transaction, unless its nonce is in the pool or was used: only the first of a nonce is taken.
func (c *chainSide) send(m mine, givenBack bool) (hash string, taken bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tx := fakenode.Tx{From: strings.TrimPrefix(m.signer, chainID+":"), Nonce: m.Nonce, Hash: fakenode.TxHash(len(c.sent))}
	began := time.Since(c.began)
	at, found := slices.BinarySearchFunc(c.sent, tx, func(a, b fakenode.Tx) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Nonce, b.Nonce))
	})
	if found || tx.Nonce < c.head.Used(tx.From) {
		return "", false
	}
	c.sent = slices.Insert(c.sent, at, tx)
	c.txs = slices.Insert(c.txs, at, history.Tx{
		Signer: m.signer, Nonce: m.Nonce, Attempt: m.Attempt, Hash: tx.Hash.String(), Sent: began, GivenBack: givenBack,
	})
	c.show()
	return tx.Hash.String(), true
}

// blindly does what keeps nodes from telling of the newest blocks, until healed is called.
func (c *chainSide) blindly() (healed func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away++
	if c.away == 1 {
		c.blind = append(c.blind, history.Span{From: time.Since(c.began), To: time.Hour})
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.away--
		if c.away == 0 {
			c.blind[len(c.blind)-1].To = time.Since(c.began)
		}
	}
}

// payer is a client that sends a transaction for each nonce that it gets, or crashes.
type payer struct {
	*worker
	slow []slowly
}

// slowly is a nonce of which the client sends later.
type slowly struct {
	mine
	at time.Time
}

// payers makes the clients who pay on the chain; none without one.
func (c *cluster) payers() (payers []*payer) {
	if c.chain == nil {
		return nil
	}
	c.chain.mu.Lock()
	c.chain.began = c.began
	c.chain.mu.Unlock()
	for i := range chainPayers {
		payers = append(payers, &payer{worker: c.newWorker(c.Clients+1+i, uint64(3000+i))})
	}
	return payers
}

func account(n int) string { return chainID + ":" + fakenode.Account(n+1) }

// busyAccount is one of the two that are paid from at the time. The others rest, so that
// what is RELEASED of them is not handed out again at once.
func (p *payer) busyAccount() string {
	turn := int(time.Since(p.began) / chainTurn)
	return account((turn + p.rnd.IntN(2)) % chainAccounts)
}

// pay takes a nonce, and sends in time, late or never; and it marks, or crashes before.
func (p *payer) pay(ctx context.Context) {
	if len(p.slow) > 0 && time.Since(p.slow[0].at) > 0 {
		m := p.slow[0].mine
		p.slow = p.slow[1:]
		p.sendAndMark(ctx, m)
		return
	}
	done, sent := p.call(ctx, p.newAllocate(p.busyAccount(), false))
	if !sent || done.Outcome != history.Happened {
		return
	}
	for _, g := range done.Nonces {
		m := mine{done.Signer, g}
		switch k := p.rnd.IntN(100); {
		case k < 65:
			p.sendAndMark(ctx, m)
		case k < 80:
			late := time.Duration(p.rnd.Int64N(int64(maxHold + 2*chainUnknown)))
			p.slow = append(p.slow, slowly{m, time.Now().Add(late)})
			slices.SortFunc(p.slow, func(a, b slowly) int { return a.at.Compare(b.at) })
		case k < 90:
			if _, sent := p.call(ctx, p.free(m)); sent && p.rnd.IntN(3) == 0 {
				p.chain.send(m, true)
			}
		default: // it crashed before it sent
		}
	}
}

// sendAndMark sends, and mostly marks. What is not taken it leaves alone: somebody has sent with this nonce.
func (p *payer) sendAndMark(ctx context.Context, m mine) {
	hash, taken := p.chain.send(m, false)
	if !taken || p.rnd.IntN(3) == 0 { // it crashed before it marked
		return
	}
	call := p.used(m)
	call.TxHash = hash
	p.call(ctx, call)
}

// settleChain has one more client pay from all accounts until what the others left is filled, then give nonces back and send with
// them all the same, and ask for the next ones once gateways know that those are mined. It returns all calls.
func (c *cluster) settleChain(ctx context.Context, payers []*payer) *history.Chain {
	last := &payer{worker: c.newWorker(c.Clients+1+chainPayers, 1)}
	defer last.close()
	c.chain.calm.Store(true)
	for until := time.Now().Add(chainSettles); time.Now().Before(until) && ctx.Err() == nil; lasts(ctx, 5*poll) {
		last.takeOfEach(ctx, last.sendAndMark)
	}
	last.takeOfEach(ctx, func(ctx context.Context, m mine) {
		last.call(ctx, last.free(m))
		c.chain.send(m, true)
	})
	lasts(ctx, chainTold+time.Second)
	for range c.nodes {
		last.takeOfEach(ctx, func(context.Context, mine) {})
	}
	h := new(history.Chain)
	for _, p := range append(payers, last) {
		h.Calls = append(h.Calls, p.calls...)
	}
	return h
}

// takeOfEach takes a nonce of each account, and does something with it.
func (p *payer) takeOfEach(ctx context.Context, with func(context.Context, mine)) {
	for i := range chainAccounts {
		call := history.Call{Kind: history.Allocate, Signer: account(i), Count: 1, HoldMs: holdTTL.Milliseconds()}
		if done, sent := p.call(ctx, call); sent && done.Outcome == history.Happened {
			with(ctx, mine{done.Signer, done.Nonces[0]})
		}
	}
}

// judge takes the chain's signers from a history, and judges what became of them.
func (c *chainSide) judge(h *history.History) []history.Violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Chain.Txs, h.Chain.Blind, h.Chain.BeganAt = c.txs, c.blind, c.began.UnixMilli()
	ofChain := func(signer string) bool { return strings.HasPrefix(signer, chainID) }
	h.Chain.Final = slices.DeleteFunc(slices.Clone(h.Final.Signers), func(s history.StoredSigner) bool { return !ofChain(s.Signer) })
	h.Final.Signers = slices.DeleteFunc(h.Final.Signers, func(s history.StoredSigner) bool { return ofChain(s.Signer) })
	h.Samples = slices.DeleteFunc(h.Samples, func(s history.Sample) bool { return ofChain(s.Signer) })
	found := history.CheckChain(h.Chain, history.ChainLimits{Told: chainTold, Slack: chainSlack})
	if mined := c.mined.Load(); mined < minMined {
		found = append(found, history.Violation{Rule: history.Void, Text: fmt.Sprintf("%d transactions were mined", mined)})
	}
	return found
}

// minMined is the least number of transactions that say something.
const minMined = 20

// nodesAway has one node of the chain refuse everything, then the other too, then none.
func nodesAway(ctx context.Context, b *breaker) error {
	defer b.chain.blindly()()
	first := b.rnd.IntN(2)
	for _, i := range []int{first, 1 - first} {
		b.note("node %d of the chain is away", i)
		b.chain.nodes[i].away.Store(true)
		lasts(ctx, b.between(200*time.Millisecond, 2*chainUnknown))
	}
	for i, n := range b.chain.nodes {
		b.note("node %d of the chain is back", i)
		n.away.Store(false)
		lasts(ctx, b.between(0, chainUnknown))
	}
	return nil
}

// nodeBehind has one node tell of old blocks only, and the other be away for a part of that time.
func nodeBehind(ctx context.Context, b *breaker) error {
	defer b.chain.blindly()()
	i := b.rnd.IntN(2)
	late, other := b.chain.nodes[i], b.chain.nodes[1-i]
	late.behind.Store(1 + b.rnd.Int64N(20))
	b.note("node %d of the chain is %d blocks behind", i, late.behind.Load())
	lasts(ctx, b.between(200*time.Millisecond, chainUnknown))
	other.away.Store(true)
	b.note("node %d of the chain is away", 1-i)
	lasts(ctx, b.between(200*time.Millisecond, 2*chainUnknown))
	other.away.Store(false)
	late.behind.Store(0)
	b.note("both nodes of the chain are well")
	return nil
}
