package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/test/interop/chaintest"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/npmtest"
	"noncegate/test/lab/redistest"
)

//go:embed npm/package.json npm/package-lock.json npm/.npmrc
var packages embed.FS

//go:embed npm/managers.mjs
var managersProgram string

// managers is where nonces come from when it is not a gateway: one process or server for
// all workers, which is never killed.
type managers struct {
	url  string // of the process of Node.js
	http *http.Client

	redis *redis.Client // instead of it
}

func startManagers(h *host, cfg Config, chain ground, proxies []*chaintest.Proxy) *managers {
	switch cfg.Who {
	case "redis":
		return startRedis(h)
	case "viem", "ethers":
		return startNode(h, cfg.Who, chain.ChainID().String(), proxies[0].URL(), proxies[1].URL())
	}
	h.Fatalf("--who %s: want gateway, viem, ethers or redis, and +fresh behind the last three", cfg.Who)
	return nil
}

func startRedis(h *host) *managers {
	server, err := redistest.Start()
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() { _ = server.Close() })
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		h.Fatalf("%v", err)
	}
	options.MaxRetries = -1 // an INCR that has timed out may have run
	client := redis.NewClient(options)
	h.Cleanup(func() { _ = client.Close() })
	return &managers{redis: client}
}

// listens is what the process says when it is ready.
var listens = regexp.MustCompile(`listens on (http://127\.0\.0\.1:\d+)`)

func startNode(h *host, args ...string) *managers {
	source, err := fs.Sub(packages, "npm")
	if err != nil {
		h.Fatalf("%v", err)
	}
	dir, err := npmtest.Folder(h.ctx, "soak", source)
	if err != nil {
		h.Fatalf("%v", err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		h.Fatalf("%v", err)
	}
	room, err := guarded.Open("managers", nil)
	if err != nil {
		h.Fatalf("%v", err)
	}
	h.Cleanup(func() { _ = room.Close() })
	program := filepath.Join(room.Dir(), "managers.mjs")
	if err := room.WriteFile("managers.mjs", managersProgram); err != nil {
		h.Fatalf("%v", err)
	}
	if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(room.Dir(), "node_modules")); err != nil {
		h.Fatalf("%v", err)
	}
	process, err := room.Start("log", nil, append([]string{node, program}, args...)...)
	if err != nil {
		h.Fatalf("%v", err)
	}
	for range 200 {
		if found := listens.FindStringSubmatch(process.LogTail(1000)); found != nil {
			m := &managers{url: found[1], http: &http.Client{Timeout: 20 * time.Second}}
			h.Cleanup(m.http.CloseIdleConnections)
			return m
		}
		sleep(h.ctx, 100*time.Millisecond)
	}
	h.Fatalf("the nonce managers did not start:\n%s", process.LogTail(4000))
	return nil
}

func (m *managers) source(s *soak) source {
	ctx, cancel := context.WithCancel(s.ctx)
	return &managedSource{s, m, ctx, cancel}
}

// managedSource is a worker's connection to the managers. It knows nothing of records and
// marks; what the managers offer for a failed send it uses whenever something went wrong.
type managedSource struct {
	*soak
	m      *managers
	ctx    context.Context
	cancel context.CancelFunc
}

func (s *managedSource) close() { s.cancel() }

func (s *managedSource) take(ctx context.Context, p *payment, _ plan) (ticket, error) {
	s.counts.calls.Add(1)
	t := ticket{style: markAfter}
	address := s.address(p.account)
	t.hold.Signer = address
	if s.m.redis != nil {
		n, err := s.m.redis.Incr(ctx, "nonce:"+address).Result()
		t.nonce = uint64(n - 1)
		return t, err
	}
	var answer struct{ Nonce *uint64 }
	err := s.ask(ctx, "/take", address, nil, &answer)
	if err == nil && answer.Nonce == nil {
		err = fmt.Errorf("no nonce")
	}
	if err != nil {
		s.reset(ctx, address, nil)
		return t, err
	}
	t.nonce = *answer.Nonce
	return t, nil
}

func (s *managedSource) record(context.Context, ticket, string) error { return nil }

func (s *managedSource) used(context.Context, ticket, string) error { return nil }

func (s *managedSource) back(ctx context.Context, t ticket, _ bool) error {
	s.failed(ctx, t)
	return nil
}

func (s *managedSource) failed(ctx context.Context, t ticket) { s.reset(ctx, t.hold.Signer, &t.nonce) }

func (s *managedSource) reset(ctx context.Context, address string, nonce *uint64) {
	if s.m.redis != nil {
		return // a counter has nothing of the kind
	}
	s.counts.resets.Add(1)
	_ = s.ask(ctx, "/reset", address, nonce, nil)
}

func (s *managedSource) address(account int) string {
	return strings.ToLower(s.chain.all[account].Address.Hex())
}

func (s *managedSource) ask(ctx context.Context, path, address string, nonce *uint64, answer any) error {
	body, err := json.Marshal(map[string]any{"address": address, "nonce": nonce})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.m.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := s.m.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
