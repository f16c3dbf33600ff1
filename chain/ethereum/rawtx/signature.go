package rawtx

import (
	"math"
	"math/big"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"noncegate/chain/ethereum/address"
)

// signature is the last three fields of a transaction or of an authorization, as they were written.
type signature struct {
	v    []byte // v or yParity, without leading zeros
	r, s [32]byte
}

// sender recovers the account that signed the transaction, whose fields up to the signature are
// signed, and sets the chain id of a legacy transaction, which is a part of v.
func (sig *signature) sender(t *Tx, signed []byte) (address.Address, *Error) {
	if sig.r == [32]byte{} && sig.s == [32]byte{} {
		return address.Address{}, refuse("is not signed: r and s are 0")
	}
	if t.Type != Legacy {
		return sig.typed(t.Type, signed)
	}
	parity, err := sig.legacyParity(t)
	if err != nil {
		return address.Address{}, err
	}
	var tail []byte // with EIP-155 the chain id is signed, and two zeros
	if t.HasChainID {
		tail = append(appendUint(nil, t.ChainID), shortString, shortString)
	}
	return sig.recover(nil, signed, tail, parity)
}

// typed recovers the account that signed fields with a byte before them, where v is the parity.
func (sig *signature) typed(kind byte, signed []byte) (address.Address, *Error) {
	parity := new(big.Int).SetBytes(sig.v)
	if !parity.IsUint64() || parity.Uint64() > 1 {
		return address.Address{}, refuse("must be 0 or 1, is %v", parity).in("yParity")
	}
	return sig.recover([]byte{kind}, signed, nil, byte(parity.Uint64()))
}

// The values of v in legacy transactions: 27 or 28 without chain id, and with one
// (EIP-155) twice the chain id and 35 or 36.
const (
	plainV     = 27
	protectedV = 35
)

// legacyParity returns the parity that v stands for, and sets the chain id.
func (sig *signature) legacyParity(t *Tx) (byte, *Error) {
	n := new(big.Int).SetBytes(sig.v)
	v := n.Uint64()
	switch {
	case !n.IsUint64() || v >= protectedV && (v-protectedV)/2 > MaxChainID:
		return 0, refuse("stands for a chain id above %d, the greatest there can be (EIP-2294)", uint64(MaxChainID)).in("v")
	case v == plainV || v == plainV+1:
		return byte(v - plainV), nil
	case v < protectedV:
		return 0, refuse("must be 27 or 28, or 35 or 36 and twice the chain id (EIP-155); is %d", v).in("v")
	}
	t.ChainID, t.HasChainID = (v-protectedV)/2, true
	if rule := badChainID(new(big.Int).SetUint64(t.ChainID)); rule != "" {
		return 0, refuse("stands for a chain id that %s", rule).in("v")
	}
	return byte((v - protectedV) % 2), nil
}

// recover returns the account whose key signed the hash of prefix, and of the list of the fields
// and the tail. parity is 0 or 1.
func (sig *signature) recover(prefix, fields, tail []byte, parity byte) (address.Address, *Error) {
	var s secp256k1.ModNScalar
	if err := inRange(&sig.r, new(secp256k1.ModNScalar)); err != nil {
		return address.Address{}, err.in("r")
	}
	if err := inRange(&sig.s, &s); err != nil {
		return address.Address{}, err.in("s")
	}
	if s.IsOverHalfOrder() {
		return address.Address{}, refuse(
			"must not be above half of the curve's order (EIP-2): put the order less s in its place, and the other parity").in("s")
	}
	var compact [65]byte
	compact[0] = plainV + parity
	copy(compact[1:], sig.r[:])
	copy(compact[33:], sig.s[:])
	hash := address.Keccak256(prefix, listHeader(len(fields)+len(tail)), fields, tail)
	key, _, err := ecdsa.RecoverCompact(compact[:], hash[:])
	if err != nil {
		return address.Address{}, refuse("and s are a signature that no key can have made").in("r")
	}
	digest := address.Keccak256(key.SerializeUncompressed()[1:])
	return address.Address(digest[12:]), nil
}

func inRange(b *[32]byte, n *secp256k1.ModNScalar) *Error {
	switch overflow := n.SetBytes(b); {
	case overflow != 0:
		return refuse("must be below the curve's order")
	case n.IsZero():
		return refuse("must not be 0")
	}
	return nil
}

// authorizationPrefix stands before what an authority signs (EIP-7702).
const authorizationPrefix = 0x05

// RecoverAuthorities recovers the accounts that signed the transaction's authorizations, at one
// recovery each, and notes which of them are valid.
func (t *Tx) RecoverAuthorities() {
	for i := range t.Authorizations {
		a := &t.Authorizations[i]
		by, err := a.sig.typed(authorizationPrefix, a.signed)
		if err != nil {
			continue
		}
		here := a.ChainID.Sign() == 0 || a.ChainID.IsUint64() && a.ChainID.Uint64() == t.ChainID
		a.Authority, a.Valid = by, here && a.Nonce < math.MaxUint64
	}
}

// RecoverAuthority returns the account that signed an authorization, for one that comes in another
// form, such as that of a block that a node shows. chainID is the one that was signed, 0 for every
// chain. The error is an *Error: the signature is one that nodes skip.
func RecoverAuthority(chainID, nonce uint64, target address.Address, parity byte, r, s [32]byte) (address.Address, error) {
	fields := append(appendUint(nil, chainID), shortString+byte(len(target)))
	fields = appendUint(append(fields, target[:]...), nonce)
	by, err := (&signature{v: []byte{parity}, r: r, s: s}).typed(authorizationPrefix, fields)
	if err != nil {
		return by, err
	}
	return by, nil
}
