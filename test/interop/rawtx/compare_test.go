package rawtx_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto/kzg4844"

	"noncegate/chain/ethereum/rawtx"
)

// exceptions are what core/types decodes and Decode refuses on purpose, and what its error
// says. go-ethereum refuses each of them too, later on: in its signers, its pools, or
// its blocks.
var exceptions = []exception{
	{"its pools take 128 KiB, and 1 MiB with blobs", "at most are taken", func(raw []byte, tx *types.Transaction) bool {
		if tx.BlobTxSidecar() == nil {
			return len(raw) > rawtx.MaxSize
		}
		inner, err := tx.WithoutBlobTxSidecar().MarshalBinary()
		return err != nil || len(inner) > rawtx.MaxSize || len(raw) > rawtx.MaxBlobSize
	}},
	{"its signers panic for chain 0", "no chain has it", func(_ []byte, tx *types.Transaction) bool {
		return tx.Protected() && tx.ChainId().Sign() == 0
	}},
	{"no chain id is above that of EIP-2294", "(EIP-2294)", func(_ []byte, tx *types.Transaction) bool {
		return tx.ChainId().Cmp(new(big.Int).SetUint64(rawtx.MaxChainID)) > 0
	}},
	{"its pool keeps to EIP-2681", "(EIP-2681)", func(_ []byte, tx *types.Transaction) bool {
		return tx.Nonce() == math.MaxUint64
	}},
	{"its pool takes amounts below 2^256", "must be below 2^256", func(_ []byte, tx *types.Transaction) bool {
		return max(tx.Value().BitLen(), tx.GasPrice().BitLen(), tx.GasTipCap().BitLen(), tx.GasFeeCap().BitLen()) > 256
	}},
	{"its blocks have no blob transaction without blobs (EIP-4844)", "at least one blob", func(_ []byte, tx *types.Transaction) bool {
		return tx.Type() == types.BlobTxType && len(tx.BlobHashes()) == 0
	}},
	{"its blocks have no blob hashes of another version (EIP-4844)", "the version 0x01", func(_ []byte, tx *types.Transaction) bool {
		return slices.ContainsFunc(tx.BlobHashes(), func(h common.Hash) bool { return h[0] != 1 })
	}},
	{"its pool wants at least one authorization (EIP-7702)", "at least one authorization", func(_ []byte, tx *types.Transaction) bool {
		return tx.Type() == types.SetCodeTxType && len(tx.SetCodeAuthorizations()) == 0
	}},
	{"its pool takes no transaction of more gas than EIP-7825 has", "(EIP-7825)", func(_ []byte, tx *types.Transaction) bool {
		return len(tx.SetCodeAuthorizations()) > rawtx.MaxAuthorizations
	}},
}

type exception struct {
	why     string
	says    string
	applies func(raw []byte, tx *types.Transaction) bool
}

// reference is what go-ethereum makes of raw: decoding, the sender, and what its pool
// asks of a sidecar before it looks at the proofs.
func reference(raw []byte) (*types.Transaction, common.Address, error) {
	tx := new(types.Transaction)
	if err := tx.UnmarshalBinary(raw); err != nil {
		return nil, common.Address{}, err
	}
	for _, e := range exceptions {
		if e.applies(raw, tx) {
			return nil, common.Address{}, errors.New(e.why)
		}
	}
	signer := types.Signer(types.HomesteadSigner{})
	if tx.Protected() {
		signer = types.LatestSignerForChainID(tx.ChainId())
	}
	from, err := types.Sender(signer, tx)
	if err != nil {
		return nil, common.Address{}, err
	}
	return tx, from, checkSidecar(tx)
}

func checkSidecar(tx *types.Transaction) error {
	s := tx.BlobTxSidecar()
	if s == nil {
		return nil
	}
	proofs := len(s.Commitments)
	if s.Version == types.BlobSidecarVersion1 {
		proofs *= kzg4844.CellProofsPerBlob
	}
	if len(s.Blobs) != len(s.Commitments) || len(s.Proofs) != proofs {
		return errors.New("numbers of blobs, commitments and proofs do not fit")
	}
	return s.ValidateBlobCommitmentHashes(tx.BlobHashes())
}

// difference says how Decode and go-ethereum differ about raw; "" is not at all.
// taken says whether both took it.
func difference(raw []byte) (diff string, taken bool) {
	got, gotErr := rawtx.Decode(raw)
	if gotErr == nil {
		got.RecoverAuthorities()
	}
	want, from, wantErr := reference(raw)
	switch {
	case gotErr != nil && wantErr != nil:
		return "", false
	case gotErr != nil:
		return fmt.Sprintf("refused (%v), go-ethereum takes it", gotErr), false
	case wantErr != nil:
		return fmt.Sprintf("taken, go-ethereum refuses it (%v)", wantErr), false
	}
	if here, there := readHere(got), readThere(want, from); !reflect.DeepEqual(here, there) {
		return fmt.Sprintf("got %+v, go-ethereum has %+v", here, there), true
	}
	if s := want.BlobTxSidecar(); s != nil && got.Sidecar.Blobs != len(s.Blobs) {
		return fmt.Sprintf("%d blobs, go-ethereum has %d", got.Sidecar.Blobs, len(s.Blobs)), true
	}
	return "", true
}

// agree fails the test where Decode and go-ethereum differ, and says whether both took raw.
func agree(t *testing.T, raw []byte, name string) bool {
	t.Helper()
	diff, taken := difference(raw)
	if diff != "" {
		t.Errorf("%s: %s\n%s", name, diff, shown(raw))
	}
	return taken
}

func shown(raw []byte) string {
	if len(raw) > 2000 {
		return fmt.Sprintf("%x … (%d bytes)", raw[:2000], len(raw))
	}
	return fmt.Sprintf("%x", raw)
}
