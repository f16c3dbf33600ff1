// Package guard keeps a submission from being made twice at a time: whoever names
// it takes a lock of that name before the call and gives it back when the call has
// ended.
//
// It promises:
//   - Of those who ask for one key at the same time, over all nodes that share the
//     Locks, one gets it. The others are told how long it lasts at most.
//   - A lock is given back by its value, which is random and known to its holder
//     alone, so one that has expired is never taken from the next holder.
//   - Take and End never block. At most Config.Places calls are guarded at a time;
//     Reserve refuses the next. Each is told what became of it within about two
//     Config.Timeout, also when Redis hangs.
//   - Asked for in order, the locks of one key are taken and given back in that
//     order by one node.
//   - When the Locks do not answer, nobody is let through.
//
// It does not promise that a submission is made once. A lock ends by itself after
// its interval, whether its call has ended or not, and a lost Redis has lost its
// locks. What must not happen twice has a request id; this keeps the gateway from
// doing the same work twice at once, and people from pressing a button twice.
//
// A Guard owns one goroutine a worker, which talks to the Locks, and which also tells
// what became of it. Stop ends them and waits.
package guard
