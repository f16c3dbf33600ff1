//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"noncegate/nonce/postgres"
	"noncegate/test/lab/guarded"
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
	// maxOverdue is how long after its deadline a hold may be open once everything is healed:
	// the grace, what is left of a lease, the second for which a shard stays free, two looks at
	// who has it, a sweep, and room for a machine that is busy.
	maxOverdue = grace + leaseTTL + 2*time.Second + sweepInterval + 2*time.Second
)

// shards is how many a database of a run has: few enough that signers share them.
const shards = 8

// What statements and faults know of the schema: how the rows of the signers named in $1 are
// locked, and those of their shards; and shardCommit, which is in the text of every commit of
// a node of mode worker-queue, and in no other statement.
const (
	lockSigners = `SELECT 1 FROM signer WHERE signer = ANY ($1) ORDER BY signer_id FOR UPDATE`
	lockShards  = `SELECT 1 FROM shard WHERE shard_id IN (SELECT shard_id FROM signer WHERE signer = ANY ($1)) ORDER BY shard_id FOR UPDATE`
	shardCommit = "\nlocked AS MATERIALIZED ("
)

// startTimeout bounds the start of a cluster, and of a node.
const startTimeout = 40 * time.Second

// StartPostgres starts the PostgreSQL of many runs, with a database that theirs are copied
// from.
func StartPostgres(ctx context.Context) (*pgtest.Server, error) {
	pg, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	if err := pg.SetTemplate(ctx, migrate); err != nil {
		return nil, errors.Join(err, pg.Close())
	}
	return pg, nil
}

func migrate(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url, shards, postgres.Config{})
	if err != nil {
		return err
	}
	return s.Close()
}

// Options are what the clusters of many runs share.
type Options struct {
	Postgres *pgtest.Server
	Gateway  string // the program, made by Build
	Clock    bool   // it was built with wrongClock
	// Offsets are by how much the wall clock of each node is wrong; nil: not at all.
	Offsets []time.Duration
	// Forward is given to --forward, of gateways that have it; "" leaves the default.
	Forward string
	Axis
	// Plain is the gateway without what Gateway has for the sake of runs on a file; "": none.
	Plain string
	// Points is how many moments of each round on a file are judged at which nobody was killed.
	// Each costs about the reading of the whole file.
	Points int
	// EngineArgs are more flags of the nodes that have a Redis, over the run's own.
	EngineArgs []string

	persistence int  // of Redis
	replica     bool // of Redis, from the start
	seed        uint64
	spares      int // that faults may start
}

// modes are the nodes of every cluster.
var modes = []member{{"w1", "worker-queue"}, {"w2", "worker-queue"}, {"b1", "basic"}}

// spares are nodes that are not there until a fault starts them.
var spares = []member{{"g1", "worker-queue"}, {"g2", "worker-queue"}}

type member struct{ id, mode string }

// cluster is three gateways over one database, and perhaps spares behind them in nodes.
type cluster struct {
	pg          *pgtest.Server
	database    string // name
	url         string // past all proxies
	room        *guarded.Room
	nodes       []*node
	engineRedis *redisSide // nil: there is no Redis
	chain       *chainSide // nil: there is no chain
}

// startCluster makes a database and starts the nodes. The caller must close.
func startCluster(ctx context.Context, o Options) (c *cluster, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the cluster did not start in time"))
	defer cancel()
	c = &cluster{pg: o.Postgres}
	made := c
	defer func() {
		if err != nil {
			err = errors.Join(err, made.close())
		}
	}()
	if c.database, err = c.pg.CreateDatabase(ctx); err != nil {
		return nil, err
	}
	c.url = c.pg.URL(c.database)
	if c.room, err = guarded.Open("torture", nil); err != nil {
		return nil, err
	}
	if o.Engine {
		if err := c.startRedis(ctx, o); err != nil {
			return nil, err
		}
	}
	more, engine, err := moreArgs(ctx, o)
	if err != nil {
		return nil, err
	}
	if o.Chain {
		if c.chain, err = startChain(o.seed); err != nil {
			return nil, err
		}
		more = append(more, c.chain.flags()...)
	}
	for i, m := range slices.Concat(modes, spares[:o.spares]) {
		n, err := newNode(c.room, o.Gateway, m.id, m.mode, c.url, c.pg.Addr())
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, more...)
		c.nodes = append(c.nodes, n)
		if o.Engine && !n.basic.Load() {
			if err := c.withRedis(n, slices.Concat(engine, o.EngineArgs)); err != nil {
				return nil, err
			}
		}
		if i < len(o.Offsets) && o.Offsets[i] != 0 {
			n.env = append(n.env, fmt.Sprintf("%s=%d", clockEnv, o.Offsets[i].Nanoseconds()))
		}
	}
	var all errgroup.Group
	for _, n := range c.nodes[:len(modes)] {
		all.Go(func() error { return n.start(ctx) })
	}
	return c, all.Wait()
}

// moreArgs are the settings between nodes, and those of nodes that have a Redis: what of them
// the gateway knows.
func moreArgs(ctx context.Context, o Options) (all, engine []string, err error) {
	help, err := exec.CommandContext(ctx, o.Gateway, "serve", "--help").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("ask the gateway for its flags: %w", err)
	}
	known := func(flag string) bool {
		name, _, _ := strings.Cut(flag, "=")
		return strings.Contains(string(help), name+"=")
	}
	all = []string{"--node-secret=known-to-the-torture-tests"}
	if o.Forward != "" {
		all = append(all, "--forward="+o.Forward)
	}
	unknown := func(flag string) bool { return !known(flag) }
	return slices.DeleteFunc(all, unknown), slices.DeleteFunc(engineFlags(o.seed), unknown), nil
}

// connect opens a session of the run's own to the database.
func (c *cluster) connect(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, c.url) }

// close ends what is left and drops the database.
func (c *cluster) close() error {
	var err error
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
	if c.database != "" {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		err = errors.Join(err, c.pg.DropDatabase(ctx, c.database))
	}
	return err
}
