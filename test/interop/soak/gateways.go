package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	testenv "noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/patroni"
	"noncegate/test/lab/pgtest"
)

// gateway is a process of the gateway. mu is held while it is started or ended.
type gateway struct {
	h            *host
	name, listen string
	room         *guarded.Room
	config       testenv.Config

	mu      sync.Mutex
	process *testenv.Gateway
}

// startStore starts the PostgreSQL of the gateways, and returns its URL.
func (s *soak) startStore() (url string) {
	if s.cfg.Failover {
		ha, err := patroni.Start(s.ctx)
		s.must(err)
		s.closing("Patroni", ha.Close)
		s.spawn(func() { s.failOver(ha) })
		return ha.URL("postgres")
	}
	pg, err := pgtest.Start()
	s.must(err)
	s.closing("PostgreSQL", pg.Close)
	database, err := pg.CreateDatabase(s.ctx)
	s.must(err)
	return pg.URL(database)
}

// failOver kills the leader halfway, and starts it again once another one leads.
func (s *soak) failOver(ha *patroni.Cluster) {
	if !sleep(s.chaos, s.cfg.Duration/2) {
		return
	}
	leader, err := ha.AwaitLeader(s.ctx)
	s.must(err)
	s.Logf("kill -9 of %s, which leads", leader.Name)
	s.happens("kills of the leader of PostgreSQL")
	s.must(leader.Kill())
	next, err := ha.AwaitLeader(s.ctx)
	s.must(err)
	s.Logf("%s leads", next.Name)
	s.must(leader.Start())
}

func startGateways(h *host, cfg Config, store, chain string) (all []*gateway) {
	room, err := guarded.Open("soak", nil)
	h.must(err)
	h.closing("gateways", room.Close)
	program := filepath.Join(room.Dir(), "gateway")
	h.must(testenv.Build(h.ctx, program, nil))
	for _, name := range []string{"a", "b"} {
		listen, err := guarded.FreeAddr()
		h.must(err)
		g := &gateway{h: h, name: name, listen: listen, room: room, config: testenv.Config{
			Program: program, Log: name + ".log", Env: []string{"GORACE=halt_on_error=1"}, Args: []string{
				"--node-id=" + name, "--listen=" + listen, "--store=" + store, chain,
				"--unknown-ttl=" + unknownTTL.String(), "--hold-ttl=" + holdTTL.String(), "--chain-gap-after=" + gapAfter.String(),
				"--lease-ttl=" + leaseTTL.String(), "--chain-timeout=2s", "--log-format=text",
			},
		}}
		if cfg.Logs != "" {
			h.must(os.MkdirAll(cfg.Logs, 0o755))
			h.closing("keep the log of gateway "+name, func() error {
				return os.WriteFile(filepath.Join(cfg.Logs, "gateway-"+name+".log"), []byte(g.process.Log()), 0o644)
			})
		}
		g.start()
		all = append(all, g)
	}
	return all
}

// start does not wait until the gateway serves: its clients do.
func (g *gateway) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	process, err := testenv.Begin(g.room, g.config)
	g.h.must(err)
	g.process = process
}

// kill ends a gateway as a crash does. That it has ended before by itself ends the run.
func (g *gateway) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.process.Exited():
		g.h.Fatalf("gateway %s has ended by itself: %v\n%s", g.name, g.process.Err(), g.process.LogTail(4000))
	default:
		g.h.must(g.process.Kill())
	}
}

// stop ends a gateway in the orderly way, and says what went wrong with that.
func (g *gateway) stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.process.Stop(); err != nil {
		return fmt.Errorf("gateway %s: %w", g.name, err)
	}
	return nil
}

func (s *soak) killGateways() {
	r := s.draws(300)
	for sleep(s.chaos, between(r, s.cfg.KillEvery*3/4, s.cfg.KillEvery*5/4)) {
		victims := s.gateways[r.IntN(2):][:1]
		if r.IntN(4) == 0 {
			victims = s.gateways
			s.happens("kills of both gateways")
		}
		for _, v := range victims {
			s.detail("kill -9 of gateway %s", v.name)
			s.happens("kills of gateways")
			v.kill()
		}
		sleep(s.chaos, between(r, 300*time.Millisecond, 3*time.Second))
		for _, v := range victims {
			v.start()
		}
	}
}
