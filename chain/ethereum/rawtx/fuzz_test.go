package rawtx_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"noncegate/chain/ethereum/address"
	"noncegate/chain/ethereum/rawtx"
)

// FuzzDecode gives Decode bytes of strangers. Whether it is right about them is the
// matter of test/interop/rawtx, which asks go-ethereum.
func FuzzDecode(f *testing.F) {
	for _, v := range vectors(f) {
		if raw := v.raw(f); len(raw) < 10_000 {
			f.Add(raw)
		}
	}
	f.Add(wrapped(typed(3, plain(3)), list{list{}, list{}, list{}}))
	f.Add(wrapped(typed(3, plain(3)), list{1, list{}, pieces(1), pieces(128)}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := slices.Clone(raw)
		tx, err := rawtx.Decode(raw)
		if !bytes.Equal(raw, before) {
			t.Fatal("the input was changed")
		}
		if err != nil {
			checkError(t, tx, err)
			return
		}
		checkTx(t, tx, raw)
	})
}

func checkError(t *testing.T, tx *rawtx.Tx, err error) {
	t.Helper()
	of := 0
	for _, kind := range kinds {
		if errors.Is(err, kind) {
			of++
		}
	}
	e, ok := errors.AsType[*rawtx.Error](err)
	if tx != nil || of != 1 || !ok || e.Field == "" || e.Rule == "" || strings.Contains(err.Error(), "%!") || len(err.Error()) > 300 {
		t.Fatalf("got %v with %q, which is of %d kinds", tx, err, of)
	}
}

func checkTx(t *testing.T, tx *rawtx.Tx, raw []byte) {
	t.Helper()
	again, err := rawtx.Decode(raw)
	if err != nil || !reflect.DeepEqual(tx, again) {
		t.Fatalf("got %+v, and then %+v, %v", tx, again, err)
	}
	if tx.Sidecar == nil && tx.Hash != address.Keccak256(raw) {
		t.Fatalf("hash %x is not that of the bytes", tx.Hash)
	}
	if tx.From == (address.Address{}) || tx.HasChainID != (tx.ChainID != 0) || tx.Nonce == 1<<64-1 || tx.Type > rawtx.SetCode {
		t.Fatalf("got %+v", tx)
	}
	if (tx.BlobHashes > 0) != (tx.Type == rawtx.Blob) || (len(tx.Authorizations) > 0) != (tx.Type == rawtx.SetCode) {
		t.Fatalf("got %+v", tx)
	}
}
