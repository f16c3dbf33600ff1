package ethereum

import (
	"math"
	"strings"

	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
)

// authority returns whose nonce the authorization uses if the chain applies it. ok is
// false for one that nodes skip: of another chain, or without a valid signature.
func (a *authorization) authority(chainID uint64) (account string, nonce int64, ok bool) {
	id, err := parseQuantity(a.ChainID)
	if err != nil || (id != 0 && uint64(id) != chainID) {
		return "", 0, false
	}
	nonce, err = parseQuantity(a.Nonce)
	if err != nil || nonce == math.MaxInt64 {
		return "", 0, false
	}
	target, err := address.Parse(strings.ToLower(a.Address))
	parity, parityErr := parseQuantity(a.YParity)
	r, rok := word(a.R)
	s, sok := word(a.S)
	if err != nil || parityErr != nil || parity > 1 || !rok || !sok {
		return "", 0, false
	}
	by, err := rawtx.RecoverAuthority(uint64(id), uint64(nonce), target, byte(parity), r, s)
	if err != nil {
		return "", 0, false
	}
	return by.String(), nonce, true
}
