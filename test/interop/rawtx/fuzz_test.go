package rawtx_test

import (
	"crypto/ecdsa"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"noncegate/chain/ethereum/rawtx"
)

// FuzzAgainstCoreTypes gives both decoders bytes of any kind. Blobs are left
// out: a change that hits one of 131072 zeros shows nothing.
func FuzzAgainstCoreTypes(f *testing.F) {
	for _, s := range samples(f) {
		if len(s.raw) < 10000 {
			f.Add(s.raw)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{3, 0xc1, 0xc0})
	f.Fuzz(func(t *testing.T, raw []byte) { agree(t, raw, "fuzzed") })
}

// FuzzSignedAgainstCoreTypes makes a transaction of any fields, signed by go-ethereum:
// it must be taken and read alike, and refused with the other, high s that the same key
// could have made.
func FuzzSignedAgainstCoreTypes(f *testing.F) {
	for kind := range byte(5) {
		f.Add(kind, byte(1), uint64(1), uint64(9), uint64(21000), []byte{1}, []byte{2}, []byte{3}, receiver[:], []byte("data"), uint16(2))
		f.Add(kind, byte(2), uint64(11155111), uint64(1)<<40, uint64(1)<<63,
			[]byte{}, maxWord.Bytes(), []byte{0x80}, []byte{}, []byte{}, uint16(0))
	}
	f.Fuzz(func(t *testing.T, kind, by byte, chainID, nonce, gas uint64, value, fee, tip, to, data []byte, lists uint16) {
		if nonce == 1<<64-1 || len(data) > 100_000 {
			return
		}
		chainID = chainID%rawtx.MaxChainID + 1
		k := key(t, by)
		made := build(t, kind%6, chainID, nonce, gas, word(value), word(fee), word(tip), to, data, lists)
		signer := chain(chainID)
		if kind%6 == 5 { // legacy without a chain id
			signer = types.HomesteadSigner{}
		}
		raw := sign(t, k, signer, made)
		if !agree(t, raw, "signed") {
			t.Errorf("refused: %s", shown(raw))
		}
		if agree(t, withHighS(t, k, made, signer), "signed with a high s") {
			t.Errorf("taken with a high s: %s", shown(raw))
		}
	})
}

func word(b []byte) *uint256.Int { return new(uint256.Int).SetBytes(b[:min(len(b), 32)]) }

// build makes the transaction of a kind: a type, or 5 for a legacy one without chain id.
func build(t *testing.T, kind byte, chainID, nonce, gas uint64, value, fee, tip *uint256.Int, to, data []byte, lists uint16) types.TxData {
	address := common.BytesToAddress(to)
	target := &address
	if len(to) == 0 {
		target = nil
	}
	id, n := uint256.NewInt(chainID), int(lists/16%4)+1
	list := make(types.AccessList, lists%4)
	for i := range list {
		list[i] = types.AccessTuple{Address: common.Address{byte(i)}, StorageKeys: make([]common.Hash, lists/4%4)}
	}
	switch kind {
	case types.AccessListTxType:
		return &types.AccessListTx{ChainID: id.ToBig(), Nonce: nonce, GasPrice: fee.ToBig(), Gas: gas, To: target,
			Value: value.ToBig(), Data: data, AccessList: list}
	case types.DynamicFeeTxType:
		return &types.DynamicFeeTx{ChainID: id.ToBig(), Nonce: nonce, GasTipCap: tip.ToBig(), GasFeeCap: fee.ToBig(), Gas: gas, To: target,
			Value: value.ToBig(), Data: data, AccessList: list}
	case types.BlobTxType:
		return &types.BlobTx{ChainID: id, Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: gas, To: address,
			Value: value, Data: data, AccessList: list, BlobFeeCap: tip, BlobHashes: sidecar(0, n).BlobHashes()}
	case types.SetCodeTxType:
		tx := &types.SetCodeTx{ChainID: id, Nonce: nonce, GasTipCap: tip, GasFeeCap: fee, Gas: gas, To: address,
			Value: value, Data: data, AccessList: list}
		for i := range n {
			a := authorization(t, byte(i), []uint64{0, chainID, 3}[i%3], nonce^uint64(i))
			a.V ^= byte(lists >> (8 + i)) // mostly none; else another signer, or none
			tx.AuthList = append(tx.AuthList, a)
		}
		return tx
	default:
		return &types.LegacyTx{Nonce: nonce, GasPrice: fee.ToBig(), Gas: gas, To: target, Value: value.ToBig(), Data: data}
	}
}

// withHighS signs, and puts the order less s in the place of s and the other parity.
func withHighS(t *testing.T, k *ecdsa.PrivateKey, data types.TxData, signer types.Signer) []byte {
	t.Helper()
	tx := types.NewTx(data)
	hash := signer.Hash(tx)
	sig := must(crypto.Sign(hash[:], k))(t)
	s := new(big.Int).Sub(crypto.S256().Params().N, new(big.Int).SetBytes(sig[32:64]))
	s.FillBytes(sig[32:64])
	sig[64] ^= 1
	return must(must(tx.WithSignature(signer, sig))(t).MarshalBinary())(t)
}
