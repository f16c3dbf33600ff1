package rawtx_test

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"os"
	"reflect"
	"strings"
	"testing"

	"noncegate/chain/ethereum/rawtx"
	"noncegate/test/lab/expect"
)

// vector is a transaction of testdata/vectors.json and what go-ethereum reads in it.
// The file is written, and compared with go-ethereum, by test/interop/rawtx.
type vector struct {
	Name           string  `json:"name"`
	Raw            string  `json:"raw"`
	RawGzip        []byte  `json:"rawGzip"`
	Type           uint8   `json:"type"`
	ChainID        string  `json:"chainId"`
	From           string  `json:"from"`
	Nonce          uint64  `json:"nonce"`
	Hash           string  `json:"hash"`
	To             string  `json:"to"`
	Value          string  `json:"value"`
	Gas            uint64  `json:"gas"`
	GasPrice       string  `json:"gasPrice"`
	MaxFee         string  `json:"maxFeePerGas"`
	Tip            string  `json:"maxPriorityFeePerGas"`
	BlobFee        string  `json:"maxFeePerBlobGas"`
	DataLen        int     `json:"dataLen"`
	BlobHashes     int     `json:"blobHashes"`
	SidecarVersion *uint8  `json:"sidecarVersion"`
	Authorizations []vauth `json:"authorizations"`
}

type vauth struct {
	ChainID   string `json:"chainId"`
	Address   string `json:"address"`
	Nonce     uint64 `json:"nonce"`
	Authority string `json:"authority"`
	Invalid   bool   `json:"invalid"`
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	expect.Must(tb, err)
	var all []vector
	expect.Must(tb, json.Unmarshal(text, &all))
	return all
}

func (v *vector) raw(tb testing.TB) []byte {
	tb.Helper()
	if v.RawGzip == nil {
		return unhex(tb, v.Raw)
	}
	r, err := gzip.NewReader(bytes.NewReader(v.RawGzip))
	expect.Must(tb, err)
	raw, err := io.ReadAll(io.LimitReader(r, 2*rawtx.MaxBlobSize))
	expect.Must(tb, err)
	return raw
}

// named returns the bytes of a vector.
func named(tb testing.TB, name string) []byte {
	tb.Helper()
	for _, v := range vectors(tb) {
		if v.Name == name {
			return v.raw(tb)
		}
	}
	tb.Fatalf("no vector %q", name)
	return nil
}

func unhex(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.TrimPrefix(s, "0x"))
	expect.Must(tb, err)
	return b
}

func TestTransactionsOfGoEthereumAreReadAsItReadsThem(t *testing.T) {
	seen := map[uint8]int{}
	for _, v := range vectors(t) {
		raw := v.raw(t)
		tx, err := rawtx.Decode(raw)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		tx.RecoverAuthorities()
		clear(raw) // what was read must not lie in the input
		got := asVector(tx)
		got.Name, got.Raw, got.RawGzip = v.Name, v.Raw, v.RawGzip
		if !reflect.DeepEqual(got, v) || tx.Sidecar != nil && tx.BlobHashes != tx.Sidecar.Blobs {
			t.Errorf("%s\ngot  %+v\nwant %+v", v.Name, got, v)
		}
		seen[tx.Type]++
	}
	for kind := range uint8(5) {
		if seen[kind] < 2 {
			t.Errorf("%d vectors of type %d", seen[kind], kind)
		}
	}
}

// asVector is what was read, as the file has it.
func asVector(t *rawtx.Tx) vector {
	v := vector{
		Type: t.Type, From: t.From.String(), Nonce: t.Nonce, Hash: fmt.Sprintf("0x%x", t.Hash), Value: t.Value.String(), Gas: t.Gas,
		GasPrice: dec(t.GasPrice), MaxFee: dec(t.MaxFee), Tip: dec(t.Tip), BlobFee: dec(t.BlobFee), DataLen: t.DataLen, BlobHashes: t.BlobHashes,
	}
	if t.HasChainID || t.ChainID != 0 {
		v.ChainID = fmt.Sprint(t.ChainID)
	}
	if t.To != nil {
		v.To = t.To.String()
	}
	if t.Sidecar != nil {
		v.SidecarVersion, v.BlobHashes = &t.Sidecar.Version, t.Sidecar.Blobs
	}
	for i := range t.Authorizations {
		a := &t.Authorizations[i]
		v.Authorizations = append(v.Authorizations, vauth{a.ChainID.String(), a.Address.String(), a.Nonce, a.Authority.String(), !a.Valid})
	}
	return v
}

func dec(n *big.Int) string {
	if n == nil {
		return ""
	}
	return n.String()
}

// The worked example of EIP-155.
func TestTheExampleOfEIP155(t *testing.T) {
	tx, err := rawtx.Decode(unhex(t, "f86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a764000080"+
		"25a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"))
	expect.Must(t, err)
	if got := tx.From.String(); got != "0x9d8a62f656a8d1615c1294fd71e9cfb3e4855a4f" {
		t.Errorf("from %s", got)
	}
	if tx.Nonce != 9 || tx.ChainID != 1 || !tx.HasChainID || tx.GasPrice.Int64() != 20e9 || tx.Gas != 21000 ||
		tx.To.String() != "0x3535353535353535353535353535353535353535" || tx.Value.Int64() != 1e18 || tx.DataLen != 0 {
		t.Errorf("got %+v", tx)
	}
}

func TestASenderIsRecoveredWithoutTheAuthorities(t *testing.T) {
	tx, err := rawtx.Decode(with(4, 9, auths(rawtx.MaxAuthorizations)))
	expect.Must(t, err)
	if len(tx.Authorizations) != rawtx.MaxAuthorizations {
		t.Errorf("%d authorizations", len(tx.Authorizations))
	}
	for i := range tx.Authorizations {
		if a := &tx.Authorizations[i]; a.Valid || a.Authority != [20]byte{} {
			t.Fatalf("authorization %d has an authority before it was recovered", i)
		}
	}
}
