//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

// cluster is a number of gateways over one database. It belongs to one goroutine.
type cluster struct {
	arena    *arena
	database string // URL
	nodes    []*clusterNode
}

type clusterNode struct {
	*server
	kind nodeKind
	id   string
}

// startCluster starts gateways and waits until they know and reach one another.
// The caller must stop it.
func (a *arena) startCluster(ctx context.Context, database string, kinds []nodeKind) (*cluster, error) {
	cl := &cluster{arena: a, database: database}
	err := cl.start(ctx, kinds)
	if err == nil {
		err = cl.awaitFormed(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %d nodes: %w\n%s", len(kinds), err, cl.logTails()), cl.stop())
	}
	return cl, nil
}

func (cl *cluster) start(ctx context.Context, kinds []nodeKind) error {
	for i, kind := range kinds {
		id := fmt.Sprintf("node-%d", i+1)
		srv, err := cl.arena.launch(fmt.Sprintf("%d-%s.log", cl.arena.runs, id), func(addr, admin string) []string {
			gateway := cl.arena.command(gatewayPostgres, addr, admin, store{url: cl.database})
			return append(append(gateway, "--node-id", id), kind.flags()...)
		})
		if err != nil {
			return err
		}
		cl.nodes = append(cl.nodes, &clusterNode{srv, kind, id})
	}
	return nil
}

// awaitFormed waits until every node serves and knows all others, and those that
// forward have links to all to which they may.
func (cl *cluster) awaitFormed(ctx context.Context) error {
	for _, n := range cl.nodes {
		if err := n.await(ctx, process.AnswersOK(n.admin+"/readyz")); err != nil {
			return err
		}
		links := 0
		for _, other := range cl.nodes {
			if n.kind.forwards() && other != n && !other.kind.basic {
				links++
			}
		}
		formed := func(ctx context.Context) error {
			is, err := observe.Read(ctx, n.admin+"/metrics")
			if err != nil {
				return err
			}
			if live, linked := is["noncegate_nodes_live"], is["noncegate_peers_linked"]; live < float64(len(cl.nodes)) || linked < float64(links) {
				return fmt.Errorf("%s knows %.0f of %d nodes and has %.0f of %d links", n.id, live, len(cl.nodes), linked, links)
			}
			return nil
		}
		if err := n.await(ctx, formed); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all nodes together, as nobody is left to take their signers.
func (cl *cluster) stop() error {
	errs := make([]error, len(cl.nodes))
	var stopping sync.WaitGroup
	for i, n := range cl.nodes {
		stopping.Go(func() { errs[i] = n.stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

func (cl *cluster) urls() (urls []string) {
	for _, n := range cl.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

func (cl *cluster) logTails() string {
	var text strings.Builder
	for _, n := range cl.nodes {
		fmt.Fprintf(&text, "%s:\n%s\n", n.id, n.proc.LogTail(logBytes))
	}
	return text.String()
}

// metrics sums up what all nodes say of themselves.
func (cl *cluster) metrics(ctx context.Context) (observe.Metrics, error) {
	sum := make(observe.Metrics)
	for _, n := range cl.nodes {
		is, err := observe.Read(ctx, n.admin+"/metrics")
		if err != nil {
			return nil, fmt.Errorf("figures of %s: %w", n.id, err)
		}
		for name, v := range is {
			sum[name] += v
		}
	}
	return sum, nil
}

// owned are the signers in as many parts as there are nodes: those that each owns.
func (cl *cluster) owned(ctx context.Context, all traffic.Signers) ([]traffic.Signers, error) {
	conn, err := pgx.Connect(ctx, cl.database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return cl.byShard(ctx, conn, all, balanceRest)
}

// How long the nodes have to share the shards out, and how long nothing may move before
// they are believed to have done so.
const (
	balanceTimeout = 30 * time.Second
	balanceRest    = 3 * time.Second
	balancePoll    = 100 * time.Millisecond
)

// byShard waits until every node owns shards and none moves any more, and tells whose the
// signers are.
func (cl *cluster) byShard(ctx context.Context, conn *pgx.Conn, all traffic.Signers, still time.Duration) ([]traffic.Signers, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, balanceTimeout, errors.New("the nodes do not share the shards out"))
	defer cancel()
	var owners []string
	since := time.Now()
	err := wait.Until(ctx, balancePoll, func() (bool, error) {
		rows, err := conn.Query(ctx, `SELECT owner_node FROM shard ORDER BY shard_id`)
		if err != nil {
			return false, err
		}
		now, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return false, err
		}
		if !slices.Equal(now, owners) || !cl.shared(now) {
			owners, since = now, time.Now()
		}
		return time.Since(since) > still, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: they are of %v", err, owners)
	}
	return cl.divide(all, owners), nil
}

// shared reports whether every shard is of one of the nodes, and every node has one.
func (cl *cluster) shared(owners []string) bool {
	found := make([]bool, len(cl.nodes))
	for _, owner := range owners {
		i := cl.index(owner)
		if i < 0 {
			return false
		}
		found[i] = true
	}
	return !slices.Contains(found, false)
}

func (cl *cluster) index(id string) int {
	return slices.IndexFunc(cl.nodes, func(n *clusterNode) bool { return n.id == id })
}

// divide gives each node the signers of its shards.
func (cl *cluster) divide(all traffic.Signers, owners []string) []traffic.Signers {
	parts := make([]traffic.Signers, len(cl.nodes))
	for i := range all.Count {
		part := &parts[cl.index(owners[nonce.ShardOf(all.Name(i), len(owners))])]
		part.Accounts = append(part.Accounts, int64(i))
		part.Base, part.Count = all.Base, len(part.Accounts)
	}
	return parts
}
