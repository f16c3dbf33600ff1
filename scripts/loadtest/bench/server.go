//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/fakenode"
	labgateway "noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
	"noncegate/test/lab/redistest"
)

// The settings beside addresses and stores; no variable of the environment reaches a gateway. One hot signer has an open hold for each of
// the 1,024 requests under way. Redis has the usual durability, which is to lose up to a second.
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

// stand is the store and the servers of a side that is measured.
type stand struct {
	*arena
	*side
	store, redis, chain string // URLs
	servers             []*server
	ends                []func() error // in the order of their making
}

// server is one process.
type server struct {
	*guarded.Process
	id, url string // of the node, and of its WebSocket
	admin   string // URL of its private side, where it has one
}

func (st *stand) close() error {
	var errs []error
	for _, end := range slices.Backward(st.ends) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// begun keeps how what has begun is ended.
func (st *stand) begun(end func() error, err error) error {
	if err == nil {
		st.ends = append(st.ends, end)
	}
	return err
}

// open makes an empty store as the side's servers need it, or finds the filled one. It is to be closed also when this fails.
func (st *stand) open(ctx context.Context) error {
	switch st.server {
	case echo:
		return nil
	case sqlite, floor:
		st.store = filepath.Join(st.room.Dir(), fmt.Sprintf("store%d", st.runs))
		dir := st.store
		if st.server == sqlite {
			st.store = "sqlite:" + filepath.Join(dir, "db")
		}
		return st.begun(func() error { return os.RemoveAll(dir) }, os.Mkdir(dir, 0o700))
	}
	if st.side.full {
		name, err := st.fullDatabase(ctx)
		st.store = st.pg.URL(name)
		return err
	}
	name, err := st.pg.CreateDatabase(ctx)
	drop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
		defer cancel()
		return st.pg.DropDatabase(ctx, name)
	}
	if st.store = st.pg.URL(name); st.begun(drop, err) != nil {
		return err
	}
	if st.server == far || st.server == engineFar {
		proxy, err := pgtest.NewProxy(st.pg.Addr())
		if st.begun(proxy.Close, err) != nil {
			return err
		}
		proxy.DelayReplies(farAway)
		if st.store, err = proxy.URL(st.store); err != nil {
			return err
		}
	}
	if st.server == engineFar {
		redis, err := redistest.Start(redisSettings...)
		if st.begun(func() error { return redis.Close() }, err) != nil {
			return err
		}
		st.redis = redis.URL()
	}
	if st.server == chained {
		url, end, err := startChain()
		st.chain = url
		return st.begun(end, err)
	}
	return nil
}

// blockTime is short: a measurement has several blocks, after each of which the gateway asks for the counts of its signers.
const blockTime = time.Second

// startChain starts an Ethereum node whose chain grows and mines nothing, so that the gateway watches every signer all the time.
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

// start starts a side's servers and waits until they are ready.
func (st *stand) start(ctx context.Context) error {
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for i := range max(st.nodes, 1) {
		s := &server{id: fmt.Sprintf("node-%d", i+1)}
		if err := st.launch(ready, s); err != nil {
			return fmt.Errorf("%s: %w", st.server, err)
		}
		st.servers = append(st.servers, s)
		st.begun(func() error { return s.End(syscall.SIGTERM, stopTimeout) }, nil)
	}
	for _, s := range st.servers {
		if err := s.Await(ready, readyPoll, func(ctx context.Context) error { return s.serves(ctx, len(st.servers)) }); err != nil {
			return err
		}
	}
	if st.server == engineFar {
		_, err := st.gateway(ctx, "engine", "switch", "performance", "--wait", "--admin", st.servers[0].admin)
		return err
	}
	return nil
}

// launch starts one server. One that does not serve in the end is ended with the room.
func (st *stand) launch(ctx context.Context, s *server) error {
	log := fmt.Sprintf("%d-%s.log", st.runs, s.id)
	if strings.HasPrefix(st.server, gateway) {
		args := append([]string{"--store", st.store, "--node-id", s.id}, gatewayFlags...)
		if st.redis != "" {
			args = append(args, "--redis", st.redis, "--engine-rehearsal", "0s")
		}
		if st.chain != "" {
			args = append(args, "--chain", "eip155:1="+st.chain, "--chain-window", "1000000")
		}
		g, err := labgateway.Start(ctx, st.room, labgateway.Config{Program: filepath.Join(st.room.Dir(), "gateway"), Log: log, Args: args})
		if err == nil {
			s.Process, s.url, s.admin = g.Process, g.URL, g.Admin
		}
		return err
	}
	listen, err := guarded.FreeAddr()
	if err != nil {
		return err
	}
	s.url = "ws://" + listen + "/ws"
	args := []string{filepath.Join(st.room.Dir(), "refserver"), st.server, "-listen", listen}
	args = append(args, map[string][]string{naive: {"-database", st.store}, floor: {"-dir", st.store}}[st.server]...)
	s.Process, err = st.room.Start(log, nil, args...)
	return err
}

// serves reports why a server does not serve yet: a gateway linked to all other nodes, another one at all.
func (s *server) serves(ctx context.Context, nodes int) error {
	if s.admin == "" {
		return process.Answers(ctx, s.url)
	}
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

// What the full database has: so many nonces of each signer. The last one of every tenth is HELD for a day, the last but one of another
// tenth RELEASED, all others CONSUMED. The history is in the order of time, so that a signer's rows lie apart.
const fullEach = 20

var fullSigners = 1_000_000 // fewer in tests

// fullDatabase finds the filled database, or makes it.
func (a *arena) fullDatabase(ctx context.Context) (string, error) {
	if a.full != "" {
		return a.full, nil
	}
	begin := time.Now()
	fmt.Fprintln(a.Progress, "filling a database, which takes minutes")
	name, err := a.pg.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	url := a.pg.URL(name)
	if _, err := a.gateway(ctx, "migrate", "--store", url); err != nil {
		return "", err
	}
	if err := fill(ctx, url, fullSigners, fullEach); err != nil {
		return "", fmt.Errorf("fill a database: %w", err)
	}
	fmt.Fprintf(a.Progress, "filled after %v\n", time.Since(begin).Round(time.Second))
	a.full = name
	return name, nil
}

// The statements after the signers. Shards have been acquired and released once. History is what is not live.
const (
	fillShards  = `UPDATE shard SET fencing_token = 2`
	fillDue     = `INSERT INTO signer_due (signer_id, shard_id, due_at) SELECT signer_id, shard_id, $1 FROM signer WHERE signer_id % 10 = 0`
	fillHistory = `
INSERT INTO signer_history (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
SELECT signer_id, $1, 1, 0, int8send(signer_id) || int8send($1) || int8send(-$1) || int8send(-signer_id), '', store_millis()
FROM signer
WHERE NOT (signer_id % 10 = 0 AND $1 = next_nonce - 1 OR signer_id % 10 = 5 AND $1 = next_nonce - 2)
ORDER BY signer_id`
)

// fill writes the signers in an order without order, the same each time, so that those of a load lie all over the table.
func fill(ctx context.Context, url string, signers, each int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var shards int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM shard`).Scan(&shards); err != nil {
		return err
	}
	now, next := time.Now(), int64(each)
	due := now.Add(24 * time.Hour).UnixMilli()
	live := map[int][]byte{
		0: nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 1, Status: nonce.Held, Attempt: 1, Until: due}}),
		5: nonce.AppendLive(nil, []nonce.Entry{{Nonce: next - 2, Status: nonce.Released, Attempt: 1}}),
	}
	columns := []string{"signer", "shard_id", "version", "fencing_token", "next_nonce", "floor", "live", "updated_at"}
	accounts, order := traffic.Signers{Count: signers}, rand.New(rand.NewPCG(1, 1)).Perm(signers)
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"signer"}, columns, pgx.CopyFromSlice(signers, func(i int) ([]any, error) {
		name := accounts.Name(order[i])
		is := append([]byte{}, live[(i+1)%10]...)
		return []any{name, nonce.ShardOf(name, shards), 2 * next, int64(1), next, int64(0), is, now.UnixMilli()}, nil
	}))
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillShards); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, fillDue, due); err != nil {
		return err
	}
	for n := range next {
		if _, err := conn.Exec(ctx, fillHistory, n); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}
