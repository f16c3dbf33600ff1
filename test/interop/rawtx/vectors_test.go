package rawtx_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
)

const vectorFile = "../../../chain/ethereum/rawtx/testdata/vectors.json"

var update = flag.Bool("update", false, "write "+vectorFile+" anew")

// vector is a sample and what go-ethereum reads in it. Absent members are none.
type vector struct {
	Name           string          `json:"name"`
	Raw            hexutil.Bytes   `json:"raw,omitempty"`
	RawGzip        []byte          `json:"rawGzip,omitempty"` // where there are blobs
	Type           uint8           `json:"type"`
	ChainID        string          `json:"chainId,omitempty"`
	From           common.Address  `json:"from"`
	Nonce          uint64          `json:"nonce"`
	Hash           common.Hash     `json:"hash"`
	To             *common.Address `json:"to,omitempty"`
	Value          string          `json:"value"`
	Gas            uint64          `json:"gas"`
	GasPrice       string          `json:"gasPrice,omitempty"`
	MaxFee         string          `json:"maxFeePerGas,omitempty"`
	Tip            string          `json:"maxPriorityFeePerGas,omitempty"`
	BlobFee        string          `json:"maxFeePerBlobGas,omitempty"`
	DataLen        int             `json:"dataLen"`
	BlobHashes     int             `json:"blobHashes,omitempty"`
	SidecarVersion *uint8          `json:"sidecarVersion,omitempty"`
	Authorizations []vectorAuth    `json:"authorizations,omitempty"`
}

type vectorAuth struct {
	ChainID   string         `json:"chainId"`
	Address   common.Address `json:"address"`
	Nonce     uint64         `json:"nonce"`
	Authority common.Address `json:"authority"`
	Invalid   bool           `json:"invalid,omitempty"`
}

func newVector(tb testing.TB, s sample) vector {
	tb.Helper()
	tx, from, err := reference(s.raw)
	if err != nil {
		tb.Fatalf("%s: %v", s.name, err)
	}
	v := vector{Name: s.name, Raw: s.raw, Type: tx.Type(), From: from, Nonce: tx.Nonce(), Hash: tx.Hash(), To: tx.To(),
		Value: tx.Value().String(), Gas: tx.Gas(), DataLen: len(tx.Data()), BlobHashes: len(tx.BlobHashes())}
	if tx.Protected() {
		v.ChainID = tx.ChainId().String()
	}
	if tx.Type() <= types.AccessListTxType {
		v.GasPrice = tx.GasPrice().String()
	} else {
		v.MaxFee, v.Tip = tx.GasFeeCap().String(), tx.GasTipCap().String()
	}
	if tx.Type() == types.BlobTxType {
		v.BlobFee = tx.BlobGasFeeCap().String()
	}
	if side := tx.BlobTxSidecar(); side != nil {
		v.SidecarVersion = &side.Version
		v.Raw, v.RawGzip = nil, packed(tb, s.raw)
	}
	for _, a := range tx.SetCodeAuthorizations() {
		authority, err := a.Authority()
		ok := err == nil && a.Nonce+1 != 0 && (a.ChainID.IsZero() || a.ChainID.CmpBig(tx.ChainId()) == 0)
		v.Authorizations = append(v.Authorizations, vectorAuth{a.ChainID.Dec(), a.Address, a.Nonce, authority, !ok})
	}
	return v
}

func packed(tb testing.TB, raw []byte) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(raw); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// The vectors of the decoder's own tests say what go-ethereum says today. -update writes
// them.
func TestVectorsAreWhatGoEthereumReads(t *testing.T) {
	var want []vector
	for _, s := range samples(t) {
		want = append(want, newVector(t, s))
	}
	if *update {
		text, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var got []vector
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d vectors in the file, want %d", len(got), len(want))
	}
	for i := range got {
		same(t, got[i], want[i])
	}
}

// same compares two vectors. gzip may write other bytes in another version of Go, so
// what they unpack to is compared.
func same(t *testing.T, got, want vector) {
	t.Helper()
	for _, v := range []*vector{&got, &want} {
		if v.RawGzip == nil {
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(v.RawGzip))
		if err != nil {
			t.Fatal(err)
		}
		if v.Raw, err = io.ReadAll(io.LimitReader(r, params.BlobTxBlobGasPerBlob*8)); err != nil {
			t.Fatal(err)
		}
		v.RawGzip = nil
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("%s: the file differs from what go-ethereum reads; -update writes it anew\nfile        %.2000s\ngo-ethereum %.2000s", want.Name, a, b)
	}
}
