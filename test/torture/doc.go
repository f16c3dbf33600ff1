//go:build unix

// Package torture runs gateways as real processes on a real PostgreSQL, breaks
// things while clients work, and lets package history judge what the clients saw.
//
// A run ([Run]) is a cluster of three nodes over one database, two in mode worker-queue and one in mode basic, each behind a proxy
// of its own towards the database and another towards its clients and the other nodes; a few clients that write down every call;
// and one or two faults ([Fault]). Everything that is chosen at random comes from the run's seed: which faults, when, on which
// node, for how long, and what the clients ask for. What the scheduler and the disk do does not, so a seed repeats the schedule and
// not the interleaving.
//
// A run is on an [Axis]. With the performance engine the two nodes of mode worker-queue have a Redis behind one more proxy each,
// and what may be forgotten with it is in the history ([history.Loss]). With a chain the gateways ask two nodes of a simulated one
// as well, and further clients send transactions with the nonces of its accounts; what is mined judges those
// ([history.CheckChain]). On SQLite there is one gateway, on a disk that forgets what was not synced (fileSide).
//
// A campaign ([Campaign]) breaks what the table of faults says, each alone and beside the others; it is resumable, and keeps what a
// failed run left. [Planted] builds gateways that are known to be wrong and has runs until one notices; a checker that finds
// nothing in those says nothing about the others.
//
// Nothing here is part of the gateway: its faults come from outside, and what is planted, is wrong about its clock or forgets what
// was not synced is compiled in by go build -overlay from copies of the sources with checked replacements ([gateway.Patch]).
//
// Everything started here ends with the process that started it (packages guarded and pgtest),
// and a run waits for all of its goroutines.
package torture
