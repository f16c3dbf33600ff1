package rawtx

import "noncegate/chain/ethereum/address"

// RecoverAuthority returns the account that signed an authorization, as Decode does for
// those of a transaction: for authorizations that come in another form, such as those of
// a block that a node shows. chainID is the one that was signed, 0 for every chain.
//
// The error is an *Error: the signature is one that nodes skip.
func RecoverAuthority(chainID, nonce uint64, target address.Address, parity byte, r, s [32]byte) (address.Address, error) {
	fields := appendUint(nil, chainID)
	fields = append(append(fields, shortString+byte(len(target))), target[:]...)
	fields = appendUint(fields, nonce)
	return recoverAuthority(&authSignature{parity: parity, r: r, s: s, signed: fields})
}
