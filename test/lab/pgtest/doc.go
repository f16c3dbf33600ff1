//go:build unix

// Package pgtest runs a private PostgreSQL for tests and benchmarks, from the
// server binaries installed on the machine, and bends the connection to it.
//
// A [Server] is a real server in a directory of its own: fsync on, a random password, a Unix socket in that directory and a TCP
// port on the loopback address. As root it runs under the account postgres or, where there is none, nobody, because Postgres
// refuses to be root. A [Proxy] stands in front of a server and cuts, refuses, delays or withholds traffic at a moment a test
// chooses.
//
// Promises: when the binaries are missing, Start says which package to install; nothing skips. No process and no directory outlives
// the process that called Start, however that process ends (see package guarded, whose guard has the postmaster end its children).
//
// Not promised: anything on a system that is not Unix; safety of the data after Close. The port is below the usual ephemeral range,
// so that a client dialling a stopped server can neither reach itself nor take the port.
//
// A Server owns one goroutine, which waits for the postmaster and ends with it. A Proxy owns its accept loop and two or three
// goroutines a connection; Close waits for them.
package pgtest
