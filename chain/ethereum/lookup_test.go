package ethereum

import (
	"encoding/json"
	"strings"
	"testing"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func TestATransactionIsSeenByItsHashInTheBlockOrThePool(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		mined, pooled, unknown := transfer(1, 0), transfer(1, 1), transfer(1, 2)
		mined.Extra = map[string]any{"gasPrice": "0x5", "maxFeePerGas": "0xA", "maxPriorityFeePerGas": "0x1", "type": "0x2"}
		pooled.Extra = map[string]any{"gasPrice": "0x5", "maxFeePerBlobGas": "0x" + strings.Repeat("f", 65)}
		w.nodes[0].SetPool(mined)
		b := w.chain.Extend(w.nodes[0].Head(), mined)
		w.nodes[1].SetHead(b)
		w.nodes[1].SetPool(pooled)
		ask := func(tx fakenode.Tx) chain.Ask {
			return chain.Ask{Account: tx.From, Nonce: tx.Nonce, Hashes: []chain.Hash{chain.Hash(tx.Hash)}}
		}
		got, err := w.Lookup(t.Context(), []chain.Ask{ask(mined), ask(pooled), ask(unknown)})
		must(t, err)
		want := []chain.Sighting{
			{Seen: chain.Mined, Tx: chain.Hash(mined.Hash), Block: chain.Block{Number: b.Number, Hash: chain.Hash(b.Hash)}, Nodes: 2, Origin: "b",
				Raw: chain.Offer{MaxFeePerGas: "0xa", MaxPriorityFeePerGas: "0x1"}},
			{Seen: chain.Pooled, Tx: chain.Hash(pooled.Hash), Nodes: 2, Origin: "b", Raw: chain.Offer{GasPrice: "0x5"}},
			{Nodes: 2},
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("sighting %d is %+v, want %+v", i, got[i], want[i])
			}
		}
	})
}

func TestALookupThatANodeDidNotAnswerSaysSo(t *testing.T) {
	for name, answer := range map[string]fakenode.Handler{
		"refused": func([]json.RawMessage) (any, error) {
			return nil, &fakenode.Error{Code: -32603, Message: "database closed"}
		},
		"no transaction":      func([]json.RawMessage) (any, error) { return "0x1", nil },
		"an empty one":        func([]json.RawMessage) (any, error) { return map[string]any{}, nil },
		"of another account":  func([]json.RawMessage) (any, error) { tx := transfer(9, 3); return tx.JSON(nil), nil },
		"with another nonce":  func([]json.RawMessage) (any, error) { tx := transfer(1, 4); return tx.JSON(nil), nil },
		"in a strange block":  func([]json.RawMessage) (any, error) { return strange("blockHash", "0x1"), nil },
		"in a block of no no": func([]json.RawMessage) (any, error) { return strange("blockHash", fakenode.TxHash(1).String()), nil },
	} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			w.nodes[1].On(methodTxByHash, answer)
			tx := transfer(1, 3)
			asks := []chain.Ask{{Account: tx.From, Nonce: 3, Hashes: []chain.Hash{chain.Hash(tx.Hash)}}}
			got, err := w.Lookup(t.Context(), asks)
			if err != nil || !got[0].Failed || got[0].Seen != chain.Absent || got[0].Nodes != 1 {
				t.Errorf("%s: %+v, %v; want absent, failed, one node", name, got, err)
			}
			w.nodes[0].SetPool(tx)
			got, err = w.Lookup(t.Context(), asks)
			if err != nil || !got[0].Failed || got[0].Seen != chain.Pooled || got[0].Nodes != 1 {
				t.Errorf("%s: %+v, %v; want pooled, failed, one node", name, got, err)
			}
		})
	}
}

func strange(member string, value any) any {
	tx := transfer(1, 3)
	tx.Extra = map[string]any{member: value}
	return tx.JSON(nil)
}
