package ethereum

import (
	"encoding/binary"

	"github.com/decred/dcrd/dcrec/secp256k1/v4/ecdsa"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
)

// rawTransfer is a signed transaction of authority on chain 1 with nonce 5.
var rawTransfer = rawLegacy(1, 5)

// rawLegacy signs a legacy transaction of authority.
func rawLegacy(chainID uint64, nonce uint64) []byte {
	fields := [][]byte{number(nonce), number(1e9), number(21000), make([]byte, 20), number(1), nil}
	hash := address.Keccak256(rlpList(append(fields, number(chainID), nil, nil)))
	sig := ecdsa.SignCompact(authorityKey, hash[:], false)
	v := number(chainID*2 + 35 + uint64(sig[0]-27))
	return rlpList(append(fields, v, trimmed(sig[1:33]), trimmed(sig[33:])))
}

func hashOf(raw []byte) chain.Hash {
	t, err := rawtx.Decode(raw)
	if err != nil {
		panic(err)
	}
	return t.Hash
}

func number(n uint64) []byte { return trimmed(binary.BigEndian.AppendUint64(nil, n)) }

func trimmed(b []byte) []byte {
	for len(b) > 0 && b[0] == 0 {
		b = b[1:]
	}
	return b
}

func rlpList(items [][]byte) []byte {
	var body []byte
	for _, b := range items {
		if len(b) != 1 || b[0] >= 0x80 {
			body = append(body, 0x80+byte(len(b)))
		}
		body = append(body, b...)
	}
	if len(body) < 56 {
		return append([]byte{0xc0 + byte(len(body))}, body...)
	}
	return append([]byte{0xf8, byte(len(body))}, body...)
}
