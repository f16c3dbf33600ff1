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
		a := s.Accounts[0]
		old, late := s.Sign(a, Payment{}), s.Sign(a, Payment{Nonce: 1})
		s.must("send", s.Send(old))
		pinned := s.Commit()
		s.must("send", s.Send(late))
		newer := s.Commit()
		s.Finalize(3)
		s.must("send", s.Send(s.Sign(a, Payment{Nonce: 2})))

		if number := p.Lag(1); number != 2 {
			t.Fatalf("it lags at block %d, want 2", number)
		}
		s.Commit() // and it does not follow
		ctx := t.Context()
		if number, err := client.BlockNumber(ctx); err != nil || number != 2 {
			t.Errorf("eth_blockNumber: %d, %v; want 2", number, err)
		}
		for _, tag := range []rpc.BlockNumber{rpc.LatestBlockNumber, rpc.PendingBlockNumber, rpc.FinalizedBlockNumber, 2} {
			if header, err := client.HeaderByNumber(ctx, big.NewInt(int64(tag))); err != nil || header.Hash() != pinned {
				t.Errorf("block %d: %+v, %v; want %v", tag, header, err, pinned)
			}
			if count, err := client.NonceAt(ctx, a.Address, big.NewInt(int64(tag))); err != nil || count != 1 {
				t.Errorf("count at %d: %d, %v; want 1", tag, count, err)
			}
		}
		// What came later is not there, and what came before is.
		_, byNumber := client.HeaderByNumber(ctx, big.NewInt(3))
		_, byHash := client.HeaderByHash(ctx, newer)
		_, receipt := client.TransactionReceipt(ctx, late.Hash())
		_, _, byTx := client.TransactionByHash(ctx, late.Hash())
		for what, err := range map[string]error{"block by number": byNumber, "block by hash": byHash, "receipt": receipt, "transaction": byTx} {
			if !errors.Is(err, ethereum.NotFound) {
				t.Errorf("%s: %v, want that it is not found", what, err)
			}
		}
		var count string
		for _, at := range []any{"0x3", map[string]any{"blockNumber": "0x3"}, map[string]any{"blockHash": newer}} {
			err := client.Client().CallContext(ctx, &count, "eth_getTransactionCount", a.Address, at)
			if err == nil || !strings.Contains(err.Error(), "header not found") {
				t.Errorf("count at %v: %s, %v; want that the header is not found", at, count, err)
			}
		}
		if r, err := client.TransactionReceipt(ctx, old.Hash()); err != nil || r.BlockHash != pinned {
			t.Errorf("receipt: %+v, %v", r, err)
		}
		p.CatchUp()
		if count, err := client.NonceAt(ctx, a.Address, nil); err != nil || count != 3 {
			t.Errorf("count when it has caught up: %d, %v; want 3", count, err)
		}
	})
}
