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

	"noncegate/internal/guarded"
	"noncegate/internal/pgtest"
)

// The times of the gateways of a run, as short as they may be, so that leases end,
// holds expire and nonces come round again within seconds.
const (
	leaseTTL      = time.Second
	holdTTL       = time.Second
	maxHold       = 2 * time.Second
	sweepInterval = 100 * time.Millisecond
)

// startTimeout bounds the start of a cluster, and of a node.
const startTimeout = 40 * time.Second

// StartPostgres starts the PostgreSQL of many runs of a heart, with a database that theirs
// are copied from.
func StartPostgres(ctx context.Context, heart string) (*pgtest.Server, error) {
	h, err := heartOf(heart)
	if err != nil {
		return nil, err
	}
	pg, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	if err := pg.SetTemplate(ctx, h.migrate); err != nil {
		return nil, errors.Join(err, pg.Close())
	}
	return pg, nil
}

// Options are what the clusters of many runs share.
type Options struct {
	// Heart is the one that the gateways serve with: "", or NewHeart. Postgres is of it.
	Heart    string
	Postgres *pgtest.Server
	Gateway  string // the program, made by Build
	Clock    bool   // it was built with WrongClock
	// Offsets are by how much the wall clock of each node is wrong; nil: not at all.
	Offsets []time.Duration
	// Forward is given to --forward, of gateways that have it; "" leaves the default.
	Forward string
	// Engine gives the nodes of mode worker-queue a Redis, and the performance engine
	// serves.
	Engine bool
	// Chain gives the gateways a chain, and clients who pay on it.
	Chain bool
	// EngineArgs are more flags of the nodes that have a Redis, over the run's own.
	EngineArgs []string

	persistence int  // of Redis
	replica     bool // of Redis, from the start
	seed        uint64
	guests      int // that faults may start
}

// modes are the nodes of every cluster.
var modes = []member{{"w1", "worker-queue"}, {"w2", "worker-queue"}, {"b1", "basic"}}

// guests are nodes that are not there until a fault starts them.
var guests = []member{{"g1", "worker-queue"}, {"g2", "worker-queue"}}

type member struct{ id, mode string }

// Cluster is three gateways over one database, and perhaps guests behind them in nodes.
type Cluster struct {
	pg       *pgtest.Server
	heart    *heart
	database string // name
	url      string // past all proxies
	room     *guarded.Room
	nodes    []*Node
	fast     *fastSide  // nil: there is no Redis
	chain    *chainSide // nil: there is no chain
}

// startCluster makes a database and starts the nodes. The caller must close.
func startCluster(ctx context.Context, o Options) (c *Cluster, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("the cluster did not start in time"))
	defer cancel()
	c = &Cluster{pg: o.Postgres}
	if c.heart, err = heartOf(o.Heart); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
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
		if err := c.startFast(ctx, o); err != nil {
			return nil, err
		}
	}
	more, err := moreArgs(ctx, o)
	if err != nil {
		return nil, err
	}
	more = append(more, c.heart.flags...)
	if o.Chain {
		if c.chain, err = startChain(o.seed); err != nil {
			return nil, err
		}
		more = append(more, c.chain.flags()...)
	}
	for i, m := range slices.Concat(modes, guests[:o.guests]) {
		n, err := newNode(c.room, o.Gateway, m.id, m.mode, c.url, c.pg.Addr())
		if err != nil {
			return nil, err
		}
		n.args = append(n.args, more...)
		c.nodes = append(c.nodes, n)
		if o.Engine && !n.basic.Load() {
			if err := c.withFast(n, o.EngineArgs); err != nil {
				return nil, err
			}
		}
		if i < len(o.Offsets) && o.Offsets[i] != 0 {
			n.env = append(n.env, fmt.Sprintf("%s=%d", clockEnv, o.Offsets[i].Nanoseconds()))
		}
	}
	var all errgroup.Group
	for _, n := range c.nodes[:len(modes)] {
		all.Go(func() error { return n.Start(ctx) })
	}
	return c, all.Wait()
}

// moreArgs are the settings between nodes.
func moreArgs(ctx context.Context, o Options) ([]string, error) {
	help, err := exec.CommandContext(ctx, o.Gateway, "serve", "--help").Output()
	if err != nil {
		return nil, fmt.Errorf("ask the gateway for its flags: %w", err)
	}
	var args []string
	if strings.Contains(string(help), "--node-secret") {
		args = append(args, "--node-secret=known-to-the-torture-tests")
	}
	if o.Forward != "" && strings.Contains(string(help), "--forward") {
		args = append(args, "--forward="+o.Forward)
	}
	return args, nil
}

// connect opens a session of the run's own to the database.
func (c *Cluster) connect(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, c.url) }

// close ends what is left and drops the database.
func (c *Cluster) close() error {
	var err error
	for _, n := range c.nodes {
		err = errors.Join(err, n.close())
	}
	if c.room != nil {
		err = errors.Join(err, c.room.Close())
	}
	if c.fast != nil {
		err = errors.Join(err, c.fast.close())
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
