//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/scripts/loadtest/wait"
)

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

// index is the place of a node, or -1.
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
