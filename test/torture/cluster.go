//go:build unix

package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"noncegate/nonce/postgres"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/history"
	"noncegate/test/lab/pgtest"
)

// The times of the gateways of a run, as short as they may be, so that leases end,
// holds expire and nonces come round again within seconds.
const (
	leaseTTL      = time.Second
	holdTTL       = time.Second
	maxHold       = 2 * time.Second
	sweepInterval = 100 * time.Millisecond
	// grace is for how long after its deadline nobody ends a hold.
	grace = time.Second
	// maxOverdue is how long after its deadline a hold may be open once everything is healed: the grace, what is left of a lease,
	// the second for which a shard stays free, two looks at who has it, a sweep, and room for a machine that is busy.
	maxOverdue = grace + leaseTTL + 2*time.Second + sweepInterval + 2*time.Second
)

// shards is how many a database of a run has: few enough that signers share them.
const shards = 8

// What statements and faults know of the schema: how the rows of the signers named in $1 are locked, and those of their shards; and
// shardCommit, which is in the text of every commit of a node of mode worker-queue, and in no other statement.
const (
	lockSigners = `SELECT 1 FROM signer WHERE signer = ANY ($1) ORDER BY signer_id FOR UPDATE`
	lockShards  = `SELECT 1 FROM shard WHERE shard_id IN (SELECT shard_id FROM signer WHERE signer = ANY ($1)) ORDER BY shard_id FOR UPDATE`
	shardCommit = "\nlocked AS MATERIALIZED ("
)

// startTimeout bounds the start of a cluster, and of a node.
const startTimeout = 90 * time.Second

// StartPostgres starts the PostgreSQL of many runs, with a database that theirs are copied from.
func StartPostgres(ctx context.Context) (*pgtest.Server, error) {
	pg, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	err = pg.SetTemplate(ctx, func(ctx context.Context, url string) error {
		s, err := postgres.Open(ctx, url, shards, postgres.Config{})
		if err != nil {
			return err
		}
		return s.Close()
	})
	if err != nil {
		return nil, errors.Join(err, pg.Close())
	}
	return pg, nil
}

// members are the nodes of the axes postgres, engine and chain, in the order of cluster.nodes, and spares those behind them, which are not
// there until a fault starts them.
var (
	members = []member{{"w1", "worker-queue"}, {"w2", "worker-queue"}, {"b1", "basic"}}
	spares  = []member{{"g1", "worker-queue"}, {"g2", "worker-queue"}}
)

type member struct{ id, mode string }

// cluster is a run under way: three gateways over one database, and perhaps spares behind them in nodes, or one on a file; what
// stands beside them; and what is known of it all.
type cluster struct {
	Plan
	database    string        // name
	db          *pgxpool.Pool // past all proxies
	room        *guarded.Room
	nodes       []*node
	engineRedis *redisSide // nil: there is no Redis
	chain       *chainSide // nil: there is no chain
	file        *fileSide  // nil: the store is PostgreSQL

	began time.Time // of the load
	load  workload

	attended atomic.Bool // all signers were served once after the store had gone back

	mu      sync.Mutex // guards what faults write into h, engineRedis.others and outages
	h       *history.History
	outages []outage            // times without a primary
	found   []history.Violation // that the history does not show
}

// startCluster starts what a plan needs. The caller must close.
func startCluster(ctx context.Context, p Plan) (*cluster, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the cluster did not start in time"))
	defer cancel()
	c := &cluster{Plan: p, h: &history.History{GraceMs: grace.Milliseconds(), RowsBehind: p.Engine, Seed: p.Seed}}
	err := c.startServers(ctx)
	if err == nil {
		err = c.startNodes(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a cluster: %w", err), c.close())
	}
	return c, nil
}

// startServers makes a place for the store, and starts all that the gateways need.
func (c *cluster) startServers(ctx context.Context) (err error) {
	if c.room, err = guarded.Open("torture", nil); err != nil {
		return err
	}
	if c.File {
		c.file, err = newFileSide(c.room.Dir())
		return err
	}
	if c.Failover {
		return c.startFailover(ctx)
	}
	if c.database, err = c.Postgres.CreateDatabase(ctx); err != nil {
		return err
	}
	pool, err := pgxpool.ParseConfig(c.Postgres.URL(c.database))
	if err != nil {
		return err
	}
	pool.MaxConns = 16 // more than faults and looks have at a time, so that nobody waits
	if c.db, err = pgxpool.NewWithConfig(ctx, pool); err != nil {
		return err
	}
	if c.Engine {
		return c.startRedis(ctx)
	}
	if c.Chain {
		c.chain, err = startChain(c.Seed)
	}
	return err
}

// startNodes makes the nodes, and starts those that are no spares.
func (c *cluster) startNodes(ctx context.Context) error {
	now, later := members, []member(nil)
	if c.File {
		now = []member{{"n", []string{"worker-queue", "worker-queue", "basic"}[c.Seed%3]}}
	}
	if c.Failover {
		now = failoverMembers
	}
	if c.has(func(f Fault) bool { return f.Spares }) {
		later = spares
	}
	for _, m := range slices.Concat(now, later) {
		if err := c.newNode(m); err != nil {
			return err
		}
	}
	if c.has(func(f Fault) bool { return f.Offsets }) {
		for i, by := range []time.Duration{2 * leaseTTL, -2 * leaseTTL} {
			c.nodes[i].env = append(c.nodes[i].env, fmt.Sprintf("%s=%d", clockEnv, by.Nanoseconds()))
		}
	}
	var all errgroup.Group
	for _, n := range c.nodes[:len(now)] {
		all.Go(func() error { return n.start(ctx) })
	}
	return all.Wait()
}

// newNode makes a node that is not started yet, with its proxies.
func (c *cluster) newNode(m member) error {
	listen, err := guarded.FreeAddr()
	if err != nil {
		return err
	}
	n := &node{id: m.id, room: c.room, exe: c.Gateway, env: os.Environ(), file: c.file, setsBack: c.setsBack()}
	n.basic.Store(m.mode == "basic")
	c.nodes = append(c.nodes, n) // to be closed
	if n.net, err = pgtest.NewProxy(listen); err != nil {
		return err
	}
	n.url = "ws://" + n.net.Addr() + "/ws"
	// The times of all gateways, and nothing is forgotten.
	n.args = []string{
		"--listen=" + listen, "--node-id=" + m.id, "--advertise-url=" + n.url, "--node-secret=known-to-the-torture-tests",
		"--forward=" + cmp.Or(c.Forward, "on"), "--drain-timeout=2s", "--workers=2", "--max-holds=4096", "--log-level=info",
		"--lease-ttl=" + leaseTTL.String(), "--hold-ttl=" + holdTTL.String(), "--max-hold=" + maxHold.String(),
		"--sweep-interval=" + sweepInterval.String(), "--request-retention=0", "--consumed-retention=0",
	}
	if c.chain != nil {
		n.args = append(n.args, c.chain.flags()...)
	}
	if c.file != nil {
		n.args = append(n.args, "--store=sqlite:"+c.file.database())
		return nil
	}
	if c.Failover {
		n.args = append(n.args, "--store="+c.storeURL())
		return nil
	}
	var store, redis string
	if n.db, store, err = proxied(c.Postgres.Addr(), c.Postgres.URL(c.database)); err != nil {
		return err
	}
	n.args = append(n.args, "--store="+store)
	if c.engineRedis != nil && m.mode != "basic" {
		n.redis, redis, err = proxied(c.engineRedis.server.Addr(), c.engineRedis.server.URL())
		n.args = append(append(append(n.args, "--redis="+redis), engineFlags(c.Seed)...), c.EngineArgs...)
	}
	return err
}

// proxied is a proxy towards a server, and the server's URL that leads through it.
func proxied(addr, url string) (p *pgtest.Proxy, through string, err error) {
	if p, err = pgtest.NewProxy(addr); err == nil {
		through, err = p.URL(url)
	}
	return p, through, err
}

func (c *cluster) close() (err error) {
	for _, n := range c.nodes {
		err = errors.Join(err, n.close())
	}
	if c.room != nil {
		err = errors.Join(err, c.room.Close())
	}
	if c.engineRedis != nil {
		err = errors.Join(err, c.engineRedis.close())
	}
	if c.chain != nil {
		err = errors.Join(err, c.chain.close())
	}
	if c.db != nil {
		c.db.Close()
	}
	if c.database != "" {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		if c.Failover {
			return errors.Join(err, c.onPrimary(ctx, "DROP DATABASE IF EXISTS "+c.database+" WITH (FORCE)"))
		}
		err = errors.Join(err, c.Postgres.DropDatabase(ctx, c.database))
	}
	return err
}
