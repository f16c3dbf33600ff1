package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
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
	url   string // of the process of Node.js
	http  *http.Client
	redis *redis.Client // instead of it
}

func startManagers(h *host, cfg Config, chain ground, proxies []*chaintest.Proxy) *managers {
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
	h.Fatalf("--who %s: want gateway, viem, ethers or redis, and +fresh behind the last three", cfg.Who)
	return nil
}

// listens is what the process says when it is ready.
var listens = regexp.MustCompile(`listens on (http://127\.0\.0\.1:\d+)`)

func startNode(h *host, args ...string) *managers {
	source, err := fs.Sub(packages, "npm")
	h.must(err)
	dir, err := npmtest.Folder(h.ctx, "soak", source)
	h.must(err)
	room, err := guarded.Open("managers", nil)
	h.must(err)
	h.closing("the nonce managers", room.Close)
	h.must(room.WriteFile("managers.mjs", managersProgram))
	h.must(os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(room.Dir(), "node_modules")))
	process, err := room.Start("log", nil, append([]string{"node", filepath.Join(room.Dir(), "managers.mjs")}, args...)...)
	h.must(err)
	m := &managers{http: &http.Client{Timeout: 20 * time.Second}}
	ctx, cancel := context.WithTimeout(h.ctx, 30*time.Second)
	defer cancel()
	h.must(process.Await(ctx, 100*time.Millisecond, func(context.Context) error {
		found := listens.FindStringSubmatch(process.LogTail(1000))
		if found == nil {
			return errors.New("the nonce managers do not say where they listen")
		}
		m.url = found[1]
		return nil
	}))
	h.Cleanup(m.http.CloseIdleConnections)
	return m
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
	var t ticket
	address := strings.ToLower(s.chain.all[p.account].Address.Hex())
	t.hold.Signer = address
	if s.m.redis != nil {
		n, err := s.m.redis.Incr(ctx, "nonce:"+address).Result()
		t.nonce = uint64(n - 1)
		return t, err
	}
	nonce, err := s.ask(ctx, "/take", address, nil)
	if err == nil && nonce == nil {
		err = errors.New("no nonce")
	}
	if err != nil {
		s.reset(ctx, address, nil)
		return t, err
	}
	t.nonce = *nonce
	return t, nil
}

func (s *managedSource) record(context.Context, ticket, string) error { return nil }

func (s *managedSource) used(context.Context, ticket, string) error { return nil }

func (s *managedSource) extend(context.Context, ticket, time.Duration) {}

func (s *managedSource) back(ctx context.Context, t ticket, _ bool) error {
	s.failed(ctx, t)
	return nil
}

func (s *managedSource) failed(ctx context.Context, t ticket) { s.reset(ctx, t.hold.Signer, &t.nonce) }

// reset is for libraries: a counter has nothing of the kind.
func (s *managedSource) reset(ctx context.Context, address string, nonce *uint64) {
	if s.m.redis == nil {
		s.count("resets")
		_, _ = s.ask(ctx, "/reset", address, nonce)
	}
}

func (s *managedSource) ask(ctx context.Context, path, address string, nonce *uint64) (*uint64, error) {
	body, err := json.Marshal(map[string]any{"address": address, "nonce": nonce})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.m.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	response, err := s.m.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, text)
	}
	var answer struct{ Nonce *uint64 }
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return answer.Nonce, err
}
