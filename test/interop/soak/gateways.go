package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	testenv "noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// gateways are the processes of the gateway over one PostgreSQL.
type gateways struct {
	h     *host
	room  *guarded.Room
	nodes []*gateway
}

// gateway is one of them. mu is held while it is started or ended.
type gateway struct {
	name, listen string
	config       testenv.Config

	mu      sync.Mutex
	process *testenv.Gateway
}

func startGateways(h *host, cfg Config, chain string) *gateways {
	pg, err := pgtest.Start()
	h.must(err)
	h.closing("PostgreSQL", pg.Close)
	database, err := pg.CreateDatabase(h.ctx)
	h.must(err)
	room, err := guarded.Open("soak", nil)
	h.must(err)
	h.closing("gateways", room.Close)
	program := cfg.Gateway
	if program == "" {
		program = filepath.Join(room.Dir(), "gateway")
		h.must(testenv.Build(h.ctx, program, nil))
	}
	g := &gateways{h: h, room: room}
	for _, name := range []string{"a", "b"} {
		listen, err := guarded.FreeAddr()
		h.must(err)
		node := &gateway{name: name, listen: listen, config: testenv.Config{
			Program: program, Log: name + ".log", Env: []string{"GORACE=halt_on_error=1"}, Args: []string{
				"--node-id=" + name, "--listen=" + listen, "--store=" + pg.URL(database), chain,
				"--unknown-ttl=" + unknownTTL.String(), "--hold-ttl=" + holdTTL.String(), "--chain-gap-after=" + gapAfter.String(),
				"--lease-ttl=" + leaseTTL.String(), "--chain-timeout=2s", "--log-format=text",
			},
		}}
		g.nodes = append(g.nodes, node)
		if cfg.Logs != "" {
			h.closing("keep the log of gateway "+name, func() error { return node.keepLog(cfg.Logs) })
		}
		g.start(node)
	}
	return g
}

func (g *gateways) urls() (urls []string) {
	for _, n := range g.nodes {
		urls = append(urls, "ws://"+n.listen+"/ws")
	}
	return urls
}

// start does not wait until the gateway serves: its clients do.
func (g *gateways) start(n *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	process, err := testenv.Begin(g.room, n.config)
	g.h.must(err)
	n.process = process
}

// kill ends a gateway as a crash does. That it has ended before by itself ends the run.
func (g *gateways) kill(n *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.process.Exited():
		g.h.Fatalf("gateway %s has ended by itself: %v\n%s", n.name, n.process.Err(), n.process.LogTail(4000))
	default:
	}
	if err := n.process.Kill(); err != nil {
		g.h.Logf("kill gateway %s: %v", n.name, err)
	}
}

// stop ends the gateways in the orderly way, and says which did not.
func (g *gateways) stop() (errs []string) {
	for _, n := range g.nodes {
		n.mu.Lock()
		if err := n.process.Stop(); err != nil {
			errs = append(errs, fmt.Sprintf("gateway %s: %v", n.name, err))
		}
		n.mu.Unlock()
	}
	return errs
}

// keepLog copies a gateway's log to a folder that outlives the run.
func (n *gateway) keepLog(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "gateway-"+n.name+".log"), []byte(n.process.Log()), 0o644)
}

// killGateways kills them in turns until things are calm.
func (s *soak) killGateways() {
	r := s.draws(300)
	for sleep(s.chaos, between(r, s.cfg.KillEvery*3/4, s.cfg.KillEvery*5/4)) {
		victims := s.gateways.nodes[r.IntN(2):][:1]
		if r.IntN(4) == 0 {
			victims = s.gateways.nodes
			s.count("kills of both gateways")
		}
		for _, v := range victims {
			s.detail("kill -9 of gateway %s", v.name)
			s.count("kills of gateways")
			s.gateways.kill(v)
		}
		sleep(s.chaos, between(r, 300*time.Millisecond, 3*time.Second))
		for _, v := range victims {
			s.gateways.start(v)
		}
	}
}
