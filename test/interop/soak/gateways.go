package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
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
	name string
	url  string
	args []string

	mu      sync.Mutex
	process *guarded.Process
}

func startGateways(h *host, cfg Config, chain string) *gateways {
	pg, err := pgtest.Start()
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() {
		if err := pg.Close(); err != nil {
			h.Logf("PostgreSQL: %v", err)
		}
	})
	database, err := pg.CreateDatabase(h.ctx)
	if err != nil {
		h.Fatalf("%v", err)
	}
	room, err := guarded.Open("soak", nil)
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() {
		if err := room.Close(); err != nil {
			h.Logf("gateways: %v", err)
		}
	})
	program := cfg.Gateway
	if program == "" {
		program = filepath.Join(room.Dir(), "gateway")
		if err := testenv.Build(h.ctx, program, nil); err != nil {
			h.Fatalf("%v", err)
		}
	}
	g := &gateways{h: h, room: room}
	for _, name := range []string{"a", "b"} {
		port, err := guarded.FreePort()
		if err != nil {
			h.Fatalf("%v", err)
		}
		listen := fmt.Sprintf("127.0.0.1:%d", port)
		node := &gateway{name: name, url: "ws://" + listen + "/ws", args: []string{
			program, "serve", "--node-id=" + name, "--listen=" + listen, "--admin-listen=127.0.0.1:0", "--store=" + pg.URL(database), chain,
			"--unknown-ttl=" + cfg.UnknownTTL.String(), "--hold-ttl=" + cfg.HoldTTL.String(), "--chain-gap-after=" + cfg.GapAfter.String(),
			"--lease-ttl=" + cfg.LeaseTTL.String(), "--chain-timeout=2s", "--log-format=text",
		}}
		g.nodes = append(g.nodes, node)
		h.Cleanup(func() { g.keepLog(node, cfg.Logs) })
		g.start(node)
	}
	return g
}

func (g *gateways) urls() (urls []string) {
	for _, n := range g.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

func (g *gateways) start(n *gateway) {
	n.mu.Lock()
	defer n.mu.Unlock()
	process, err := g.room.Start(n.name+".log", []string{"GORACE=halt_on_error=1"}, n.args...)
	if err != nil {
		g.h.Fatalf("start gateway %s: %v", n.name, err)
	}
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
	if err := n.process.End(syscall.SIGKILL, 10*time.Second); err != nil {
		g.h.Logf("kill gateway %s: %v", n.name, err)
	}
}

// stop ends the gateways in the orderly way, and says which did not.
func (g *gateways) stop() (errs []string) {
	for _, n := range g.nodes {
		n.mu.Lock()
		if err := n.process.End(syscall.SIGTERM, 30*time.Second); err != nil {
			errs = append(errs, fmt.Sprintf("gateway %s: %v", n.name, err))
		} else if err := n.process.Err(); err != nil {
			errs = append(errs, fmt.Sprintf("gateway %s ended with %v", n.name, err))
		}
		n.mu.Unlock()
	}
	return errs
}

// keepLog copies a gateway's log to a folder that outlives the run.
func (g *gateways) keepLog(n *gateway, folder string) {
	if folder == "" {
		return
	}
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "gateway-"+n.name+".log"), []byte(n.process.Log()), 0o644)
	}
	if err != nil {
		g.h.Logf("keep the log of gateway %s: %v", n.name, err)
	}
}
