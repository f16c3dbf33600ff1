package postgres

import (
	"maps"
	"slices"
)

// ShardCommits are the texts of commits: with all parts, with each part but one, and with each alone.
// A part is planned by itself, whatever the others are.
func ShardCommits() (texts []string) {
	const all = partUpdates | partInserts | partChecks | partHistory | partRequests | partDues | partFree
	sets := []shardParts{all}
	for p := shardParts(1); p <= partFree; p <<= 1 {
		sets = append(sets, all&^p)
		if p&(partUpdates|partInserts|partChecks) != 0 {
			sets = append(sets, p, p|partDues)
		}
		if p&(partHistory|partRequests) != 0 {
			sets = append(sets, p|partUpdates, p|partInserts, p|partHistory|partAgain|partUpdates)
		}
	}
	for _, p := range sets {
		texts = append(texts, commitShards(p), commitShards(p|partBasic))
		if p&partDues != 0 {
			texts = append(texts, commitShards(p|partWatch), commitShards(p|partBasic|partWatch))
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
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
