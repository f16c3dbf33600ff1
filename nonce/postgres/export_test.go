package postgres

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5/pgconn"
)

// ShardCommits are the texts of commits, of all forms but those of shipments.
func ShardCommits() (texts []string) {
	for _, f := range []form{0, formIDs, formIDs | formAll} {
		texts = append(texts, commitText(f), commitText(f|formSkipLocked), commitText(f|formBasic))
	}
	return texts
}

// ShardStatements are the texts of all others.
func ShardStatements() []string {
	return []string{
		startNode, leaveNode, renewLease, nodeIncarnation, showNodes, allShards, nodesShards, acquireShards, releaseShards,
		loadShardSigners, loadShardHistory, loadShardRequests, setLockWait, lockShardShared, lockShardsExclusive, lockShard, lockShardSigner, dueSigners, watchedSigners, knownRequests,
		listSigner, listHistory, listAsked, allSigners, theseSigners, troubled, openSigners, lastSigner, pruneHistory, pruneRequests,
	}
}

// ShardLockClass is the first key of the advisory locks of shards.
const ShardLockClass = shardLockClass

// Among them are one that looks for the highest key, one that reads ids of one signer, and one that
// reads a small index whole.
const (
	Troubled   = troubled
	LastSigner = lastSigner
	ListAsked  = listAsked
)

// RuntimeParams are the settings of every connection.
func RuntimeParams() map[string]string { return maps.Clone(runtimeParams()) }

// MaxConns is the size of the pool for a URL.
func MaxConns(url string, cfg Config) (int32, error) {
	cfg.URL = func() (string, error) { return url, nil }
	pc, err := poolConfig(cfg)
	if err != nil {
		return 0, err
	}
	return pc.MaxConns, nil
}

// OfDurability and Apart are parts of Advise.
var (
	OfDurability = ofDurability
	Apart        = apart
)

// BeginWatched and EndWatched are around a commit of a connection. cut reports whether its context has ended it.
func BeginWatched(conn *pgconn.PgConn, ctx context.Context) (driver context.Context, cut func() bool) {
	w := watchedOf(conn)
	return w.begin(ctx), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.cut
	}
}

// EndWatched takes the error of the commit.
func EndWatched(conn *pgconn.PgConn, err error) error { return watchedOf(conn).end(err) }
