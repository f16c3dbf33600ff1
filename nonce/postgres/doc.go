// Package postgres keeps signers in PostgreSQL, for one node or many.
//
// The fence is the signer's row: each write is one statement that first updates
// that row on the condition of owner, token and version, and everything else in
// the statement hangs on the row the update returned (statement.go). Nothing here
// relies on comparing times, on SERIALIZABLE, or on reading before writing.
//
// What it does not promise: with asynchronous replication a failover may lose
// acknowledged commits. Each new connection compares the system identifier and
// the timeline, and Epoch tells the service when they changed.
//
// ShardStore (shard_*.go) is another store with another schema: all that lives of a signer is
// one row, and the fence is the row of its shard, which a commit locks and compares before it
// compares the version of each signer. It adds a connection for heartbeats alone, and a lock
// for each of its two pruners, held while one deletes. The rest of this comment holds for it
// too.
//
// The Store owns a connection pool and no goroutine of its own.
package postgres
