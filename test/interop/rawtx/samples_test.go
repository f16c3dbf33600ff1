package rawtx_test

import (
	"crypto/ecdsa"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/crypto/kzg4844"
	"github.com/holiman/uint256"
)

// sample is a transaction that go-ethereum made and signed.
type sample struct {
	name string
	raw  []byte
}

const mainnet = 1

var (
	receiver = common.HexToAddress("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
	wei      = big.NewInt(1_000_000_000_000_000_000)
	gwei     = big.NewInt(1_000_000_000)
	maxWord  = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))
	someList = types.AccessList{
		{Address: receiver, StorageKeys: []common.Hash{{}, {31: 1}, common.BigToHash(maxWord)}},
		{Address: common.Address{19: 9}},
	}
)

// must ends the test if there is an error: must(f())(tb).
func must[V any](v V, err error) func(testing.TB) V {
	return func(tb testing.TB) V {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// key returns one of the keys of the samples.
func key(tb testing.TB, n byte) *ecdsa.PrivateKey {
	tb.Helper()
	return must(crypto.ToECDSA(crypto.Keccak256([]byte{'k', n})))(tb)
}

func sign(tb testing.TB, k *ecdsa.PrivateKey, signer types.Signer, data types.TxData) []byte {
	tb.Helper()
	return must(must(types.SignNewTx(k, signer, data))(tb).MarshalBinary())(tb)
}

func chain(id uint64) types.Signer {
	return types.LatestSignerForChainID(new(big.Int).SetUint64(id))
}

// samples are transactions of every type and form that Decode takes.
func samples(tb testing.TB) []sample {
	tb.Helper()
	k := key(tb, 1)
	self := crypto.PubkeyToAddress(k.PublicKey)
	on := func(id uint64, data types.TxData) []byte { return sign(tb, k, chain(id), data) }
	big256 := uint256.MustFromBig(maxWord)
	all := []sample{
		{"legacy without a chain id", sign(tb, k, types.HomesteadSigner{}, &types.LegacyTx{
			Nonce: 3, GasPrice: gwei, Gas: 21000, To: &receiver, Value: wei})},
		{"legacy", on(mainnet, &types.LegacyTx{
			Nonce: 4, GasPrice: gwei, Gas: 50000, To: &receiver, Value: wei, Data: []byte{0xa9, 5, 0x9c, 0xbb}})},
		{"legacy cancel", on(mainnet, &types.LegacyTx{
			Nonce: 127, GasPrice: gwei, Gas: 21000, To: &self, Value: new(big.Int)})},
		{"legacy that creates a contract", on(11155111, &types.LegacyTx{
			Nonce: 128, GasPrice: gwei, Gas: 900000, Value: new(big.Int), Data: make([]byte, 60)})},
		{"legacy of the greatest numbers", on(math.MaxUint64/2-36, &types.LegacyTx{
			Nonce: math.MaxUint64 - 1, GasPrice: maxWord, Gas: math.MaxUint64, To: &receiver, Value: maxWord})},
		{"legacy of zeros", on(mainnet, &types.LegacyTx{
			GasPrice: new(big.Int), To: &common.Address{}, Value: new(big.Int)})},
		{"access list", on(10, &types.AccessListTx{
			ChainID: big.NewInt(10), Nonce: 255, GasPrice: gwei, Gas: 60000, To: &receiver, Value: wei, AccessList: someList})},
		{"access list, empty, that creates a contract", on(mainnet, &types.AccessListTx{
			ChainID: big.NewInt(mainnet), Nonce: 256, GasPrice: gwei, Gas: 60000, Value: new(big.Int), Data: []byte{0x7f}})},
		{"dynamic fee", on(mainnet, &types.DynamicFeeTx{
			ChainID: big.NewInt(mainnet), Nonce: 65535, GasTipCap: gwei, GasFeeCap: wei, Gas: 21000, To: &receiver, Value: wei})},
		{"dynamic fee cancel", on(mainnet, &types.DynamicFeeTx{
			ChainID: big.NewInt(mainnet), Nonce: 7, GasTipCap: gwei, GasFeeCap: gwei, Gas: 21000, To: &self, Value: new(big.Int)})},
		{"dynamic fee of the greatest numbers", on(math.MaxUint64/2-36, &types.DynamicFeeTx{
			ChainID: big.NewInt(math.MaxInt64 - 36), Nonce: math.MaxUint64 - 1, GasTipCap: maxWord, GasFeeCap: maxWord,
			Gas: math.MaxUint64, To: &receiver, Value: maxWord, Data: make([]byte, 300), AccessList: someList})},
		{"blob without sidecar", on(mainnet, blobTx(2, nil))},
		{"blob of the greatest numbers", on(mainnet, &types.BlobTx{
			ChainID: uint256.NewInt(mainnet), Nonce: math.MaxUint64 - 1, GasTipCap: big256, GasFeeCap: big256,
			Gas: math.MaxUint64, Value: big256, BlobFeeCap: big256, AccessList: someList, BlobHashes: blobTx(9, nil).BlobHashes})},
		{"blob with sidecar of version 0", on(mainnet, blobTx(1, sidecar(0, 1)))},
		{"blob with sidecar of version 1", on(mainnet, blobTx(2, sidecar(1, 2)))},
		{"set code", on(mainnet, setCode(tb, mainnet,
			authorization(tb, 2, 0, 0), authorization(tb, 3, mainnet, 77)))},
		{"set code with authorizations that nodes skip", on(mainnet, setCode(tb, mainnet, spoiled(tb)...))},
	}
	for _, id := range []uint64{46, 47, 109, 110, 111, 30000} { // v about one byte, and about two
		all = append(all, sample{fmt.Sprintf("legacy of chain %d", id), on(id, &types.LegacyTx{
			Nonce: 1, GasPrice: gwei, Gas: 21000, To: &receiver, Value: wei})})
	}
	return all
}

// blobTx has n blobs: those of sidecar.
func blobTx(n int, side *types.BlobTxSidecar) *types.BlobTx {
	return &types.BlobTx{
		ChainID: uint256.NewInt(mainnet), Nonce: 12, GasTipCap: uint256.NewInt(1), GasFeeCap: uint256.NewInt(1e9),
		Gas: 21000, To: receiver, Value: new(uint256.Int), BlobFeeCap: uint256.NewInt(5),
		BlobHashes: sidecar(0, n).BlobHashes(), Sidecar: side,
	}
}

// sidecar has n blobs of zeros. Commitments and proofs are of no blob: neither decoder looks.
func sidecar(version byte, n int) *types.BlobTxSidecar {
	s := &types.BlobTxSidecar{Version: version, Blobs: make([]kzg4844.Blob, n)}
	for i := range n {
		s.Commitments = append(s.Commitments, kzg4844.Commitment{0xc0, 47: byte(i)})
	}
	proofs := n
	if version == types.BlobSidecarVersion1 {
		proofs *= kzg4844.CellProofsPerBlob
	}
	s.Proofs = slices.Repeat([]kzg4844.Proof{{0xc0}}, proofs)
	return s
}

func setCode(tb testing.TB, chainID uint64, auths ...types.SetCodeAuthorization) *types.SetCodeTx {
	tb.Helper()
	return &types.SetCodeTx{
		ChainID: uint256.NewInt(chainID), Nonce: 31, GasTipCap: uint256.NewInt(1), GasFeeCap: uint256.NewInt(1e9),
		Gas: 100000, To: receiver, Value: new(uint256.Int), Data: []byte{1}, AuthList: auths,
	}
}

// authorization is signed by key n.
func authorization(tb testing.TB, n byte, chainID, nonce uint64) types.SetCodeAuthorization {
	tb.Helper()
	return must(types.SignSetCode(key(tb, n), types.SetCodeAuthorization{
		ChainID: *uint256.NewInt(chainID), Address: common.Address{19: n}, Nonce: nonce}))(tb)
}

// spoiled are authorizations that nodes skip, each for another reason, and a good one.
func spoiled(tb testing.TB) []types.SetCodeAuthorization {
	tb.Helper()
	wrong := func(nonce uint64, change func(*types.SetCodeAuthorization)) types.SetCodeAuthorization {
		a := authorization(tb, 2, mainnet, nonce)
		change(&a)
		return a
	}
	return []types.SetCodeAuthorization{
		wrong(1, func(a *types.SetCodeAuthorization) { // a high s
			a.S.Sub(uint256.MustFromBig(crypto.S256().Params().N), &a.S)
			a.V ^= 1
		}),
		wrong(2, func(a *types.SetCodeAuthorization) { a.V = 27 }),
		wrong(3, func(a *types.SetCodeAuthorization) { a.R, a.S = uint256.Int{}, uint256.Int{} }), // unsigned
		wrong(4, func(a *types.SetCodeAuthorization) { a.R = *uint256.MustFromBig(maxWord) }),
		wrong(5, func(a *types.SetCodeAuthorization) { a.R = *uint256.NewInt(5) }), // no point of the curve has this x
		wrong(6, func(a *types.SetCodeAuthorization) { a.ChainID = *uint256.MustFromBig(maxWord) }),
		authorization(tb, 2, 5, 7), authorization(tb, 2, mainnet, math.MaxUint64), authorization(tb, 4, mainnet, 8),
	}
}
