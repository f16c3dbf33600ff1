package rawtx_test

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
	"noncegate/internal/testenv/expect"
)

func TestAnAuthorityIsRecoveredAsThatOfATransaction(t *testing.T) {
	chainID := uint64(5)
	valid := 0
	for _, nonce := range []uint64{0, 1, 127, 128, math.MaxInt64} {
		for i := range byte(20) {
			for parity := range byte(3) {
				r, s := [32]byte{31: i, 0: i}, [32]byte(half)
				if i == 7 {
					s = [32]byte([]byte(high))
				}
				auth := list{chainID, to, nonce, int(parity), bytes.TrimLeft(r[:], "\x00"), s[:]}
				tx, err := rawtx.Decode(with(4, 9, list{auth}))
				expect.Must(t, err)
				want := tx.Authorizations[0]
				got, err := rawtx.RecoverAuthority(chainID, nonce, address.Address([]byte(to)), parity, r, s)
				if got != want.Authority || (err == nil) != want.Valid() {
					t.Errorf("nonce %d, r %d, parity %d: %v, %v; want %v, %v", nonce, i, parity, got, err, want.Authority, want.Invalid)
				}
				if kind := errors.Unwrap(want.Invalid); kind != nil && !errors.Is(err, kind) {
					t.Errorf("nonce %d, r %d, parity %d: %v, want %v", nonce, i, parity, err, kind)
				}
				if err == nil {
					valid++
				}
			}
		}
	}
	if valid < 50 {
		t.Errorf("only %d signatures were valid", valid)
	}
}
