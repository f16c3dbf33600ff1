package chaintest

import (
	"context"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

// T is what this package needs of a *testing.T. A program that runs a chain without a test gives its own; its Fatalf must not return.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Node asks a node the way any client does, over a connection of its own that no Proxy stands in front of. What the node refuses and no
// test expects ends the test; methods that return an error return what the node said. Methods may be called from any goroutine; where one
// calls Fatalf, testing.T's rule for goroutines holds.
type Node struct {
	t       T
	url, ws string
	rpc     *rpc.Client
	eth     *ethclient.Client
	chainID *big.Int
	// settle waits until what was sent is where it belongs in the pool.
	settle func()
}

// newNode connects nothing yet but asks which chain it is.
func newNode(t T, client *rpc.Client, url, ws string) *Node {
	t.Helper()
	n := &Node{t: t, url: url, ws: ws, rpc: client, eth: ethclient.NewClient(client), settle: func() {}}
	id, err := n.eth.ChainID(t.Context())
	n.must("eth_chainId", err)
	n.chainID = id
	return n
}

// URL is the node's address for HTTP.
func (n *Node) URL() string { return n.url }

// WS is the node's address for WebSockets.
func (n *Node) WS() string { return n.ws }

// ChainID is what the node said at the start. It must not be changed.
func (n *Node) ChainID() *big.Int { return n.chainID }

// Call is for what has no method here. The error is the node's.
func (n *Node) Call(result any, method string, args ...any) error {
	return n.rpc.CallContext(n.t.Context(), result, method, args...)
}

// Send sends a transaction in its signed form and returns what the node refused it with.
func (n *Node) Send(tx *types.Transaction) error {
	_, err := n.SendRaw(n.Raw(tx))
	return err
}

// SendRaw sends any bytes as a transaction and returns the hash the node answered, or its refusal.
func (n *Node) SendRaw(raw []byte) (common.Hash, error) {
	var hash common.Hash
	err := n.Call(&hash, "eth_sendRawTransaction", hexutil.Bytes(raw))
	n.settle()
	return hash, err
}

// Raw is the form in which a transaction is sent.
func (n *Node) Raw(tx *types.Transaction) []byte {
	n.t.Helper()
	raw, err := tx.MarshalBinary()
	n.must("encode a transaction", err)
	return raw
}

// Balance is an account's balance in wei at the head.
func (n *Node) Balance(account common.Address) *big.Int {
	n.t.Helper()
	wei, err := n.eth.BalanceAt(n.t.Context(), account, nil)
	n.must("eth_getBalance", err)
	return wei
}

// Nonce is an account's transaction count at the head.
func (n *Node) Nonce(account common.Address) uint64 { return n.count(account, "latest") }

// PendingNonce is an account's transaction count with what its pool can mine next, everything
// that was sent before included: geth answers a transaction before its pool counts it.
func (n *Node) PendingNonce(account common.Address) uint64 {
	n.settle()
	return n.count(account, "pending")
}

func (n *Node) count(account common.Address, at string) (count uint64) {
	n.t.Helper()
	n.must("eth_getTransactionCount", n.Call((*hexutil.Uint64)(&count), "eth_getTransactionCount", account, at))
	return count
}

// Head is the number and the hash of the newest block.
func (n *Node) Head() (uint64, common.Hash) {
	n.t.Helper()
	var block struct {
		Number hexutil.Uint64
		Hash   common.Hash
	}
	n.must("eth_getBlockByNumber", n.Call(&block, "eth_getBlockByNumber", "latest", false))
	return uint64(block.Number), block.Hash
}

// Receipt is the receipt of a transaction, nil where the node has none.
func (n *Node) Receipt(hash common.Hash) *types.Receipt {
	n.t.Helper()
	receipt, err := n.eth.TransactionReceipt(n.t.Context(), hash)
	if errors.Is(err, ethereum.NotFound) {
		return nil
	}
	n.must("eth_getTransactionReceipt", err)
	return receipt
}

// Where a node has a transaction.
const (
	Nowhere = "nowhere"
	InPool  = "in the pool"
	Mined   = "mined"
)

// Where says where the node has a transaction: Nowhere, InPool (able to be mined or not) or Mined.
func (n *Node) Where(hash common.Hash) string {
	n.t.Helper()
	_, pending, err := n.eth.TransactionByHash(n.t.Context(), hash)
	switch {
	case errors.Is(err, ethereum.NotFound):
		return Nowhere
	case err != nil:
		n.must("eth_getTransactionByHash", err)
	case pending:
		return InPool
	}
	return Mined
}

func (n *Node) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s at %s: %v", what, n.url, err)
	}
}
