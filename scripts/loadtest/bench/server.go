//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
	"noncegate/test/lab/fakenode"
	labgateway "noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// The settings of the servers beside their addresses and stores. All others have their defaults: variables of the environment do not reach
// a gateway. --max-holds is the most there can be, because one hot signer has an open hold for each of the 1,024 requests under way. Redis
// has the usual durability, which is to lose up to a second.
var (
	gatewayFlags     = []string{"--max-holds", "4096"}
	postgresSettings = []string{"shared_buffers = 256MB", "max_wal_size = 4GB"}
	redisSettings    = []string{"appendonly yes", "appendfsync everysec"}
)

const (
	readyTimeout = 30 * time.Second
	readyPoll    = 20 * time.Millisecond
	stopTimeout  = 30 * time.Second // longer than the gateway's drain timeout
	logBytes     = 2000             // of a server's output in an error
)

// store is what one side is started on.
type store struct {
	url, redis string
	chain      string         // URL of its node
	ends       []func() error // in the order of their making
}

func (st *store) close() error {
	var errs []error
	for _, end := range slices.Backward(st.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// openStore makes an empty store of the kind that the side's server has, or finds the filled one. It is to be closed also when it comes
// with an error.
func (a *arena) openStore(ctx context.Context, s *side) (*store, error) {
	st := new(store)
	switch {
	case s.full:
		name, err := a.fullDatabase(ctx)
		st.url = a.pg.URL(name)
		return st, err
	case s.server == echo:
		return st, nil
	case s.server == sqlite, s.server == floor:
		dir := filepath.Join(a.room.Dir(), fmt.Sprintf("store%d", a.runs))
		st.url = dir
		if s.server == sqlite {
			st.url = "sqlite:" + filepath.Join(dir, "db")
		}
		st.ends = append(st.ends, func() error { return os.RemoveAll(dir) })
		return st, os.Mkdir(dir, 0o700)
	}
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return st, err
	}
	st.url = a.pg.URL(name)
	st.ends = append(st.ends, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		return a.pg.DropDatabase(ctx, name)
	})
	if s.server == far || s.server == engineFar {
		proxy, err := pgtest.NewProxy(a.pg.Addr())
		if err != nil {
			return st, err
		}
		st.ends = append(st.ends, proxy.Close)
		proxy.DelayReplies(farAway)
		if st.url, err = proxy.URL(st.url); err != nil {
			return st, err
		}
	}
	if s.server == chained {
		var end func() error
		if st.chain, end, err = startChain(); err != nil {
			return st, err
		}
		st.ends = append(st.ends, end)
	}
	if s.server == engineFar {
		redis, err := redistest.Start(redisSettings...)
		if err != nil {
			return st, err
		}
		st.ends, st.redis = append(st.ends, redis.Close), redis.URL()
	}
	return st, nil
}

// blockTime is that of the chain. It is short, so that a measurement has several blocks, after each of which the gateway asks for the
// counts of the signers that it watches.
const blockTime = time.Second

// startChain starts an Ethereum node whose chain grows. No transaction of the load is ever mined, so that the gateway watches every signer
// all the time.
func startChain() (url string, end func() error, err error) {
	chain := fakenode.NewChain(time.Now(), blockTime)
	node, err := fakenode.Serve(chain, 1)
	if err != nil {
		return "", nil, err
	}
	node.SetFinal(chain.First())
	ctx, stop := context.WithCancel(context.Background())
	var growing sync.WaitGroup
	growing.Go(func() {
		for process.Sleep(ctx, blockTime) == nil {
			node.SetHead(chain.Extend(node.Head()))
		}
	})
	return strings.Replace(node.URL(), "http", "ws", 1), func() error {
		stop()
		growing.Wait()
		return node.Close()
	}, nil
}

// server is one process.
type server struct {
	kind  string
	store string // URL
	id    string // of the node
	url   string // of its WebSocket
	admin string // URL of its private side, where it has one
	proc  *guarded.Process
}

// servers are those of a side, which share a store.
type servers []*server

// startServers starts a side's servers and waits until they are ready. They are to be stopped also when they come with an error.
func (a *arena) startServers(ctx context.Context, side *side, st *store) (all servers, err error) {
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for i := range max(side.nodes, 1) {
		s := &server{kind: side.server, store: st.url, id: fmt.Sprintf("node-%d", i+1)}
		err := a.start(ready, s, st)
		if s.proc != nil {
			all = append(all, s)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", side.server, err)
		}
	}
	for _, s := range all {
		if isGateway(s.kind) {
			if err := s.proc.Await(ready, readyPoll, func(ctx context.Context) error { return s.serves(ctx, len(all)) }); err != nil {
				return all, err
			}
		}
	}
	if side.server == engineFar {
		_, err = a.gateway(ctx, "engine", "switch", "performance", "--wait", "--admin", all[0].admin)
	}
	return all, err
}

func (a *arena) start(ctx context.Context, s *server, st *store) error {
	log := fmt.Sprintf("%d-%s.log", a.runs, s.id)
	if isGateway(s.kind) {
		args := append([]string{"--store", st.url, "--node-id", s.id}, gatewayFlags...)
		if st.redis != "" {
			args = append(args, "--redis", st.redis, "--engine-rehearsal", "0s")
		}
		if st.chain != "" {
			args = append(args, "--chain", "eip155:1="+st.chain, "--chain-window", "1000000")
		}
		g, err := labgateway.Begin(a.room, labgateway.Config{Program: filepath.Join(a.room.Dir(), "gateway"), Log: log, Args: args})
		if err != nil {
			return err
		}
		s.proc = g.Process
		err = g.Serves(ctx)
		s.url, s.admin = g.URL, g.Admin
		return err
	}
	listen, err := guarded.FreeAddr()
	if err != nil {
		return err
	}
	s.url = "ws://" + listen + "/ws"
	args := []string{filepath.Join(a.room.Dir(), "refserver"), s.kind, "-listen", listen}
	args = append(args, map[string][]string{naive: {"-database", st.url}, floor: {"-dir", st.url}}[s.kind]...)
	if s.proc, err = a.room.Start(log, nil, args...); err != nil {
		return err
	}
	return s.proc.Await(ctx, readyPoll, func(ctx context.Context) error { return process.Answers(ctx, s.url) })
}

// isGateway reports whether a kind of server is a gateway; the others are those it is compared with.
func isGateway(kind string) bool { return strings.HasPrefix(kind, gateway) }

// serves reports why a gateway does not serve yet, linked to all other nodes.
func (s *server) serves(ctx context.Context, nodes int) error {
	if err := process.Answers(ctx, s.admin+"/readyz"); err != nil || nodes == 1 {
		return err
	}
	is, err := observe.Pages{}.Read(ctx, s.admin+"/metrics")
	live, linked := is["noncegate_nodes_live"], is["noncegate_peers_linked"]
	if err == nil && (live < float64(nodes) || linked < float64(nodes-1)) {
		err = fmt.Errorf("%s knows %.0f nodes and has %.0f links", s.id, live, linked)
	}
	return err
}

func (all servers) urls() (urls []string) {
	for _, s := range all {
		urls = append(urls, s.url)
	}
	return urls
}

func (all servers) stop() error {
	var stopping errgroup.Group
	for _, s := range all {
		stopping.Go(func() error { return s.proc.End(syscall.SIGTERM, stopTimeout) })
	}
	return stopping.Wait()
}

// gateway runs a small command of the gateway's, and returns what it says.
func (a *arena) gateway(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(a.room.Dir(), "gateway"), args...)
	cmd.Env = []string{}
	said, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("gateway %s: %w\n%s", args[0], err, said)
	}
	return string(said), err
}
