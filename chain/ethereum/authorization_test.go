package ethereum

import (
	"encoding/hex"
	"maps"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"
	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"noncegate/chain/ethereum/address"
	"noncegate/internal/testenv/fakenode"
)

// authorityKey signs authorizations; authority is its account.
var (
	authorityKey = secp256k1.PrivKeyFromBytes([]byte("a key of tests that has 32 bytes"))
	authority    = func() string {
		digest := address.Keccak256(authorityKey.PubKey().SerializeUncompressed()[1:])
		return address.Address(digest[12:]).String()
	}()
)

// signedAuthorization is an element of an authorizationList, for a chain and a nonce
// that are both below 128.
func signedAuthorization(t *testing.T, chainID, nonce byte) map[string]any {
	t.Helper()
	target := [20]byte{19: 0xaa}
	if nonce == 0 {
		nonce = 0x80
	}
	id := chainID
	if id == 0 {
		id = 0x80 // RLP of 0
	}
	body := append(append([]byte{id, 0x94}, target[:]...), nonce)
	hash := address.Keccak256([]byte{0x05, 0xc0 + byte(len(body))}, body)
	sig := ecdsa.SignCompact(authorityKey, hash[:], false)
	return map[string]any{
		"chainId": fakenode.Quantity(int64(chainID)), "address": "0x" + hex.EncodeToString(target[:]),
		"nonce": fakenode.Quantity(int64(nonce)), "yParity": fakenode.Quantity(int64(sig[0] - 27)),
		"r": "0x" + hex.EncodeToString(sig[1:33]), "s": "0x" + hex.EncodeToString(sig[33:]),
	}
}

func copyOf(m map[string]any) map[string]any { return maps.Clone(m) }
