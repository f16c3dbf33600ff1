package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"noncegate/test/interop/chaintest"
)

const (
	send   = "eth_sendRawTransaction"
	counts = "eth_getTransactionCount"
	noHash = "0x00000000000000000000000000000000000000000000000000000000deadbeef"

	// maxLag is how many blocks a node lags that does, which is more than --chain-lag.
	maxLag = 6
)

// draws is where what goes wrong comes from, by its own number.
func (s *soak) draws(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(s.cfg.Seed, stream)) }

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// trouble is what goes wrong with a node for some seconds.
type trouble struct {
	name  string
	begin func(p *chaintest.Proxy)
	end   func(p *chaintest.Proxy) // nil: rules alone
}

func on(name, method string, fault chaintest.Fault, when ...chaintest.When) trouble {
	return trouble{name, func(p *chaintest.Proxy) { p.On(method, fault, when...) }, nil}
}

var troubles = []trouble{
	on("sends are lost", send, chaintest.Lost),
	on("sends are forwarded and not answered", send, chaintest.NoAnswer),
	on("connections close after forwarding a send", send, chaintest.CutAfter),
	on("connections close before forwarding a send", send, chaintest.Cut),
	on("sends are answered 429", send, chaintest.Status(http.StatusTooManyRequests)),
	on("sends are answered 503", send, chaintest.Status(http.StatusServiceUnavailable)),
	on("sends are over a limit", send, chaintest.RateLimited),
	on("sends are answered with a page", send, chaintest.NotJSON),
	on("sends take 700 ms", send, chaintest.Delay(700*time.Millisecond)),
	on("everything takes 300 ms", chaintest.All, chaintest.Delay(300*time.Millisecond)),
	on("everything is answered 429", chaintest.All, chaintest.Status(http.StatusTooManyRequests)),
	on("nothing is answered", chaintest.All, chaintest.NoAnswer),
	on("everything is an internal error", chaintest.All, chaintest.RPCError(-32603, "internal error")),
	{"it is away", (*chaintest.Proxy).Refuse, (*chaintest.Proxy).Accept},
	{"it lags", func(p *chaintest.Proxy) { p.Lag(maxLag) }, (*chaintest.Proxy).CatchUp},
	{"it tells no heads", func(p *chaintest.Proxy) { p.Mute(true) }, func(p *chaintest.Proxy) { p.Mute(false) }},
	{"it closes its connections", (*chaintest.Proxy).Disconnect, nil},
}

// lies are what one of three nodes says that is not so.
var lies = []trouble{
	higher(1), higher(2), higher(30), higher(1 << 40), higher(1 << 62),
	on("its counts are 0", counts, chaintest.Result("0x0")),
	on("it is of another chain", "eth_chainId", chaintest.Result("0x7")),
	final("its final block has another hash", map[string]any{"hash": noHash}),
	final("its final block is far ahead", map[string]any{"number": "0xffffff", "hash": noHash}),
	final("its final block is the first", map[string]any{"number": "0x0"}),
	on("it knows no transaction", "eth_getTransactionByHash", chaintest.Result(nil)),
	renamed("its transactions have other hashes", "eth_getTransactionByHash", "eth_getTransactionBySenderAndNonce", "txpool_contentFrom"),
	renamed("its blocks have transactions of other hashes", "eth_getBlockByNumber", "eth_getBlockByHash"),
	on("it knows no receipt", "eth_getTransactionReceipt", chaintest.Result(nil)),
	on("it takes transactions and forgets them", send, chaintest.Result(noHash)),
	on("it refuses transactions for good", send, chaintest.RPCError(-32000, "insufficient funds for gas * price + value")),
	on("it says that nonces are used", send, chaintest.RPCError(-32000, "nonce too low")),
}

func higher(by uint64) trouble {
	return on(fmt.Sprintf("its counts are %d too high", by), counts,
		chaintest.Falsify(func(n hexutil.Uint64) any { return n + hexutil.Uint64(by) }))
}

// isFinal fits the calls that ask for the final block.
var isFinal = chaintest.If(func(params []json.RawMessage) bool { return string(params[0]) == `"finalized"` })

func final(name string, with map[string]any) trouble {
	return on(name, "eth_getBlockByNumber", chaintest.Falsify(func(block map[string]any) any {
		maps.Copy(block, with)
		return block
	}), isFinal)
}

// renamed gives the transactions in results of methods the hash of none.
func renamed(name string, methods ...string) trouble {
	fault := chaintest.Falsify(renameTransactions)
	return trouble{name, func(p *chaintest.Proxy) {
		for _, method := range methods {
			p.On(method, fault)
		}
	}, nil}
}

// renameTransactions gives all transactions in a JSON value the hash of none.
func renameTransactions(value any) any {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			renameTransactions(element)
		}
	case map[string]any:
		if v["from"] != nil && v["hash"] != nil {
			v["hash"] = noHash
			return v
		}
		for _, member := range v {
			renameTransactions(member)
		}
	}
	return value
}

// haunt has one thing after the other go wrong with a node, which is well for a while in between, until it is calm.
func (s *soak) haunt(node string, p *chaintest.Proxy, r *rand.Rand, all []trouble, well, ill time.Duration) {
	for s.height() <= maxLag && sleep(s.chaos, blockTime) {
	}
	for sleep(s.chaos, between(r, well/8, well)) {
		t := all[r.IntN(len(all))]
		s.happens("troubles of nodes")
		s.detail("%s: %s", node, t.name)
		t.begin(p)
		sleep(s.chaos, between(r, ill/4, ill))
		p.Clear()
		if t.end != nil {
			t.end(p)
		}
	}
}

func (s *soak) lie(p *chaintest.Proxy) {
	s.haunt("the node that lies", p, s.draws(150), lies, 3*time.Second, 8*time.Second)
}

// mine makes a block each second until the run ends, and follows it. In between, while
// things go wrong, the pool loses a transaction, all of them, or some blocks are replaced.
func (s *soak) mine() {
	r := s.draws(200)
	for sleep(s.ctx, blockTime) {
		if err := s.try(func() { s.block(r) }); err != nil {
			s.Logf("the chain: %v", err)
		}
		if err := s.recount(); err != nil && s.ctx.Err() == nil {
			s.must(err)
		}
	}
}

func (s *soak) block(r *rand.Rand) {
	if s.chaos.Err() == nil && s.height() > 2*finalDepth {
		switch what := r.IntN(240); {
		case what < 4: // some blocks are replaced
			s.happens("reorgs")
			depth, keep := 1+r.IntN(3), r.IntN(3) > 0
			s.detail("a reorg of %d blocks, transactions kept: %t", depth, keep)
			s.chain.Reorg(depth, keep)
			return
		case what < 24:
			if hash, ok := s.anyPending(r); ok {
				s.happens("losses of the pool")
				s.detail("the pool loses %v", hash)
				s.chain.Drop(hash)
			}
		case what < 25:
			s.happens("losses of the pool")
			s.detail("the pool loses everything")
			s.chain.Rollback()
		}
	}
	s.chain.Commit()
}

func (s *soak) anyPending(r *rand.Rand) (common.Hash, bool) {
	pending, queued := s.pool()
	for _, part := range [...]pool{pending, queued} {
		for _, txs := range part {
			for _, tx := range txs {
				if r.IntN(3) == 0 {
					return tx.Hash, true
				}
			}
		}
	}
	return common.Hash{}, false
}

func (s *soak) height() uint64 {
	number, _ := s.chain.Head()
	return number
}
