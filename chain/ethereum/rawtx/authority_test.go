package rawtx_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"

	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
	"noncegate/test/lab/expect"
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

func TestASenderIsRecoveredWithoutTheAuthorities(t *testing.T) {
	raw := with(4, 9, auths(rawtx.MaxAuthorizations))
	tx, err := rawtx.DecodeSender(raw)
	expect.Must(t, err)
	whole, err := rawtx.Decode(raw)
	expect.Must(t, err)
	if tx.From != whole.From || tx.Hash != whole.Hash || len(tx.Authorizations) != rawtx.MaxAuthorizations {
		t.Errorf("from %v, hash %x, %d authorizations", tx.From, tx.Hash, len(tx.Authorizations))
	}
	for i := range tx.Authorizations {
		if a := &tx.Authorizations[i]; a.Valid() || a.Authority != [20]byte{} {
			t.Fatalf("authorization %d has an authority before it was recovered", i)
		}
	}
	tx.RecoverAuthorities()
	if !reflect.DeepEqual(tx, whole) {
		t.Errorf("recovered later: %+v, want %+v", tx, whole)
	}
}
