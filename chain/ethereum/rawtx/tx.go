package rawtx

import (
	"math"
	"math/big"

	"noncegate/chain/ethereum/address"
)

// The types of transactions that Decode reads.
const (
	Legacy     = 0
	AccessList = 1 // EIP-2930
	DynamicFee = 2 // EIP-1559
	Blob       = 3 // EIP-4844
	SetCode    = 4 // EIP-7702
)

// Bounds of what Decode takes, in bytes. They are those of go-ethereum's pools, so a
// node would refuse what is larger anyway.
const (
	MaxSize     = 128 << 10 // of a transaction without blobs
	MaxBlobSize = 1 << 20   // of a blob transaction with its sidecar: seven blobs at most
)

// MaxAuthorizations is how many authorizations one transaction may have. Each costs
// 25,000 gas (EIP-7702), and a transaction has 2^24 gas at most (EIP-7825).
const MaxAuthorizations = 1 << 24 / 25_000

// MaxChainID is the greatest chain id there can be (EIP-2294): with it the v of a legacy
// signature still fits 64 bits.
const MaxChainID = math.MaxUint64/2 - 36

// Tx is what a signed transaction says.
type Tx struct {
	Type  uint8
	From  address.Address // recovered from the signature
	Nonce uint64          // below 2^64-1
	Hash  [32]byte        // that the chain will have; a sidecar does not belong to it
	// ChainID is 1 to MaxChainID, or 0 without HasChainID: a legacy transaction of every chain.
	ChainID    uint64
	HasChainID bool

	To      *address.Address // nil: a contract is created
	Value   *big.Int         // wei, below 2^256
	Gas     uint64
	DataLen int // bytes of input
	// Payment is the same for transactions that pay the same to the same, with the same input,
	// blobs and authorizations, whatever their sender, nonce and fees.
	Payment [16]byte

	// Prices in wei, each below 2^256; nil where the type has no such field.
	GasPrice *big.Int // types 0 and 1
	MaxFee   *big.Int // maxFeePerGas, types 2 to 4
	Tip      *big.Int // maxPriorityFeePerGas, types 2 to 4
	BlobFee  *big.Int // maxFeePerBlobGas, type 3

	BlobHashes int      // how many blobs the transaction names; 1 or more in type 3
	Sidecar    *Sidecar // type 3 with its blobs, as it is sent to a node; else nil

	Authorizations []Authorization // type 4; 1 or more
}

// Cancels reports whether the transaction only uses its nonce: it pays nothing to its own sender,
// and carries nothing else.
func (t *Tx) Cancels() bool {
	return t.To != nil && *t.To == t.From && t.Value.Sign() == 0 && t.DataLen == 0 && t.BlobHashes == 0 && len(t.Authorizations) == 0
}

// Sidecar is what came along with a blob transaction.
type Sidecar struct {
	Version uint8 // 0: a proof for each blob (EIP-4844); 1: 128 cell proofs (EIP-7594)
	Blobs   int
}

// Authorization is an account's word that the code at an address shall act for it
// (EIP-7702). When a block includes the transaction and the authorization counts, it
// uses the nonce of Authority, as a transaction of that account would.
type Authorization struct {
	ChainID   *big.Int        // below 2^256; 0: every chain
	Address   address.Address // whose code shall act; zero: none any more
	Nonce     uint64
	Authority address.Address // that signed it; zero where no signer can be told
	Valid     bool            // nothing in the transaction makes nodes skip it; the account's state still may

	sig    signature
	signed []byte // the fields that it signs
}
