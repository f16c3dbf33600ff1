package rawtx_test

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/core/types"

	"noncegate/chain/ethereum/rawtx"
)

// BenchmarkDecode reads a transaction and recovers its sender, by Decode and by
// core/types, which uses C code where cgo is on.
func BenchmarkDecode(b *testing.B) {
	for _, s := range mutated(b) {
		b.Run("rawtx/"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rawtx.Decode(s.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("coretypes/"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			signer := types.Signer(types.LatestSignerForChainID(big.NewInt(mainnet)))
			if s.name == "access list" {
				signer = chain(10)
			}
			for b.Loop() {
				var tx types.Transaction
				if err := tx.UnmarshalBinary(s.raw); err != nil {
					b.Fatal(err)
				}
				if _, err := types.Sender(signer, &tx); err != nil {
					b.Fatal(err)
				}
				_ = tx.Hash()
				for _, a := range tx.SetCodeAuthorizations() {
					if _, err := a.Authority(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
