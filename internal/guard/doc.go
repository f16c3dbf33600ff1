// Package guard prevents two calls with the same submission name from running at the
// same time: a call takes a lock of that name before it runs and releases it when it has
// ended.
//
// It promises:
//   - Of several concurrent calls with one key, over all nodes that share the Locks,
//     one gets the lock. The others learn how long it lasts at most.
//   - A lock is released by its value, which is random and known to its holder
//     alone, so a late release never removes the next holder's lock.
//   - Take and End never block. At most Config.Slots calls are guarded at a time;
//     Reserve refuses the next. Each gets its result within about two
//     Config.Timeout, also when Redis hangs.
//   - A node takes and releases the locks of one key in the order of the calls.
//   - When the Locks do not answer, every guarded call is refused.
//
// It does not promise that a submission is made once. A lock ends by itself after
// its interval, whether its call has ended or not, and a lost Redis has lost its
// locks. Calls that must not happen twice need a request id; this package only saves
// the gateway from doing the same work twice at once.
//
// A Guard owns one goroutine a worker, which talks to the Locks and reports the
// results. Stop ends them and waits. Locks: Guard.mu and Memory.mu; no I/O is under either.
//
// Where to begin reading: guard.go, worker.go, locks.go, redis.go.
package guard
