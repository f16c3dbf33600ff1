// Package rawtx reads signed Ethereum transactions as they are sent to a node: the
// sender, the nonce, the chain, and the hash that the chain will have.
//
// The encoding must be the only one there is of the transaction, so that the hash of the bytes is the
// one that the chain will have, and the signature one that a node takes. Of a sidecar, versions 0
// (EIP-4844) and 1 (EIP-7594), lengths, numbers and hashes are checked; the proofs are the node's work, as is
// all that depends on the chain's state, its price of gas or its forks. An authorization that nodes
// skip is marked and kept, as EIP-7702 says.
//
// Decode reads bytes of strangers. It does not panic, allocates in proportion to the
// input, whose size it bounds, starts no goroutine and keeps no state. It is safe for
// many goroutines.
//
// Read tx.go (what a transaction says), decode.go, blob.go, signature.go; fields.go and
// rlp.go are the encoding.
package rawtx
