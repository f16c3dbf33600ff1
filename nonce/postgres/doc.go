// Package postgres keeps signers in PostgreSQL, for one node or many.
//
// The fence is the row of a shard: a commit is one statement that first locks the rows of its
// shards that are this node's, compares their token and engine, then updates each signer's row on the
// condition of its version, and everything else in the statement depends on the rows that the
// update returned (commit.sql). Nothing here relies on comparing times, on SERIALIZABLE,
// or on reading before writing.
//
// It does not promise that commits survive every failover: with asynchronous replication a
// failover may lose acknowledged commits. Each new connection compares the system identifier and
// the timeline, and Generation tells the service when they changed.
//
// The Store owns a connection pool and a connection for heartbeats alone, and has no goroutine
// beside those of the pools. Locks: Store.mu, briefly; one for each of its two pruners, held while
// one deletes; and that of the count of totals, held while the store is read.
//
// Where to begin reading: migrations/00001_init.sql (the rows), commit.sql and statement.go (the statement of a
// commit, part by part), commit.go (its outcome), load.go, nodes.go (leases and shards), log.go
// (what the performance engine adds), open.go (connections, and how a failover is noticed).
package postgres
