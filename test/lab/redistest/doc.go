//go:build unix

// Package redistest runs a private Redis for tests and benchmarks, from the redis-server installed on the machine.
//
// A [Server] is a real server in a directory of its own: a random password, a Unix socket in that directory and a TCP port on the
// loopback address. As root it runs under the account redis or, where there is none, nobody. It can be stopped, killed, paused and
// started again at the same address, with what it had written. A [Cluster] is several of them as one Redis Cluster.
//
// Promises: when the binary is missing, Start says which package to install; nothing skips. No process and no directory outlives
// the process that called Start, however that process ends (see package guarded).
//
// Not promised: anything on a system that is not Unix; safety of the data after Close. A fault proxy between a client and Redis is
// pgtest's, which forwards any TCP.
//
// A Server owns one goroutine, which waits for the process and ends with it.
package redistest
