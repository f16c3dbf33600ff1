//go:build unix

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"noncegate/scripts/loadtest/access"
	"noncegate/scripts/loadtest/process"
	"noncegate/test/lab/fakenode"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

const (
	gatewayPostgres = "gateway-postgres"
	gatewayKeys     = "gateway-keys"
	gatewayChain    = "gateway-chain"
	gatewaySQLite   = "gateway-sqlite"
	echo            = "echo"
	echoCoalesce    = "echo-coalesce"
	naive           = "naive"
	redisIncr       = "redis-incr"
)

// gatewayFlags are the gateway's settings beside its addresses and its store. All
// others have their defaults: variables of the environment do not reach it.
// --max-holds is the most there can be, because one hot signer has an open hold for
// each of the 1,024 requests under way.
var gatewayFlags = []string{"--max-holds", "4096"}

// redisSettings are what the private Redis has beside the defaults of redistest:
// the usual durability, which is to lose up to a second.
var redisSettings = []string{"appendonly yes", "appendfsync everysec"}

const (
	readyTimeout = 30 * time.Second
	readyPoll    = 20 * time.Millisecond
	stopTimeout  = 30 * time.Second // longer than the gateway's drain timeout
	logBytes     = 2000             // of a server's output in an error
)

// store is what one server is started on.
type store struct {
	url      string
	redis    string        // URL of the Redis beside it; "": none
	nodes    []string      // URLs of the nodes of the chain that it asks
	greedyAt endpoint      // of a gateway beside it, for the greedy client
	postgres *pgtest.Proxy // before its PostgreSQL; nil: none
	release  func() error  // ends and deletes it
}

// openStore makes an empty store of the kind that the side's server has, or finds
// the filled one that it asks for.
func (a *arena) openStore(ctx context.Context, s Side) (store, error) {
	switch {
	case s.stored != stored{}:
		name, err := a.filledDatabase(ctx, s.stored)
		return store{url: a.pg.URL(name), release: nothing}, err
	case s.server == gatewaySQLite:
		dir := filepath.Join(a.room.Dir(), fmt.Sprintf("sqlite%d", a.runs))
		err := os.Mkdir(dir, 0o700)
		return store{url: "sqlite:" + filepath.Join(dir, "db"), release: func() error { return os.RemoveAll(dir) }}, err
	case s.server == redisIncr:
		redis, err := redistest.Start(redisSettings...)
		if err != nil {
			return store{}, err
		}
		return store{url: redis.URL(), release: redis.Close}, nil
	case !isGateway(s.server) && s.server != naive:
		return store{release: nothing}, nil
	}
	st, err := a.emptyDatabase(ctx)
	switch {
	case err != nil:
		return store{}, err
	case s.server == gatewayApart:
		return a.neighbour(ctx, st)
	case s.server == gatewayChain:
		return chainStore(st)
	case onRedis(s.server), isFar(s.server):
		return engineStore(st, a.pg.Addr(), s.server)
	}
	return st, nil
}

// isGateway reports whether a kind of server is a gateway; the others are those it is
// compared with.
func isGateway(kind string) bool { return strings.HasPrefix(kind, "gateway-") }

func nothing() error { return nil }

func (a *arena) emptyDatabase(ctx context.Context) (store, error) {
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return store{}, err
	}
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		return a.pg.DropDatabase(ctx, name)
	}
	return store{url: a.pg.URL(name), release: drop}, nil
}

type server struct {
	listen   string // its address
	url      string // of its WebSocket
	admin    string // URL of its private side, where it has one
	on       store
	access   access.Access // how its clients are let in
	greedyAt endpoint      // of the greedy client, where there is one
	proc     *guarded.Process
	// atStart is its resident memory before any connection, in bytes; 0 where
	// there is no /proc.
	atStart float64
}

// startServer starts a server and waits until it is ready. The caller must stop
// it.
func (a *arena) startServer(ctx context.Context, kind string, st store) (*server, error) {
	in := []access.Access{{}}
	var rights []string
	if who := principals(kind); len(who) > 0 {
		var err error
		if rights, in, err = a.letIn(ctx, st, who); err != nil {
			return nil, err
		}
	}
	s, err := a.launch(fmt.Sprintf("%d.log", a.runs), func(addr, admin string) []string {
		return append(a.command(kind, addr, admin, st), rights...)
	})
	if err != nil {
		return nil, err
	}
	s.on, s.access, s.greedyAt = st, in[0], st.greedyAt
	if len(in) > 1 {
		s.greedyAt = endpoint{s.url, in[1]}
	}
	ready := process.Listens(s.listen)
	if isGateway(kind) {
		ready = process.AnswersOK(s.admin + "/readyz")
	}
	if err := s.await(ctx, ready); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", kind, err), s.stop())
	}
	s.atStart = residentBytes(s.proc.PID())
	return s, nil
}

// launch starts a program at two free addresses.
func (a *arena) launch(log string, command func(addr, admin string) []string) (*server, error) {
	addr, err := guarded.FreeAddr()
	if err != nil {
		return nil, err
	}
	admin, err := guarded.FreeAddr()
	if err != nil {
		return nil, err
	}
	proc, err := a.room.Start(log, cleanEnvironment(), command(addr, admin)...)
	return &server{listen: addr, url: "ws://" + addr + "/ws", admin: "http://" + admin, proc: proc}, err
}

func (a *arena) command(kind, addr, admin string, st store) []string {
	gateway, ref := filepath.Join(a.room.Dir(), "gateway"), filepath.Join(a.room.Dir(), "refserver")
	switch {
	case isGateway(kind):
		args := []string{gateway, "serve", "--store", st.url, "--listen", addr, "--admin-listen", admin}
		if st.redis != "" {
			args = append(args, "--redis", st.redis, "--engine-rehearsal", "0s")
		}
		if kind == engineOutage {
			args = append(args, outageFlags...)
		}
		if len(st.nodes) > 0 {
			args = append(append(args, "--chain", loadChain+"="+strings.Join(st.nodes, ",")), chainFlags...)
		}
		return append(args, gatewayFlags...)
	case kind == naive:
		return []string{ref, naive, "-listen", addr, "-database", st.url}
	case kind == redisIncr:
		return []string{ref, redisIncr, "-listen", addr, "-redis", st.url}
	}
	return []string{ref, kind, "-listen", addr}
}

// letIn makes an API key for each of some principals, and a flag that names a file with
// their rights: to allocate and mark whatever signer.
func (a *arena) letIn(ctx context.Context, st store, who []string) (flag []string, in []access.Access, err error) {
	text := "principals:\n"
	for _, name := range who {
		key, err := a.makeKey(ctx, st, name)
		if err != nil {
			return nil, nil, err
		}
		one, err := access.New(key, "")
		if err != nil {
			return nil, nil, err
		}
		in = append(in, one)
		text += "  " + name + ":\n    - rights: [allocate, mark]\n      signers: [\"*\"]\n"
	}
	rights := filepath.Join(a.room.Dir(), fmt.Sprintf("rights%d.yaml", a.runs))
	return []string{"--rights", rights}, in, os.WriteFile(rights, []byte(text), 0o644)
}

func (a *arena) makeKey(ctx context.Context, st store, who string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(a.room.Dir(), "gateway"), "key", "create", who, "--store", st.url)
	cmd.Env = cleanEnvironment()
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("make an API key: %w\n%s", err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

func cleanEnvironment() (env []string) {
	for _, setting := range os.Environ() {
		if !strings.HasPrefix(setting, "NONCEGATE_") {
			env = append(env, setting)
		}
	}
	return env
}

func (s *server) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return s.proc.Await(ctx, readyPoll, ready)
}

// stop ends the server, asking first, and waits.
func (s *server) stop() error { return s.proc.End(syscall.SIGTERM, stopTimeout) }

// loadChain is the chain that the load's accounts are of, and chainNumber its number.
const (
	loadChain   = "eip155:1"
	chainNumber = 1
)

// chainFlags are the settings of a gateway that asks a chain, beside those of all: what is
// measured takes more nonces than the nodes of a chain would.
var chainFlags = []string{"--chain-window", "1000000000"}

// blockEvery is the time between the blocks of the chain, which are empty. It is that of
// several large chains; Ethereum's own is six times as long.
const blockEvery = 2 * time.Second

// chainStore adds to a store a chain with two nodes, which share the machine. When there
// is an error, nothing is left of either.
func chainStore(st store) (store, error) {
	chain := fakenode.NewChain(time.Now(), blockEvery)
	var nodes []*fakenode.Server
	for range 2 {
		n, err := fakenode.Serve(chain, chainNumber)
		if err != nil {
			return store{}, errors.Join(err, st.release())
		}
		n.SetFinal(n.Head())
		nodes, st = append(nodes, n), st.and(n.Close)
		st.nodes = append(st.nodes, n.URL())
	}
	stop := make(chan struct{})
	var works sync.WaitGroup
	works.Go(func() {
		tick := time.NewTicker(blockEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			head := chain.Extend(nodes[0].Head())
			for _, n := range nodes {
				n.SetHead(head)
			}
		}
	})
	return st.and(func() error {
		close(stop)
		works.Wait()
		return nil
	}), nil
}
