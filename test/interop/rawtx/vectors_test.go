package rawtx_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"reflect"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"

	"noncegate/chain/ethereum/rawtx"
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

// readThere is what go-ethereum reads. It judges authorizations as its state transition does before it looks at the state.
func readThere(tx *types.Transaction, from common.Address) vector {
	v := vector{Type: tx.Type(), From: from, Nonce: tx.Nonce(), Hash: tx.Hash(), To: tx.To(),
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
	}
	for _, a := range tx.SetCodeAuthorizations() {
		authority, err := a.Authority()
		ok := err == nil && a.Nonce+1 != 0 && (a.ChainID.IsZero() || a.ChainID.CmpBig(tx.ChainId()) == 0)
		v.Authorizations = append(v.Authorizations, vectorAuth{a.ChainID.Dec(), a.Address, a.Nonce, authority, !ok})
	}
	return v
}

// readHere is what Decode reads.
func readHere(tx *rawtx.Tx) vector {
	price := func(wei *big.Int) string {
		if wei == nil {
			return ""
		}
		return wei.String()
	}
	v := vector{Type: tx.Type, From: common.Address(tx.From), Nonce: tx.Nonce, Hash: tx.Hash, To: (*common.Address)(tx.To),
		Value: tx.Value.String(), Gas: tx.Gas, DataLen: tx.DataLen, BlobHashes: tx.BlobHashes,
		GasPrice: price(tx.GasPrice), MaxFee: price(tx.MaxFee), Tip: price(tx.Tip), BlobFee: price(tx.BlobFee)}
	if tx.HasChainID {
		v.ChainID = fmt.Sprint(tx.ChainID)
	}
	if tx.Sidecar != nil {
		v.SidecarVersion = &tx.Sidecar.Version
	}
	for _, a := range tx.Authorizations {
		v.Authorizations = append(v.Authorizations,
			vectorAuth{a.ChainID.String(), common.Address(a.Address), a.Nonce, common.Address(a.Authority), !a.Valid})
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

// unpacked is a vector without gzip, which may write other bytes in another version of Go.
func unpacked(tb testing.TB, v vector) vector {
	tb.Helper()
	if v.RawGzip != nil {
		r := must(gzip.NewReader(bytes.NewReader(v.RawGzip)))(tb)
		v.Raw, v.RawGzip = must(io.ReadAll(io.LimitReader(r, params.BlobTxBlobGasPerBlob*8)))(tb), nil
	}
	return v
}

// The vectors of the decoder's own tests, by which it reads every sample, say what go-ethereum says today. -update writes them.
func TestVectorsAreWhatGoEthereumReads(t *testing.T) {
	var got, want []vector
	for _, s := range samples(t) {
		tx, from, err := reference(s.raw)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		v := readThere(tx, from)
		if v.Name, v.Raw = s.name, s.raw; v.SidecarVersion != nil {
			v.Raw, v.RawGzip = nil, packed(t, s.raw)
		}
		want = append(want, v)
	}
	if *update {
		text := must(json.MarshalIndent(want, "", " "))(t)
		if err := os.WriteFile(vectorFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(must(os.ReadFile(vectorFile))(t), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d vectors in the file, want %d", len(got), len(want))
	}
	for i := range got {
		if a, b := unpacked(t, got[i]), unpacked(t, want[i]); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the file differs from what go-ethereum reads; -update writes it anew\n"+
				"file        %.2000v\ngo-ethereum %.2000v", b.Name, a, b)
		}
	}
}
