package rawtx_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto/kzg4844"
	"github.com/ethereum/go-ethereum/rlp"

	"noncegate/chain/ethereum/rawtx"
)

// Each exception is one: core/types decodes the transaction, Decode refuses it, with
// the sentence that is meant for it.
func TestEveryExceptionIsDecodedByGoEthereumAndRefusedHere(t *testing.T) {
	k, one, above := key(t, 1), big.NewInt(1), new(big.Int).Lsh(big.NewInt(1), 256)
	on := func(data types.TxData) []byte { return sign(t, k, chain(mainnet), data) }
	noBlobs, wrongBlob := blobTx(1, nil), blobTx(1, nil)
	noBlobs.BlobHashes, wrongBlob.BlobHashes = nil, []common.Hash{{2}}
	many := slices.Repeat([]types.SetCodeAuthorization{{V: 1}}, rawtx.MaxAuthorizations+1)
	examples := [][][]byte{ // of each exception, in their order
		{on(&types.LegacyTx{GasPrice: wei, Value: wei, Data: make([]byte, rawtx.MaxSize)}), wrap(t, on(blobTx(8, nil))[1:], nil, 8, 8, 8)},
		{encoded(t, &types.LegacyTx{GasPrice: wei, Value: wei, V: big.NewInt(35), R: one, S: one})},
		{encoded(t, &types.DynamicFeeTx{ChainID: big.NewInt(rawtx.MaxChainID + 1), V: one, R: one, S: one})},
		{on(&types.LegacyTx{Nonce: math.MaxUint64, GasPrice: wei, Value: wei})},
		{on(&types.LegacyTx{GasPrice: wei, Value: above}), on(&types.LegacyTx{GasPrice: above, Value: wei}),
			on(&types.DynamicFeeTx{ChainID: big.NewInt(mainnet), GasTipCap: above})},
		{on(noBlobs)},
		{on(wrongBlob)},
		{on(setCode(t, mainnet))},
		{on(setCode(t, mainnet, many...))},
	}
	if len(examples) != len(exceptions) {
		t.Fatalf("examples of %d exceptions, there are %d", len(examples), len(exceptions))
	}
	for i, e := range exceptions {
		for j, raw := range examples[i] {
			tx := new(types.Transaction)
			if err := tx.UnmarshalBinary(raw); err != nil || !e.applies(raw, tx) {
				t.Errorf("%s, %d: %v", e.why, j, err)
			}
			if _, err := rawtx.Decode(raw); err == nil || !strings.Contains(err.Error(), e.says) {
				t.Errorf("%s, %d: got %v, want %v", e.why, j, err, e.says)
			}
		}
	}
}

// mutated are the samples that are changed in the test below: one of each form.
var mutated = []string{"legacy without a chain id", "legacy", "access list", "dynamic fee", "blob without sidecar",
	"blob with sidecar of version 0", "set code"}

func TestChangedBytesAreJudgedAsGoEthereumJudgesThem(t *testing.T) {
	for _, s := range samples(t) {
		if !slices.Contains(mutated, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			taken := 0
			for _, raw := range byteChanges(s.raw) {
				if agree(t, raw, "changed") {
					taken++
				}
			}
			if taken == 0 {
				t.Error("no changed transaction was taken")
			}
		})
	}
}

// byteChanges are raw with one byte changed, left out or doubled, and raw cut off at
// every place. Of long inputs only both ends are changed: between them is a blob.
func byteChanges(raw []byte) (all [][]byte) {
	const head, tail = 260, 110 // the transaction, and commitment and proof
	for at := range raw {
		if at >= head && at < len(raw)-tail && len(raw) > 1000 {
			continue
		}
		for _, flip := range []byte{0x01, 0x80, raw[at]} {
			changed := slices.Clone(raw)
			changed[at] ^= flip
			all = append(all, changed)
		}
		all = append(all, slices.Delete(slices.Clone(raw), at, at+1),
			slices.Insert(slices.Clone(raw), at, raw[at]), slices.Clone(raw[:at]))
	}
	return append(all, append(slices.Clone(raw), 0), append(slices.Clone(raw), raw...))
}

// The form of a sidecar is in the hands of the client: any number of each of its parts.
func TestSidecarsOfEveryShapeAreJudgedAsGoEthereumJudgesThem(t *testing.T) {
	inner := sign(t, key(t, 1), chain(mainnet), blobTx(1, nil))[1:]
	taken := 0
	for _, version := range [][]byte{nil, {}, {1}, {2}, {1, 1}} {
		for blobs := range 3 {
			for commitments := range 3 {
				for _, proofs := range []int{0, 1, 2, 127, 128, 129} {
					raw := wrap(t, inner, version, blobs, commitments, proofs)
					if agree(t, raw, fmt.Sprintf("version %x, %d blobs, %d commitments, %d proofs", version, blobs, commitments, proofs)) {
						taken++
					}
				}
			}
		}
	}
	if taken != 2 { // 1, 1 and 1 of version 0; 1, 1 and 128 of version 1
		t.Errorf("%d sidecars were taken, want 2", taken)
	}
}

// wrap puts a sidecar of so many parts behind the encoded fields of a blob transaction.
// version nil: none is written.
func wrap(tb testing.TB, inner, version []byte, blobs, commitments, proofs int) []byte {
	tb.Helper()
	s := sidecar(0, max(blobs, commitments))
	parts := []any{rlp.RawValue(inner)}
	if version != nil {
		parts = append(parts, version)
	}
	parts = append(parts, s.Blobs[:blobs], s.Commitments[:commitments], make([]kzg4844.Proof, proofs))
	return append([]byte{types.BlobTxType}, must(rlp.EncodeToBytes(parts))(tb)...)
}

// encoded is a transaction whose signature is given.
func encoded(tb testing.TB, data types.TxData) []byte {
	tb.Helper()
	return must(types.NewTx(data).MarshalBinary())(tb)
}

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
