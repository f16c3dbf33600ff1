// Package flush lets the store follow Redis: it takes the committed changes of the
// performance engine from the streams of the flush shards, in order, and applies
// them to the signers' rows.
//
// What it promises: events of one signer are applied in the order of their
// versions, each exactly once, whoever repeats what; an event leaves its stream only
// after the store has acknowledged the commit that holds it; what can never be
// applied is put aside in order of time, is counted, and is told to whoever can mend
// the signer; memory is bounded by the settings, not by how far the flush is behind.
//
// What it does not promise: that one process flushes a shard. The election by the
// store's advisory locks saves work; the store's condition on the row's version is
// what makes it right, and two workers at one shard harm nothing. Nor does it judge
// whose Redis it reads: the queue it is given compares the server's identity after
// each read and refuses what a wrong one said.
//
// Everything in a stream is unflushed. A worker always reads from the head, so there
// is nothing that could be delivered, forgotten and never read again.
//
// Goroutines: Start begins one for the election and one for each lane, a share of
// the shards; Stop ends them and waits. A lane reads its shards at the same time, and
// acknowledges so, and waits for each. Drain runs in its caller's.
package flush
