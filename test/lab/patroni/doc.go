// Package patroni runs a PostgreSQL that fails over: three members of Patroni and three of etcd, as ordinary processes of this machine,
// with the very configuration of deploy/patroni. As root they run under the account postgres.
//
// A [Cluster] makes them; a [Member] is one host of Patroni and its PostgreSQL, which can be killed, paused and started again. What a
// member's standbys and rewinds read of it goes through a proxy, so that replication can be cut while clients are served.
//
// Promises: where a program is missing, [Missing] and [Start] say in one sentence what to install; nothing skips. No process and no
// folder outlives the process that called Start, however that ends (see package guarded): each Patroni runs beneath a shell that ends it,
// and the PostgreSQL that it leaves behind.
//
// Not promised: anything on a system other than Linux, whose /proc says which processes are a member's.
package patroni
