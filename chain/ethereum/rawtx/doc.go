// Package rawtx reads signed Ethereum transactions as they are sent to a node: the
// sender, the nonce, the chain, and the hash that the chain will have.
//
// The types are 0 (legacy, with and without the chain id of EIP-155), 1 (EIP-2930),
// 2 (EIP-1559), 3 (EIP-4844, with blobs and without) and 4 (EIP-7702). Every other
// type is refused, because its sender and nonce cannot be read.
//
// # What is checked
//
//   - The encoding is the only one there is of this transaction. Lengths and integers
//     are canonical RLP, the number of fields is that of the type, nothing follows. The
//     hash of the bytes is then the hash that the chain will have.
//   - The signature is one that a node takes: r and s in range, s in the lower half of
//     the curve's order (EIP-2), the parity known. The sender is recovered from it.
//   - Chain ids, nonces and amounts are in the ranges that Ethereum gives them.
//   - A blob transaction has blobs. Of its sidecar, versions 0 (EIP-4844) and 1
//     (EIP-7594), the lengths and numbers of blobs, commitments and proofs are checked,
//     and that the commitments are those whose hashes were signed. The proofs
//     themselves are not verified: that is KZG cryptography and the node's work.
//   - An authorization of a set-code transaction that nodes skip is marked and kept, as
//     EIP-7702 says.
//
// # What is not checked
//
// All that depends on the chain's state, its price of gas or its forks: balances,
// intrinsic gas, whether the tip is within the fee, whether the next nonce is the right
// one, whether the chain knows the type. The node that gets it says so.
//
// Decode reads bytes of strangers. It does not panic, allocates in proportion to the
// input, whose size it bounds, starts no goroutine and keeps no state. It is safe for
// many goroutines.
//
// Read tx.go (what a transaction says), decode.go, blob.go, signature.go; fields.go and
// rlp.go are the encoding.
package rawtx
