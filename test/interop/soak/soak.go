package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"noncegate/client"
	"noncegate/test/interop/chaintest"
)

// Config says what a run is like.
type Config struct {
	Who       string // gateway, sdk-viem, sdk-ethers, viem, ethers or redis
	Liar      bool   // the gateway has a third node, which lies at times
	Failover  bool   // PostgreSQL is a cluster of Patroni, whose leader dies halfway
	Duration  time.Duration
	Seed      uint64
	Accounts  int
	KillEvery time.Duration // how long a gateway lives, about
	Logs      string        // a folder for the gateways' logs; none when empty
}

// defaultConfig is the settings of a full run.
func defaultConfig() Config {
	return Config{Who: "gateway", Duration: 10 * time.Minute, Seed: 1, Accounts: 50, KillEvery: 20 * time.Second}
}

func (c Config) name() string {
	if c.Who == "gateway" {
		return "Noncegate"
	}
	if kind := c.library(); kind != "" {
		return kind + " with Noncegate's package"
	}
	return c.Who
}

// library is what pays by way of our package for TypeScript; "" where that does not pay.
func (c Config) library() string {
	if kind, sdk := strings.CutPrefix(c.Who, "sdk-"); sdk {
		return kind
	}
	return ""
}

// withGateway says that the nonces come from the gateway, of which everything is expected.
func (c Config) withGateway() bool { return c.Who == "gateway" || c.library() != "" }

const (
	blockTime  = time.Second
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
	cfg       Config
	chain     *chaintest.Sim // asked and changed past the proxies
	accounts  []chaintest.Account
	byAddress map[common.Address]int
	proxies   []*chaintest.Proxy // ways to the chain's node
	nodes     nodes
	ledger    *ledger
	gateways  []*gateway // none with managers
	managers  *managers
	packaged  *packaged // with the package only

	chaos  context.Context // ends when things are to be calm
	toCalm context.CancelFunc

	mu       sync.Mutex // guards what follows
	counts   []count    // of the accounts
	happened map[string]int
	oopses   []string // what must not happen, and is no matter of the chain
}

func (s *soak) happens(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened[name]++
}

func (s *soak) oops(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Logf("MUST NOT HAPPEN: %s", text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oopses = append(s.oopses, text)
}

// detail is a line for who looks closely.
func (s *soak) detail(format string, args ...any) {
	if s.cfg.Logs != "" {
		s.Logf(format, args...)
	}
}

// run runs and reports. An error says that there was no run, not that it found something.
func run(ctx context.Context, cfg Config, out io.Writer) (report *Report, err error) {
	h := newHost(ctx, out)
	defer func() {
		if ended := h.close(); ended != nil {
			report, err = nil, ended
		}
	}()
	if err := h.try(func() { report = start(h, cfg).toTheEnd() }); err != nil {
		h.cancel(err)
	}
	return report, nil
}

func start(h *host, cfg Config) *soak {
	s := &soak{
		host: h, cfg: cfg, ledger: &ledger{byOwner: make(map[int][]*entry), byNonce: make(map[place][]*entry)},
		happened: make(map[string]int), byAddress: make(map[common.Address]int),
		chain: chaintest.StartSim(h, chaintest.SimConfig{Accounts: cfg.Accounts, FinalLag: finalDepth}),
	}
	s.chaos, s.toCalm = context.WithCancel(h.ctx)
	s.accounts = s.chain.Accounts
	for i, a := range s.accounts {
		s.byAddress[a.Address] = i
	}
	s.must(s.recount())
	s.proxies = []*chaintest.Proxy{chaintest.StartProxy(h, s.chain), chaintest.StartProxy(h, s.chain)}
	s.nodes = dialNodes(h, s.proxies)
	if kind := cfg.library(); kind != "" {
		s.packaged = startPackage(h, s, kind)
	}
	if cfg.withGateway() {
		s.gateways = startGateways(h, cfg, s.startStore(), fmt.Sprintf("--chain=eip155:%v=%s", s.chain.ChainID(), s.askedNodes()))
		h.spawn((&watcher{soak: s, mending: make([]sync.Mutex, cfg.Accounts)}).watch)
		h.spawn(s.killGateways)
	} else {
		s.managers = startManagers(h, cfg, s.chain, s.proxies)
	}
	s.Logf("%s: seed %d, %d accounts, %d workers, %v", cfg.name(), cfg.Seed, cfg.Accounts, workers, cfg.Duration)
	h.spawn(s.mine)
	for id := range workers {
		h.spawn((&worker{s, id}).run)
	}
	for i, p := range s.proxies {
		h.spawn(func() {
			s.haunt(fmt.Sprint("node ", i), p, s.draws(uint64(100+i)), troubles, 4*time.Second, 5*time.Second)
		})
	}
	return s
}

// askedNodes are the addresses of the nodes that the gateways ask.
func (s *soak) askedNodes() string {
	urls := []string{s.proxies[0].WS(), s.proxies[1].URL()}
	if s.cfg.Liar {
		liar := chaintest.StartProxy(s.host, s.chain)
		s.spawn(func() { s.lie(liar) })
		at := len(urls)
		if s.cfg.Seed%2 == 0 { // then blocks are read from it
			at = 0
		}
		urls = slices.Insert(urls, at, liar.URL())
	}
	return strings.Join(urls, ",")
}

// toTheEnd lets payments come for the duration, then calms everything down, drains and looks.
func (s *soak) toTheEnd() *Report {
	s.produce()
	s.Logf("calm: nothing fails from here on")
	s.toCalm()
	ended := s.drain()
	if len(s.gateways) > 0 {
		ended = s.closeAccounts() && ended
	}
	return s.look(ended)
}

// produce has payments come: one of each account, then of any.
func (s *soak) produce() {
	r := s.draws(400)
	end := time.Now().Add(s.cfg.Duration)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for n := 0; time.Now().Before(end); n++ {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		account := n
		if n >= s.cfg.Accounts {
			account = r.IntN(s.cfg.Accounts)
		}
		if _, _, waiting := s.ledger.size(); waiting < maxWaiting {
			s.ledger.add(account)
		}
		if n%(10*rate) == 0 {
			s.progress()
		}
	}
}

func (s *soak) progress() {
	all, undone, waiting := s.ledger.size()
	s.mu.Lock()
	crashes, kills := s.happened["crashes of workers"], s.happened["kills of gateways"]
	s.mu.Unlock()
	s.Logf("payments %d, not done %d, waiting %d; crashes %d, kills %d; block %d", all, undone, waiting, crashes, kills, s.height())
}

// drain waits until all payments are done, as long as some become so.
func (s *soak) drain() bool {
	before, last := -1, time.Now()
	for n := 1; time.Since(last) < patience && sleep(s.ctx, 200*time.Millisecond); n++ {
		_, undone, _ := s.ledger.size()
		if undone == 0 {
			return true
		}
		if undone != before {
			before, last = undone, time.Now()
		}
		if n%50 == 0 {
			s.progress()
		}
	}
	return false
}

// closeAccounts makes one more payment from each account, and as many as it takes to use the nonces that were given back last.
func (s *soak) closeAccounts() bool {
	s.Logf("one more payment from each account")
	c, err := s.dialGateways(s.ctx, 1)
	if err != nil {
		s.oops("after the run no gateway answers: %v", err)
		return false
	}
	defer c.Close()
	last := make([]*payment, s.cfg.Accounts)
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline) && s.ctx.Err() == nil; sleep(s.ctx, time.Second) {
		ready := true
		for account := range last {
			ready = s.isClosed(c, account, &last[account]) && ready
		}
		if ready {
			return s.drain()
		}
	}
	return false
}

// isClosed reports whether an account has nothing left to do. One that had no further payment, or has a nonce given back, makes one.
func (s *soak) isClosed(c *client.Client, account int, last **payment) bool {
	done := true
	s.ledger.locked(func() { done = *last == nil || (*last).done })
	if !done {
		return false
	}
	status, err := c.Status(s.ctx, s.signer(account))
	if *last == nil || err == nil && status.Released > 0 {
		s.happens("payments to close accounts")
		*last = s.ledger.add(account)
		return false
	}
	return err == nil && status.Held+status.Unknown == 0 && uint64(status.Next) == s.chain.Nonce(s.accounts[account].Address)
}

// signer is the name of an account at a gateway.
func (s *soak) signer(account int) string {
	return fmt.Sprintf("eip155:%v:%s", s.chain.ChainID(), strings.ToLower(s.accounts[account].Address.Hex()))
}

func (s *soak) accountOf(signer string) (int, bool) {
	account, ok := s.byAddress[common.HexToAddress(signer[strings.LastIndexByte(signer, ':')+1:])]
	return account, ok
}

func (s *soak) connect(ctx context.Context, worker int) (source, error) {
	if s.managers != nil {
		return &managedSource{s, s.managers}, nil
	}
	if s.packaged != nil {
		return s.startPackageSource(ctx, worker)
	}
	c, err := s.dialGateways(ctx, worker)
	return &gatewaySource{s, c}, err
}
