package chaintest

import (
	"crypto/ecdsa"
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/crypto/kzg4844"
	"github.com/holiman/uint256"
)

// Gas and fees of what Sign makes. The fee is far above the base fee of these chains,
// so that only what a test sends with a Bump below zero is ever underpriced.
const (
	gasLimit   = 100_000
	tipCap     = 1_000_000_000   // wei
	feeCap     = 100_000_000_000 // wei
	blobFeeCap = 1_000_000_000   // wei
)

// Account is a key and its address. The same index is the same account on every chain of this package, in every run.
type Account struct {
	Key     *ecdsa.PrivateKey
	Address common.Address
}

// NewAccount is the account of that index.
func NewAccount(index int) Account {
	seed := binary.BigEndian.AppendUint64([]byte("noncegate chaintest account "), uint64(index))
	key, err := crypto.ToECDSA(crypto.Keccak256(seed))
	if err != nil {
		panic(fmt.Sprintf("account %d has no valid key: %v", index, err)) // one in 2^128
	}
	return Account{Key: key, Address: crypto.PubkeyToAddress(key.PublicKey)}
}

// NewAccounts are the accounts 0 to n-1.
func NewAccounts(n int) []Account {
	accounts := make([]Account, n)
	for i := range accounts {
		accounts[i] = NewAccount(i)
	}
	return accounts
}

// Payment says what a transaction of Sign does.
type Payment struct {
	Nonce uint64
	To    common.Address // the zero address by default
	Value *big.Int       // wei; nil is 1
	Data  []byte
	Bump  int // by how many per cent the fees are above the usual; below zero: cheaper
}

// Sign makes a transaction of type 2 and signs it.
func (n *Node) Sign(from Account, p Payment) *types.Transaction {
	if p.Value == nil {
		p.Value = big.NewInt(1)
	}
	return n.sign(from, &types.DynamicFeeTx{
		ChainID: n.ChainID(), Nonce: p.Nonce, To: &p.To, Value: p.Value, Data: p.Data, Gas: gasLimit,
		GasTipCap: new(big.Int).SetUint64(bumped(tipCap, p.Bump)), GasFeeCap: new(big.Int).SetUint64(bumped(feeCap, p.Bump)),
	})
}

// SignBlob makes a transaction of type 3 with one blob of zeros, in the form in which it is sent (with its sidecar), and signs it. Of p
// it knows Nonce, To and Bump, which for this type must be 100 at least to replace another. The first call of a process takes some
// seconds: it prepares what a Sim checks blobs with, so that no call of a client waits for that.
func (n *Node) SignBlob(from Account, p Payment) *types.Transaction {
	n.t.Helper()
	if err := kzg4844.UseCKZG(false); err != nil {
		n.t.Fatalf("prepare for blobs: %v", err)
	}
	sidecar := zeroBlob()
	return n.sign(from, &types.BlobTx{
		ChainID: uint256.MustFromBig(n.ChainID()), Nonce: p.Nonce, To: p.To, Gas: gasLimit,
		GasTipCap: uint256.NewInt(bumped(tipCap, p.Bump)), GasFeeCap: uint256.NewInt(bumped(feeCap, p.Bump)),
		BlobFeeCap: uint256.NewInt(bumped(blobFeeCap, p.Bump)), BlobHashes: sidecar.BlobHashes(), Sidecar: sidecar,
	})
}

// zeroBlob is a blob of zeros with its proofs, each of which is the point at infinity.
func zeroBlob() *types.BlobTxSidecar {
	proofs := make([]kzg4844.Proof, kzg4844.CellProofsPerBlob)
	for i := range proofs {
		proofs[i][0] = 0xc0
	}
	return types.NewBlobTxSidecar(types.BlobSidecarVersion1, make([]kzg4844.Blob, 1), []kzg4844.Commitment{{0xc0}}, proofs)
}

// SignDelegations makes a transaction of type 4 that carries the authorizations, and signs it. Of p it knows all but Value, which is 0.
func (n *Node) SignDelegations(from Account, p Payment, auths ...types.SetCodeAuthorization) *types.Transaction {
	return n.sign(from, &types.SetCodeTx{
		ChainID: uint256.MustFromBig(n.ChainID()), Nonce: p.Nonce, To: p.To, Data: p.Data, Gas: 10 * gasLimit,
		GasTipCap: uint256.NewInt(bumped(tipCap, p.Bump)), GasFeeCap: uint256.NewInt(bumped(feeCap, p.Bump)), AuthList: auths,
	})
}

// Authorize signs an EIP-7702 authorization: whoever mines it sets the code of the
// account to that of target and moves its nonce from nonce to the next.
func (n *Node) Authorize(account Account, target common.Address, nonce uint64) types.SetCodeAuthorization {
	n.t.Helper()
	auth, err := types.SignSetCode(account.Key, types.SetCodeAuthorization{
		ChainID: *uint256.MustFromBig(n.ChainID()), Address: target, Nonce: nonce,
	})
	if err != nil {
		n.t.Fatalf("authorization of %v: %v", account.Address, err)
	}
	return auth
}

func (n *Node) sign(from Account, tx types.TxData) *types.Transaction {
	n.t.Helper()
	signed, err := types.SignNewTx(from.Key, types.LatestSignerForChainID(n.ChainID()), tx)
	if err != nil {
		n.t.Fatalf("sign a transaction of %v: %v", from.Address, err)
	}
	return signed
}

func bumped(wei uint64, percent int) uint64 {
	return uint64(int64(wei) / 100 * int64(100+percent))
}
