package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/test/interop/chaintest"
)

// Config says what a run is like.
type Config struct {
	Who       string // gateway, viem, ethers or redis
	Chain     string // geth or anvil
	Liar      bool   // the gateway has a third node, which lies at times
	Lie       string // what the names of its lies have
	Duration  time.Duration
	Seed      uint64
	Accounts  int
	KillEvery time.Duration // how long a gateway lives, about
	BlockTime time.Duration

	// Of sources other than the gateway. Fresh: a payment whose sending has failed is tried
	// again with another nonce, as programs do that keep no journal.
	Fresh bool

	Gateway string // its program; built when empty
	Logs    string // a folder for the gateways' logs; none when empty
	Verbose bool
}

// defaultConfig is the settings of a full run.
func defaultConfig() Config {
	return Config{
		Who: "gateway", Chain: "geth", Duration: 10 * time.Minute, Seed: 1, Accounts: 50,
		KillEvery: 20 * time.Second, BlockTime: time.Second,
	}
}

const (
	workers    = 8
	rate       = 20   // payments that come in a second
	maxWaiting = 2000 // while more payments wait, no new ones come

	// Settings of the gateway.
	unknownTTL, holdTTL, gapAfter, leaseTTL = 15 * time.Second, 5 * time.Second, 4 * time.Second, 2 * time.Second

	sweepEvery = 10 * time.Second // how often the watcher asks for all accounts
	patience   = 60 * time.Second // how long a drain goes on without a payment that is new on the chain
)

// soak is a run.
type soak struct {
	*host
	cfg      Config
	chain    *view
	nodes    nodes
	ledger   *ledger
	gateways *gateways // nil without
	managers *managers // nil with gateways

	chaos  context.Context // ends when things are to be calm
	toCalm context.CancelFunc
	calm   atomic.Bool

	noteMu   sync.Mutex // guards what follows
	happened map[string]int
	oopses   []string // what must not happen, and is no matter of the chain
}

// count counts by name.
func (s *soak) count(name string) {
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.happened[name]++
}

// oops notes what must not happen.
func (s *soak) oops(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Logf("MUST NOT HAPPEN: %s", text)
	s.noteMu.Lock()
	defer s.noteMu.Unlock()
	s.oopses = append(s.oopses, text)
}

// detail is a line of a verbose log.
func (s *soak) detail(format string, args ...any) {
	if s.cfg.Verbose {
		s.Logf(format, args...)
	}
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
	s := &soak{host: h, cfg: cfg, ledger: newLedger(), happened: make(map[string]int)}
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
			told := slices.DeleteFunc(slices.Clone(lies), func(t trouble) bool { return !strings.Contains(t.name, cfg.Lie) })
			if len(told) == 0 {
				h.Fatalf("no lie has %q in its name", cfg.Lie)
			}
			h.spawn(func() {
				s.haunt("the node that lies", liar, s.draws(150), told,
					[2]time.Duration{500 * time.Millisecond, 3 * time.Second}, [2]time.Duration{2 * time.Second, 8 * time.Second})
			})
		}
		s.gateways = startGateways(h, cfg, fmt.Sprintf("--chain=eip155:%v=%s", chain.ChainID(), urls))
	} else {
		s.managers = startManagers(h, cfg, chain, proxies)
	}
	s.Logf("%s: seed %d, %d accounts, %d workers, %v", cfg.name(), cfg.Seed, cfg.Accounts, workers, cfg.Duration)
	h.spawn(s.mine)
	for id := range workers {
		h.spawn((&worker{s, id}).run)
	}
	for i, p := range proxies {
		h.spawn(func() {
			s.haunt(fmt.Sprint("node ", i), p, s.draws(uint64(100+i)), troubles,
				[2]time.Duration{1 * time.Second, 4 * time.Second}, [2]time.Duration{1 * time.Second, 5 * time.Second})
		})
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

// produce has payments of any account come.
func (s *soak) produce() {
	r := s.draws(400)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	end := time.NewTimer(s.cfg.Duration)
	defer end.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-end.C:
			return
		case <-tick.C:
		}
		if _, _, waiting := s.ledger.size(); waiting < maxWaiting {
			s.ledger.add(r.IntN(s.cfg.Accounts))
		}
		if n%(10*rate) == 0 {
			s.progress()
		}
	}
}

func (s *soak) progress() {
	all, undone, waiting := s.ledger.size()
	s.noteMu.Lock()
	crashes, kills := s.happened["crashes of workers"], s.happened["kills of gateways"]
	s.noteMu.Unlock()
	s.Logf("payments %d, not done %d, waiting %d; crashes %d, kills %d; block %d", all, undone, waiting, crashes, kills, s.chain.height())
}

// drain waits until all payments are done, as long as some become so.
func (s *soak) drain() bool {
	before, last := -1, time.Now()
	for n := 1; s.ctx.Err() == nil; n++ {
		_, undone, _ := s.ledger.size()
		if undone == 0 {
			return true
		}
		if undone != before {
			before, last = undone, time.Now()
		}
		if time.Since(last) > patience {
			return false
		}
		if n%50 == 0 {
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
	c, err := s.dialGateways(s.ctx, 1)
	if err != nil {
		s.oops("after the run no gateway answers: %v", err)
		return false
	}
	defer c.Close()
	last := make([]*payment, s.cfg.Accounts)
	for account := range last {
		last[account] = s.oneMore(account)
	}
	deadline := time.Now().Add(2 * patience)
	for ; time.Now().Before(deadline) && s.ctx.Err() == nil; sleep(s.ctx, time.Second) {
		ready := true
		for account, p := range last {
			if !s.ledger.isDone(p) {
				ready = false
				continue
			}
			status, err := c.Status(s.ctx, s.signer(account))
			if err == nil && status.Released > 0 {
				last[account] = s.oneMore(account)
			}
			ready = ready && err == nil && status.Released+status.Held+status.Unknown == 0 &&
				uint64(status.Next) == s.chain.Nonce(s.chain.all[account].Address)
		}
		if ready {
			return s.drain()
		}
	}
	return false
}

func (s *soak) oneMore(account int) *payment {
	s.count("payments to close accounts")
	return s.ledger.add(account)
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
