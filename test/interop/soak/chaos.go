package main

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/test/interop/chaintest"
)

const send = "eth_sendRawTransaction"

// maxLag is how many blocks a node lags that does, which is more than --chain-lag.
const maxLag = 6

// between draws a duration.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// trouble is what goes wrong with a node for some seconds.
type trouble struct {
	name  string
	begin func(p *chaintest.Proxy)
	end   func(p *chaintest.Proxy)
}

func on(name, method string, fault chaintest.Fault) trouble {
	return trouble{name, func(p *chaintest.Proxy) { p.On(method, fault) }, func(*chaintest.Proxy) {}}
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
	{"it closes its connections", (*chaintest.Proxy).Disconnect, func(*chaintest.Proxy) {}},
}

// haunt has one thing after the other go wrong with a node until it is calm.
func (s *soak) haunt(index int, p *chaintest.Proxy) {
	r := rand.New(rand.NewPCG(s.cfg.Seed, uint64(100+index)))
	for s.chain.height() <= maxLag {
		if !sleep(s.chaos, s.cfg.BlockTime) {
			return
		}
	}
	for sleep(s.chaos, between(r, 1*time.Second, 4*time.Second)) {
		t := troubles[r.IntN(len(troubles))]
		s.counts.faults.Add(1)
		s.detail("node %d: %s", index, t.name)
		t.begin(p)
		sleep(s.chaos, between(r, 1*time.Second, 5*time.Second))
		p.Clear()
		t.end(p)
	}
}

// mine makes a block each second until the run ends, and follows it. In between, while
// things go wrong, the pool loses a transaction, all of them, or some blocks are replaced.
func (s *soak) mine() {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 200))
	tick := time.NewTicker(s.cfg.BlockTime)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.host.try(func() { s.block(r, n) }); err != nil {
			s.Logf("the chain: %v", err)
		}
		if err := s.chain.update(); err != nil && s.ctx.Err() == nil {
			s.Fatalf("%v", err)
		}
	}
}

func (s *soak) block(r *rand.Rand, n int) {
	what := r.IntN(60)
	if s.chaos.Err() != nil || n < 2*finalDepth {
		what = 59
	}
	switch what {
	case 0: // some blocks are replaced
		s.counts.reorgs.Add(1)
		depth, keep := 1+r.IntN(3), r.IntN(3) > 0
		s.detail("a reorg of %d blocks, transactions kept: %t", depth, keep)
		s.chain.reorg(depth, keep)
	case 1, 2, 3, 4, 5:
		if hash, ok := s.anyPending(r); ok {
			s.counts.drops.Add(1)
			s.detail("the pool loses %v", hash)
			s.chain.drop(hash)
		}
		s.chain.commit()
	case 6:
		if r.IntN(4) == 0 {
			s.counts.drops.Add(1)
			s.detail("the pool loses everything")
			s.chain.rollback()
		}
		s.chain.commit()
	default:
		s.chain.commit()
	}
}

// anyPending draws a transaction of the pool.
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

// killGateways kills them in turns until things are calm.
func (s *soak) killGateways() {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 300))
	for sleep(s.chaos, between(r, s.cfg.KillEvery*3/4, s.cfg.KillEvery*5/4)) {
		victims := s.gateways.nodes[r.IntN(2):][:1]
		if r.IntN(4) == 0 {
			victims = s.gateways.nodes
			s.counts.bothKilled.Add(1)
		}
		for _, v := range victims {
			s.detail("kill -9 of gateway %s", v.name)
			s.counts.kills.Add(1)
			s.gateways.kill(v)
		}
		sleep(s.chaos, between(r, 300*time.Millisecond, 3*time.Second))
		for _, v := range victims {
			s.gateways.start(v)
		}
	}
}
