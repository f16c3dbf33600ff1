// Package performance is the performance engine: a log in front of the rows.
//
// A batch of a shard that has the engine is recorded in the shard's log, a stream in Redis. Its hand-outs
// are answered then; everything else is answered when the engine has shipped it to the rows of the store,
// in one statement for all shards of a worker. The engine is a service.Committer. It uses the memory, the rules and the rows of the service;
// a log holds nothing but a fence and the records that were not shipped yet.
//
// It promises: no nonce has two holders, whatever becomes of the logs' server, of the store or of a
// node; what a client was told is used stays used; a request whose record the log has is never told
// that nothing happened; while the owner of a shard lives, nothing is lost with the log. It does not
// promise that a hand-out is remembered when the log and the owner are lost together: then what may
// have been handed out is in doubt for the grant and the longest hold. It does not notice a server
// that is set back without changing its identity.
//
// Goroutines, which the service starts and stops: for each worker one that sends its shipments, and
// one that probes the logs' server and writes rehearsals. All else runs in the batches of the service's workers,
// whose lock guards the committer of the worker, its shards and their logs. The locks of this package
// (shipper.mu, reach.mu) are held briefly, and no other lock is taken under them.
//
// Where to begin reading: engine.go (what is kept of a shard and of a signer), commit.go (a batch, and
// when its answers are told), shipping.go (to the rows), takeover.go (a new owner, unknown appends, a
// loss), switch.go (up and down), then away.go (a store that does not answer), reach.go, rehearse.go and
// status.go.
package performance
