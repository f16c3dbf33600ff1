// Package redisdb opens the Redis of a gateway and looks whether it may be used.
//
// It promises: a [DB] that Open returned has answered, let us in, and is what the
// gateway relies on: a master of version 7.0 or later that evicts nothing; on a
// cluster each master is, and every slot has one. What is not so is one sentence
// that never holds a password.
//
// The client is made for callers who must know what happened: no command is sent
// twice, by no retry and no redirection; every wait is bounded, also that for a
// connection, and ends with the caller's context; nothing is cached. An error that
// is no answer of the server (see redis.Error) says that it is unknown whether the
// command ran. On a cluster an answer MOVED or ASK says that it did not; the map
// of the cluster is read again by then, and trying once more is up to the caller.
//
// It does not promise that the server stays what it was: who depends on it calls
// Check again. It does not look at who else writes to this Redis.
//
// The package starts no goroutine of its own; those of go-redis end with Close.
package redisdb
