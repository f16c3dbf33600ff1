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
// The Store owns a connection pool and no goroutine of its own.
package postgres
