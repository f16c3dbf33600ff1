package chaintest

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

func TestANodeThatLagsKnowsNothingNewer(t *testing.T) {
	eachTransport(t, func(t *testing.T, s *Sim, p *Proxy, client *ethclient.Client) {
		a, b := s.Accounts[0], s.Accounts[1]
		old := send(t, s.Node, a, Payment{To: b.Address, Value: Ether(1)})
		pinned := s.Commit()
		s.Finalize(2)
		late := send(t, s.Node, a, Payment{Nonce: 1, To: b.Address, Value: Ether(1)})
		newer := s.Commit()
		commitN(s, 3)
		s.Finalize(4)
		send(t, s.Node, a, Payment{Nonce: 2})

		if number := p.Lag(4); number != 2 {
			t.Fatalf("it lags at block %d, want 2", number)
		}
		s.Commit() // and it does not follow
		ctx := t.Context()
		if number, err := client.BlockNumber(ctx); err != nil || number != 2 {
			t.Errorf("eth_blockNumber: %d, %v; want 2", number, err)
		}
		for _, tag := range []int64{int64(rpc.LatestBlockNumber), int64(rpc.PendingBlockNumber), int64(rpc.FinalizedBlockNumber), int64(rpc.SafeBlockNumber), 2} {
			if header, err := client.HeaderByNumber(ctx, big.NewInt(tag)); err != nil || header.Hash() != pinned {
				t.Errorf("block %d: %+v, %v; want %v", tag, header, err, pinned)
			}
			if count, err := client.NonceAt(ctx, a.Address, big.NewInt(tag)); err != nil || count != 1 {
				t.Errorf("count at %d: %d, %v; want 1", tag, count, err)
			}
		}
		if wei, err := client.BalanceAt(ctx, b.Address, nil); err != nil || wei.Cmp(Ether(1001)) != 0 {
			t.Errorf("balance %v, %v", wei, err)
		}
		var count string
		if err := client.Client().CallContext(ctx, &count, "eth_getTransactionCount", a.Address, map[string]any{"blockHash": pinned}); err != nil || count != "0x1" {
			t.Errorf("count at the hash of its newest block: %s, %v", count, err)
		}
		if header, err := client.HeaderByNumber(ctx, big.NewInt(1)); err != nil || header.Number.Uint64() != 1 {
			t.Errorf("block 1: %+v, %v", header, err)
		}

		// What came later is not there.
		for what, err := range map[string]error{
			"block by number": second(client.HeaderByNumber(ctx, big.NewInt(3))),
			"block by hash":   second(client.HeaderByHash(ctx, newer)),
			"receipt":         second(client.TransactionReceipt(ctx, late.Hash())),
			"receipts":        second(client.BlockReceipts(ctx, rpc.BlockNumberOrHashWithHash(newer, false))),
			"transaction":     func() error { _, _, err := client.TransactionByHash(ctx, late.Hash()); return err }(),
		} {
			if !errors.Is(err, ethereum.NotFound) {
				t.Errorf("%s: %v, want that it is not found", what, err)
			}
		}
		for _, at := range []any{"0x3", map[string]any{"blockNumber": "0x3"}, map[string]any{"blockHash": newer}, newer} {
			err := client.Client().CallContext(ctx, &count, "eth_getTransactionCount", a.Address, at)
			if err == nil || !strings.Contains(err.Error(), "header not found") {
				t.Errorf("count at %v: %s, %v; want that the header is not found", at, count, err)
			}
		}
		// What came before is.
		if r, err := client.TransactionReceipt(ctx, old.Hash()); err != nil || r.BlockHash != pinned {
			t.Errorf("receipt: %+v, %v", r, err)
		}

		p.CatchUp()
		if count, err := client.NonceAt(ctx, a.Address, nil); err != nil || count != 3 {
			t.Errorf("count when it has caught up: %d, %v; want 3", count, err)
		}
		if number, err := client.BlockNumber(ctx); err != nil || number != 7 {
			t.Errorf("block when it has caught up: %d, %v; want 7", number, err)
		}
	})
}

func second[V any](_ V, err error) error { return err }

func commitN(s *Sim, n int) {
	for range n {
		s.CommitEmpty()
	}
}
