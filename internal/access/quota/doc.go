// Package quota counts what a client has had against what it may have: requests a
// second, connections and subscriptions of a principal, requests a second for a
// signer, and what may come from one address.
//
// It promises: a decision takes no I/O, waits for nothing but a short lock, and
// needs no clock but the time it is given; what is refused is not counted, so that a
// client which is refused again and again comes no later into its own; every table
// has a bound. A principal or an address that has gone is remembered until its
// bucket is full again, so that coming back does not fill it.
//
// It does not know who a client is, nor what a refusal looks like. All counts are
// those of one node: a client that talks to three has three times as much.
//
// The package starts no goroutine. All methods are safe for concurrent use.
package quota
