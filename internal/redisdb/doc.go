// Package redisdb opens the Redis of a gateway and checks whether it may be used.
//
// It promises: a [DB] that Open returned has answered, accepted the credentials, and
// is a master of version 7.0 or later that evicts nothing, and no member of a cluster. Otherwise Open
// returns an error of one sentence that never holds a password.
//
// The client is made for callers that must know what happened: no command is sent
// twice, by no retry and no redirection; every wait is bounded, also that for a
// connection, and ends with the caller's context; nothing is cached. An error that
// is no answer of the server (see redis.Error) says that it is unknown whether the
// command ran.
//
// It does not promise that the server stays as it was; a caller that depends on that
// must call Check again. It does not check whether other programs write to this Redis.
//
// The package starts no goroutine of its own; those of go-redis end with Close.
package redisdb
