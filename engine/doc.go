// Package engine moves the cluster between its two engines: RELIABLE, where the store
// answers, DUAL_WRITE, where Redis is made equal, PERFORMANCE, where Redis answers and
// the store follows, DRAIN_AND_SYNC and DEGRADED, where signers return.
//
// What it promises: the state is one row of the store, changed by comparing its
// generation, so that of two switches at once one is refused; nobody goes up before
// what it takes was looked at; a trouble that was told of, or seen, ends in DEGRADED
// once the store can be reached, with the reason; nobody goes up again before the time
// of observation is over.
//
// What it does not promise: that a signer is where the state says. Each signer's row
// says which engine serves it, and the shards of package nonce move it; the state is
// the goal of that, and a node that knows an old one does nothing wrong. Nor does the
// manager decide whether a signer is lost; it says when Redis counts as gone.
//
// A Manager has two goroutines: one watches the store's state and Redis, the other,
// on the node that flushes shard 0, takes the steps that nobody asks for. Stop ends
// them and waits.
package engine
