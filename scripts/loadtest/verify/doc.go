// Package verify judges whether a gateway kept its promises to a load: that no
// nonce was handed out twice with one attempt, that every nonce below next is
// accounted for, that what was acknowledged is in the store, and that a request
// id is answered the same when it is asked again.
//
// A Recorder is told every answer while the load runs, from many goroutines, and
// judges what it can at once; a Checker then reads the signers through the
// gateway and judges the rest. Both work in time linear in the number of
// nonces. A Recorder keeps about half a byte for each nonce that is handed out
// once, so that a long run needs no more memory than a short one.
//
// It does not say what a request whose answer never came has done, and holds
// nothing against a gateway that only such a request could explain. It sees what
// the protocol shows: rows that were pruned cannot be told from rows that were
// lost below the lowest one left, unless the load was handed that nonce and did
// not mark it used.
//
// The package starts no goroutine that outlives a call.
package verify
