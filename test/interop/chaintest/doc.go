// Package chaintest starts chains for tests, and breaks what their nodes answer.
//
// A [Sim] is a go-ethereum node in this process, with geth's own pool, whose blocks, branches, reorgs and finality come when the test
// says so. An [Anvil] is Foundry's node, a process of its own, for what it does otherwise: blocks that come by themselves, and a reorg
// after which transactions are nowhere. Both answer over HTTP and WebSocket on ports of the loopback address, both give the same accounts
// ether, and both embed a [Node], which asks them and signs. A [Proxy] is test/lab/fakenode before one of them: it delays, loses,
// falsifies and counts calls by rules that a test sets while it runs, or has the node lag.
//
// Promises: a chain changes by the test's calls alone (but for Anvil's automatic mining), and when a method of Sim returns the pool has
// followed. A test waits for a call to meet a rule ([Rule.Await]), not for time to pass. Everything ends with the test; an Anvil also
// with the process that started it, however that ends. go-ethereum logs nothing unless somebody sets its logger.
//
// Not promised: gossip (a node here has no peers), consensus, or geth's disk.
//
// ethclient/simulated's Backend does not say where it listens, finalizes by itself, and shows the parent as the head on the way to
// another branch. Here a block is built by geth's block builder and made the head as a forkchoice update does it.
package chaintest
