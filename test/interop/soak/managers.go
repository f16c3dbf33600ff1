package main

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/redis/go-redis/v9"

	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/npm"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/redistest"
)

//go:embed managers.mjs
var managersProgram string

// managers is where nonces come from when it is not a gateway: one process or server for all workers, which is never killed.
type managers struct {
	node  *rpc.Client   // asks the process of Node.js
	redis *redis.Client // instead of it
}

// managerTimeout bounds a question.
const managerTimeout = 20 * time.Second

func startManagers(h *host, cfg Config, chain *chaintest.Sim, proxies []*chaintest.Proxy) *managers {
	switch cfg.Who {
	case "redis":
		server, err := redistest.Start()
		h.must(err)
		h.closing("Redis", server.Close)
		options, err := redis.ParseURL(server.URL())
		h.must(err)
		options.MaxRetries = -1 // an INCR that has timed out may have run
		client := redis.NewClient(options)
		h.closing("Redis", client.Close)
		return &managers{redis: client}
	case "viem", "ethers":
		return startNode(h, cfg.Who, chain.ChainID().String(), proxies[0].URL(), proxies[1].URL())
	}
	h.Fatalf("--who %s: want gateway, viem, ethers or redis", cfg.Who)
	return nil
}

// listens is what the process says when it is ready.
var listens = regexp.MustCompile(`listens on (http://127\.0\.0\.1:\d+)`)

// listensOn waits until a program of Node.js says where it listens.
func listensOn(ctx context.Context, process *guarded.Process) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var found []string
	err := process.Await(ctx, 100*time.Millisecond, func(context.Context) error {
		if found = listens.FindStringSubmatch(process.LogTail(1000)); found == nil {
			return errors.New("it does not say where it listens")
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return found[1], nil
}

func startNode(h *host, args ...string) *managers {
	dir, err := npm.Folder(h.ctx)
	h.must(err)
	room, err := guarded.Open("managers", nil)
	h.must(err)
	h.closing("the nonce managers", room.Close)
	h.must(room.WriteFile("managers.mjs", managersProgram))
	h.must(os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(room.Dir(), "node_modules")))
	process, err := room.Start("log", nil, append([]string{"node", filepath.Join(room.Dir(), "managers.mjs")}, args...)...)
	h.must(err)
	url, err := listensOn(h.ctx, process)
	h.must(err)
	m := new(managers)
	m.node, err = rpc.DialContext(h.ctx, url)
	h.must(err)
	h.Cleanup(m.node.Close)
	return m
}

// managedSource is a worker's connection to the managers. It knows nothing of records and
// marks; what the managers offer for a failed send it uses whenever something went wrong.
type managedSource struct {
	*soak
	m *managers
}

func (s *managedSource) close() {}

func (s *managedSource) take(ctx context.Context, p *payment, _ plan) (t ticket, err error) {
	ctx, cancel := context.WithTimeout(ctx, managerTimeout)
	defer cancel()
	address := strings.ToLower(s.accounts[p.account].Address.Hex())
	t.hold.Signer = address
	if s.m.redis != nil {
		n, err := s.m.redis.Incr(ctx, "nonce:"+address).Result()
		t.nonce = uint64(n - 1)
		return t, err
	}
	if err = s.m.node.CallContext(ctx, &t.nonce, "take", address); err != nil {
		s.reset(address, nil)
	}
	return t, err
}

func (s *managedSource) record(context.Context, ticket, string) error { return nil }

func (s *managedSource) used(context.Context, ticket, string) error { return nil }

func (s *managedSource) extend(context.Context, ticket, time.Duration) {}

func (s *managedSource) back(ctx context.Context, t ticket, _ bool) error {
	s.failed(ctx, t)
	return nil
}

func (s *managedSource) failed(_ context.Context, t ticket) { s.reset(t.hold.Signer, &t.nonce) }

// reset is for libraries: a counter has nothing of the kind.
func (s *managedSource) reset(address string, nonce *uint64) {
	if s.m.redis == nil {
		s.happens("resets")
		ctx, cancel := context.WithTimeout(s.ctx, managerTimeout)
		defer cancel()
		_ = s.m.node.CallContext(ctx, nil, "reset", address, nonce)
	}
}
