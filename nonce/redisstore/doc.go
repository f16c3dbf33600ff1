// Package redisstore is Redis as the performance engine uses it: nonce.Fast, and the
// streams of what Postgres is still to follow.
//
// # What is in Redis
//
// A fixed number of flush shards each has a hash tag, {noncegate:<cluster>:<shard>},
// so that all keys of a signer and the stream of its shard are on one server of a
// cluster. Behind the tag there is, per signer:
//
//	n:<signer>        hash: the state in the field s, whether it serves or is a copy in
//	                  the field serves, and a field for each row that is HELD, RELEASED,
//	                  or CONSUMED and not flushed yet
//	h:<signer>        sorted set: the HELD nonces by deadline, in microseconds
//	r:<signer>        sorted set: the RELEASED nonces, 19 digits, all of one score
//	q:<signer> <epoch> <id>
//	                  string: a request id, which expires by itself
//
// and per shard a stream, events, and a stream, dead. Scores and Lua's numbers are
// exact to 2^53; nonces, tokens, versions and attempts are compared as text.
//
// # What it promises
//
// Each script checks all that it depends on before its first write, and is refused
// before its first command by a server that may not write or has no memory left. So
// an answer says what happened: everything, nothing, or unknown (see nonce.Fast). The
// script names its arguments at the top of its file in lua/.
//
// The question who the server is goes at the end of the same pipeline. Another
// identity than the one believed takes every answer away, be it good or bad.
//
// Holds or released nonces that are missing as a whole, by whatever, are noticed by
// the next call: the state counts them. A row, the state itself and the hash are one
// key and go together. That a single request id was deleted by a foreign hand cannot
// be noticed.
//
// # What it does not promise
//
// Redis may lose what it acknowledged, by a restart, a failover or by hand; the
// callers notice by identity, missing keys or version, and the ceiling in Postgres
// bounds what it costs. Deadlines are by the clock of the store that the callers
// pass; only the retention of request ids runs by the clock of Redis.
//
// The package owns no goroutine that outlives a call. Who waits for events keeps one
// connection of the client's pool meanwhile.
//
// # What it costs
//
// With a signer of 50 characters, measured in Redis 7.0 (BenchmarkMemory): a signer
// without rows takes 170 bytes, with one hold 350; a further hold takes 55 bytes, and
// 170 where the signer has more than about 128 of them, when Redis keeps its sorted
// set, and above 512 rows its hash, in a faster form. A request id takes 230 bytes until
// its retention has passed, an event 120 bytes until it is flushed.
//
// A commit of one row takes 13 to 15 microseconds of the server's one thread where 16 or
// more go in a pipeline, the append-only file and the question for the identity
// included, and 25 to 40 where it goes alone; a new nonce more in the same commit takes 3, a
// comparison 5, an event on its way out 1 (BenchmarkCommit and those after it). On the
// wire a small commit is 0.7 kB, its answer 4 bytes, and the identity 1 kB a pipeline.
package redisstore
