package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/test/interop/chaintest"
)

// Config says what a run is like.
type Config struct {
	Who      string // gateway, viem, ethers or redis
	Chain    string // geth or anvil
	Liar     bool   // the gateway has a third node, which lies at times
	Lie      string // what the names of its lies have
	Duration time.Duration
	Seed     uint64
	Accounts int
	Workers  int
	Rate     int // payments that come in a second

	// Of sources other than the gateway. Fresh: a payment whose sending has failed is tried
	// again with another nonce, as programs do that keep no journal.
	Fresh bool

	Gateway                                 string // its program; built when empty
	UnknownTTL, HoldTTL, GapAfter, LeaseTTL time.Duration
	KillEvery, BlockTime                    time.Duration
	Sweep                                   time.Duration // how often the watcher asks for all accounts

	Logs    string // a folder for the gateways' logs; none when empty
	Verbose bool
}

// defaultConfig is the settings of a full run.
func defaultConfig() Config {
	return Config{
		Who: "gateway", Chain: "geth", Duration: 10 * time.Minute, Seed: 1, Accounts: 50, Workers: 8, Rate: 20,
		UnknownTTL: 15 * time.Second, HoldTTL: 5 * time.Second, GapAfter: 4 * time.Second, LeaseTTL: 2 * time.Second,
		KillEvery: 20 * time.Second, BlockTime: time.Second, Sweep: 10 * time.Second,
	}
}

// maxWaiting bounds the queue: while more payments wait, no new ones come.
const maxWaiting = 2000

// soak is a run.
type soak struct {
	*host
	cfg      Config
	chain    *view
	nodes    nodes
	queue    *queue
	journal  *journal
	gateways *gateways // nil without
	managers *managers // nil with gateways
	counts   counts
	events   tally

	chaos  context.Context // ends when things are to be calm
	toCalm context.CancelFunc
	calm   atomic.Bool

	oopsMu sync.Mutex
	oopses []string // what must not happen, and is no matter of the chain
}

// tally counts by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == nil {
		t.n = make(map[string]int)
	}
	t.n[name]++
}

// run runs and reports. An error says that there was no run, not that it found something.
func run(ctx context.Context, cfg Config, out io.Writer) (report *Report, err error) {
	h := newHost(ctx, out)
	defer func() {
		h.close()
		if cause := context.Cause(h.ctx); err == nil && cause != errEnded {
			err = cause
		}
	}()
	if fatal := h.try(func() { report = start(h, cfg).toTheEnd() }); fatal != nil {
		h.cancel(fatal)
		return nil, fatal
	}
	return report, nil
}

func start(h *host, cfg Config) *soak {
	s := &soak{host: h, cfg: cfg, queue: newQueue(), journal: newJournal()}
	s.chaos, s.toCalm = context.WithCancel(h.ctx)
	chain, accounts := startGround(h, cfg)
	s.chain = newView(chain, accounts)
	proxies := []*chaintest.Proxy{chaintest.StartProxy(h, chain), chaintest.StartProxy(h, chain)}
	s.nodes = dialNodes(h, proxies[0].URL(), proxies[1].URL())
	if cfg.Who == "gateway" {
		urls := proxies[0].WS() + "," + proxies[1].URL()
		if cfg.Liar {
			liar := chaintest.StartProxy(h, chain)
			if urls += "," + liar.URL(); cfg.Seed%2 == 0 { // then blocks are read from it
				urls = liar.URL() + "," + proxies[0].WS() + "," + proxies[1].URL()
			}
			h.spawn(func() { s.lie(liar) })
		}
		s.gateways = startGateways(h, cfg, fmt.Sprintf("--chain=eip155:%v=%s", chain.ChainID(), urls))
	} else {
		s.managers = startManagers(h, cfg, chain, proxies)
	}
	s.Logf("%s: seed %d, %d accounts, %d workers, %v", cfg.name(), cfg.Seed, cfg.Accounts, cfg.Workers, cfg.Duration)
	h.spawn(s.mine)
	for id := range cfg.Workers {
		h.spawn((&worker{s, id}).run)
	}
	for i, p := range proxies {
		h.spawn(func() { s.haunt(i, p) })
	}
	if s.gateways != nil {
		h.spawn((&watcher{soak: s, mending: make([]sync.Mutex, cfg.Accounts)}).watch)
		h.spawn(s.killGateways)
	}
	return s
}

// name is how a run is called in the table.
func (c Config) name() string {
	switch {
	case c.Who == "gateway":
		return "Noncegate"
	case c.Fresh:
		return c.Who + ", sends again with a new nonce"
	}
	return c.Who
}

// toTheEnd lets payments come for the duration, then calms everything down, drains and
// looks.
func (s *soak) toTheEnd() *Report {
	s.produce()
	s.Logf("calm: nothing fails from here on")
	s.toCalm()
	s.calm.Store(true)
	ended := s.drain()
	if s.gateways != nil {
		ended = s.closeAccounts() && ended
	}
	return s.look(ended)
}

// produce puts payments of any account into the queue.
func (s *soak) produce() {
	r := rand.New(rand.NewPCG(s.cfg.Seed, 400))
	tick := time.NewTicker(time.Second / time.Duration(s.cfg.Rate))
	defer tick.Stop()
	end := time.NewTimer(s.cfg.Duration)
	defer end.Stop()
	progress := time.NewTicker(10 * time.Second)
	defer progress.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-end.C:
			return
		case <-progress.C:
			s.progress()
		case <-tick.C:
			if _, _, waiting := s.queue.size(); waiting < maxWaiting {
				s.queue.add(r.IntN(s.cfg.Accounts))
			}
		}
	}
}

func (s *soak) progress() {
	all, open, waiting := s.queue.size()
	s.Logf("payments %d, on the chain %d, open %d, waiting %d; crashes %d, kills %d, repairs %d", all, s.chain.executed(), open, waiting,
		s.counts.crashes.Load(), s.counts.kills.Load(), s.counts.repairs.Load())
}

// patience is how long a drain goes on without a payment that is new on the chain.
const patience = 60 * time.Second

// drain waits until all payments are done, as long as some become so.
func (s *soak) drain() bool {
	open, last := -1, time.Now()
	for n := 0; s.ctx.Err() == nil; n++ {
		_, now, _ := s.queue.size()
		if now == 0 {
			return true
		}
		if now != open {
			open, last = now, time.Now()
		}
		if time.Since(last) > patience {
			return false
		}
		if n%50 == 49 {
			s.progress()
		}
		sleep(s.ctx, 200*time.Millisecond)
	}
	return false
}

// closeAccounts makes one more payment from each account, and as many as it takes to use
// the nonces that were given back last.
func (s *soak) closeAccounts() bool {
	s.Logf("one more payment from each account")
	last := make([]*payment, s.cfg.Accounts)
	for account := range last {
		last[account] = s.queue.add(account)
		s.counts.closing.Add(1)
	}
	return s.closeAtGateway(last)
}

func (s *soak) closeAtGateway(last []*payment) bool {
	c, err := s.dialGateways(s.ctx, 1)
	if err != nil {
		s.oops("after the run no gateway answers: %v", err)
		return false
	}
	defer c.Close()
	deadline := time.Now().Add(2 * patience)
	for ; time.Now().Before(deadline) && s.ctx.Err() == nil; sleep(s.ctx, time.Second) {
		ready := true
		for account, p := range last {
			if !s.queue.isDone(p) {
				ready = false
				continue
			}
			status, err := c.Status(s.ctx, s.signer(account))
			switch {
			case err != nil:
				ready = false
			case status.Released > 0:
				last[account] = s.queue.add(account)
				s.counts.closing.Add(1)
				ready = false
			case status.Held > 0 || status.Unknown > 0 || uint64(status.Next) != s.chain.Nonce(s.chain.all[account].Address):
				ready = false
			}
		}
		if ready {
			return s.drain()
		}
	}
	return false
}

// signer is the name of an account at a gateway.
func (s *soak) signer(account int) string {
	return fmt.Sprintf("eip155:%v:%s", s.chain.ChainID(), strings.ToLower(s.chain.all[account].Address.Hex()))
}

func (s *soak) accountOf(signer string) (int, bool) {
	account, ok := s.chain.accounts[common.HexToAddress(signer[strings.LastIndexByte(signer, ':')+1:])]
	return account, ok
}

// connect gives a worker its source of nonces.
func (s *soak) connect(ctx context.Context, worker int) (source, error) {
	if s.managers != nil {
		return s.managers.source(s), nil
	}
	c, err := s.dialGateways(ctx, worker)
	if err != nil {
		return nil, err
	}
	return &gatewaySource{s, c}, nil
}

// oops notes what must not happen.
func (s *soak) oops(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Logf("MUST NOT HAPPEN: %s", text)
	s.oopsMu.Lock()
	defer s.oopsMu.Unlock()
	s.oopses = append(s.oopses, text)
}

// detail is a line of a verbose log.
func (s *soak) detail(format string, args ...any) {
	if s.cfg.Verbose {
		s.Logf(format, args...)
	}
}
