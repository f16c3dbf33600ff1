// Package quota counts usage against limits: requests a second, connections and
// subscriptions of a principal, requests a second for a signer, and the load from one
// address.
//
// It promises: a decision takes no I/O, waits only for a short lock, and uses no
// clock but the time that is passed in. Refused requests are not counted, so repeated
// refusals do not delay a client's next permitted request. Every table has a bound. A
// principal or an address that has gone is remembered until its bucket is full
// again, so that reconnecting does not refill it.
//
// It does not identify clients or format refusals. All counts are those of one node:
// a client that uses three nodes has three times the quota.
//
// The package starts no goroutine. All methods are safe for concurrent use.
package quota
