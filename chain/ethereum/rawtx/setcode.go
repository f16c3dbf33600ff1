package rawtx

import (
	"errors"
	"math/big"

	"noncegate/chain/ethereum/address"
)

// authorizationPrefix stands before what an authority signs (EIP-7702).
const authorizationPrefix = 0x05

var authorizationNames = []string{"chainId", "address", "nonce", "yParity", "r", "s"}

// authSignature is the signature of an authorization, and the fields that it is of.
type authSignature struct {
	parity byte
	r, s   [32]byte
	signed []byte
}

// authorizations reads the authorization list. A field that is too long makes the whole
// transaction invalid, a wrong value only its authorization.
func (f *fields) authorizations(r *reading) {
	f.elements(authorizationNames, func(e *fields) error {
		if len(r.auths) == MaxAuthorizations {
			return refuse(ErrTooLarge, f.name(), "must have %d authorizations at most: more need more gas than a transaction can have (EIP-7825)", MaxAuthorizations)
		}
		a := Authorization{ChainID: e.amount(), Address: e.address(""), Nonce: e.uint64(), Invalid: errUnrecovered}
		sig := authSignature{signed: e.read()}
		if parity := e.number(1); len(parity) == 1 {
			sig.parity = parity[0]
		}
		sig.r, sig.s = e.word(), e.word()
		r.tx.Authorizations = append(r.tx.Authorizations, a)
		r.auths = append(r.auths, sig)
		return e.err
	})
	if len(r.tx.Authorizations) == 0 {
		f.fail(ErrContent, "must have at least one authorization (EIP-7702)")
	}
}

var errUnrecovered = errors.New("the authority was not recovered")

// RecoverAuthorities recovers who signed the authorizations of a transaction of DecodeSender,
// at one recovery each, and notes which of them nodes skip. It does so once.
func (t *Tx) RecoverAuthorities() {
	for i := range t.auths {
		t.Authorizations[i].judge(t.ChainID, &t.auths[i])
	}
	t.auths = nil
}

// recoverAuthority returns the account that signed an authorization.
func recoverAuthority(sig *authSignature) (address.Address, error) {
	if sig.parity > 1 {
		return address.Address{}, refuse(ErrSignature, "yParity", "must be 0 or 1, is %d", sig.parity)
	}
	return recoverSender(signingHash([]byte{authorizationPrefix}, sig.signed, nil), sig.parity, &sig.r, &sig.s)
}

// judge recovers the authority, and notes why nodes skip the authorization in a
// transaction of a chain.
func (a *Authorization) judge(chainID uint64, sig *authSignature) {
	a.Authority, a.Invalid = recoverAuthority(sig)
	switch {
	case a.Invalid != nil:
	case a.ChainID.Sign() != 0 && a.ChainID.Cmp(new(big.Int).SetUint64(chainID)) != 0:
		a.Invalid = refuse(ErrChainID, "chainId", "must be 0 or that of the transaction, %d; is %v", chainID, a.ChainID)
	case a.Nonce == maxUint64:
		a.Invalid = refuse(ErrNonce, "nonce", "must be below 2^64-1 (EIP-2681)")
	}
}
