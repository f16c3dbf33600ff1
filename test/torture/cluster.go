//go:build unix

package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
const startTimeout = 40 * time.Second

// StartPostgres starts the PostgreSQL of many runs, with a database that theirs are copied from.
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
	Clock    bool   // its clock may be wrong
	// Offsets are by how much the wall clock of each node is wrong; nil: not at all.
	Offsets []time.Duration
	// Forward is given to --forward, of gateways that have it; "" leaves the default.
	Forward string
	Axis
	// EngineArgs are more flags of the nodes that have a Redis, over the run's own.
	EngineArgs []string

	replica bool // of Redis, from the start
	seed    uint64
	spares  int // that faults may start
}

// modes are the nodes of every cluster.
var modes = []member{{"w1", "worker-queue"}, {"w2", "worker-queue"}, {"b1", "basic"}}

// spares are nodes that are not there until a fault starts them.
var spares = []member{{"g1", "worker-queue"}, {"g2", "worker-queue"}}

type member struct{ id, mode string }

// cluster is three gateways over one database, and perhaps spares behind them in nodes; or one on a file.
type cluster struct {
	pg          *pgtest.Server
	database    string // name
	url         string // past all proxies
	room        *guarded.Room
	nodes       []*node
	engineRedis *redisSide // nil: there is no Redis
	chain       *chainSide // nil: there is no chain
	file        *fileSide  // nil: the store is PostgreSQL
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
	if c.room, err = guarded.Open("torture", nil); err != nil {
		return nil, err
	}
	members := slices.Concat(modes, spares[:o.spares])
	if o.File {
		members = []member{{"n", []string{"worker-queue", "worker-queue", "basic"}[o.seed%3]}}
		c.file = &fileSide{room: c.room.Dir(), disk: newDisk(nil, rand.New(rand.NewPCG(o.seed, 4000)))}
		err = os.Mkdir(c.file.store(), 0o700)
	} else if c.database, err = c.pg.CreateDatabase(ctx); err == nil {
		c.url = c.pg.URL(c.database)
	}
	if err == nil && o.Engine {
		err = c.startRedis(ctx, o)
	}
	more := []string{"--node-secret=known-to-the-torture-tests"}
	if o.Forward != "" {
		more = append(more, "--forward="+o.Forward)
	}
	if err == nil && o.Chain {
		if c.chain, err = startChain(o.seed); err == nil {
			more = append(more, c.chain.flags()...)
		}
	}
	for i, m := range members {
		if err != nil {
			return nil, err
		}
		var n *node
		if n, err = c.newNode(o.Gateway, m); err != nil {
			return nil, err
		}
		n.args = append(n.args, more...)
		if o.Engine && !n.basic.Load() {
			err = c.withRedis(n, slices.Concat(engineFlags(o.seed), o.EngineArgs))
		}
		if i < len(o.Offsets) && o.Offsets[i] != 0 {
			n.env = append(n.env, fmt.Sprintf("%s=%d", clockEnv, o.Offsets[i].Nanoseconds()))
		}
	}
	var all errgroup.Group
	for _, n := range c.nodes[:len(members)-o.spares] {
		all.Go(func() error { return n.start(ctx) })
	}
	return c, errors.Join(err, all.Wait())
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
