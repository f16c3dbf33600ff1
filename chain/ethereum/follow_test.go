package ethereum

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func TestAnAuthorizationIsAUseOfTheNonceOfWhoSignedIt(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		set := transfer(1, 7)
		set.Type = 4
		good := signedAuthorization(1, 9)
		every := signedAuthorization(0, 10)
		other := signedAuthorization(5, 11)
		broken := map[string]any{"chainId": "0x1", "address": "?", "nonce": "0x1"}
		badParity := maps.Clone(good)
		badParity["yParity"] = "0x2"
		zero := maps.Clone(good)
		zero["r"] = "0x0"
		set.Extra = map[string]any{"authorizationList": []any{good, other, broken, "no object", badParity, zero, every}}
		w.mine(set)
		want := []chain.Use{
			useOf(set),
			{Account: authority, Nonce: 9, Tx: chain.Hash(set.Hash), Authorization: true},
			{Account: authority, Nonce: 10, Tx: chain.Hash(set.Hash), Authorization: true},
		}
		if h := w.next(); !reflect.DeepEqual(h.Uses, want) {
			t.Errorf("uses %+v, want %+v", h.Uses, want)
		}
	})
}

// Of a transaction with fee caps the gas price is what was paid, not what was offered.
func TestWhatATransactionOffersIsReadOfIt(t *testing.T) {
	for want, extra := range map[chain.Offer]map[string]any{
		{MaxFeePerGas: "0xa", MaxPriorityFeePerGas: "0x1"}: {"gasPrice": "0x5", "maxFeePerGas": "0xA", "maxPriorityFeePerGas": "0x1"},
		{GasPrice: "0x5"}: {"gasPrice": "0x5", "maxFeePerBlobGas": "0x" + strings.Repeat("f", 65)},
		{}:                {},
	} {
		g, err := glimpseWith(t, extra)
		if err != nil || g.seen != chain.Pooled || g.offer != want {
			t.Errorf("%v: %+v, %v; want the offer %+v", extra, g, err, want)
		}
	}
}

// glimpseWith reads the transaction 1:3 with other members, which was asked for by its hash.
func glimpseWith(t *testing.T, extra map[string]any) (glimpse, error) {
	tx := transfer(1, 3)
	ask := chain.Ask{Account: tx.From, Nonce: 3, Hashes: []chain.Hash{chain.Hash(tx.Hash)}}
	tx.Extra = extra
	data, err := json.Marshal(tx.JSON(nil))
	must(t, err)
	return decodeGlimpse(data, ask, 1)
}

func TestWhatNodesShowIsSettledByTwo(t *testing.T) {
	a, b := chain.Hash{1}, chain.Hash{2}
	none, pooled, mined := glimpse{}, glimpse{seen: chain.Pooled, tx: a}, glimpse{seen: chain.Mined, tx: a}
	otherPooled, otherMined := glimpse{seen: chain.Pooled, tx: b}, glimpse{seen: chain.Mined, tx: b}
	for _, test := range []struct {
		shown     []glimpse
		needed    int
		seen      chain.Seen
		tx        chain.Hash
		settled   chain.Seen
		settledTx chain.Hash
	}{
		{[]glimpse{mined}, 1, chain.Mined, a, chain.Mined, a},
		{[]glimpse{none}, 1, chain.Absent, chain.Hash{}, chain.Absent, chain.Hash{}},
		{[]glimpse{mined, none, none}, 2, chain.Mined, a, chain.Absent, chain.Hash{}},
		{[]glimpse{pooled, pooled, none}, 2, chain.Pooled, a, chain.Pooled, a},
		{[]glimpse{pooled, mined, none}, 2, chain.Mined, a, chain.Pooled, a},
		{[]glimpse{pooled, otherPooled}, 2, chain.Pooled, a, chain.Pooled, chain.Hash{}},
		{[]glimpse{otherPooled, pooled}, 2, chain.Pooled, a, chain.Pooled, chain.Hash{}}, // a is recorded
		{[]glimpse{otherMined, pooled, pooled}, 2, chain.Mined, b, chain.Pooled, a},
		{[]glimpse{otherMined, mined, mined}, 2, chain.Mined, a, chain.Mined, a},
		{[]glimpse{otherMined, mined}, 2, chain.Mined, a, chain.Pooled, chain.Hash{}},
		{[]glimpse{pooled, pooled, otherPooled, otherPooled}, 2, chain.Pooled, a, chain.Pooled, chain.Hash{}},
	} {
		var s chain.Sighting
		sum(&s, test.shown, chain.Ask{Hashes: []chain.Hash{a}}, test.needed)
		if s.Seen != test.seen || s.Tx != test.tx || s.Settled != test.settled || s.SettledTx != test.settledTx {
			t.Errorf("%+v: %+v, want %+v", test.shown, s, test)
		}
	}
}

func TestWhatANodeClaimedIsAskedForByItsHash(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		own, carrier := transfer(1, 0), transfer(2, 0)
		carrier.Type, carrier.Extra = 4, map[string]any{"authorizationList": []any{signedAuthorization(1, 7)}}
		w.mine(own, carrier)
		pooled := transfer(3, 0)
		pooled.Type, pooled.Extra = carrier.Type, carrier.Extra
		w.nodes[0].SetPool(pooled)
		w.nodes[1].SetPool(pooled)
		claims := func(of fakenode.Tx) []chain.Hash { return []chain.Hash{chain.Hash(of.Hash)} }
		got, err := w.Lookup(t.Context(), []chain.Ask{
			{Account: own.From, Nonce: 0, Claims: claims(own)},
			{Account: authority, Nonce: 7, Claims: claims(carrier)}, // which may have used it
			{Account: authority, Nonce: 8, Claims: claims(carrier)},
			{Account: authority, Nonce: 7, Claims: claims(pooled)},
		})
		must(t, err)
		for i, want := range []chain.Seen{chain.Mined, chain.Mined, chain.Absent, chain.Absent} {
			if got[i].Settled != want || got[i].Seen != want || got[i].Nodes != 2 || got[i].Failed {
				t.Errorf("%d: %+v, want %v by two nodes of which none failed", i, got[i], want)
			}
		}
		if tx := got[1].SettledTx; tx != chain.Hash(carrier.Hash) {
			t.Errorf("by %v, want what carried the authorization", tx)
		}
	})
}

// A part has 32 transactions, or 16 pools.
func TestAPartOfALookupThatFailsLeavesTheOthers(t *testing.T) {
	var txs []fakenode.Tx
	asks := make([]chain.Ask, 40)
	for i := range asks {
		txs = append(txs, transfer(i, 3))
		asks[i] = chain.Ask{Account: txs[i].From, Nonce: 3}
	}
	for name, c := range map[string]struct {
		method  string // which is asked in parts, of which the second fails
		about   string // what a question of that part has
		limited bool   // the node wants fewer requests
	}{
		"by hash":               {method: methodTxByHash, about: txs[20].Hash.String()},
		"by hash, and limited":  {method: methodTxByHash, about: txs[20].Hash.String(), limited: true},
		"in pools":              {method: methodContentFrom, about: txs[20].From},
		"in pools, and limited": {method: methodContentFrom, about: txs[20].From, limited: true},
	} {
		withNodes(1).run(t, func(t *testing.T, w *world) {
			n := w.nodes[0]
			n.SetPool(txs...)
			usual := fakenode.Handler(func([]json.RawMessage) (any, error) { return nil, fakenode.ErrUsual })
			if c.method == methodContentFrom {
				usual = n.ContentFrom
			}
			var failing atomic.Bool
			n.On(c.method, func(params []json.RawMessage) (any, error) {
				if strings.Contains(string(params[0]), c.about) {
					failing.Store(true)
				}
				return usual(params)
			})
			n.On(methodChainID, func([]json.RawMessage) (any, error) { // the last of each part
				if failing.Swap(false) {
					return nil, map[bool]error{false: errors.New("database closed"),
						true: &fakenode.Error{Code: -32005, Message: "rate limited"}}[c.limited]
				}
				return nil, fakenode.ErrUsual
			})
			asks := slices.Clone(asks)
			for i := range asks {
				if c.method == methodTxByHash {
					asks[i].Hashes = []chain.Hash{chain.Hash(txs[i].Hash)}
				}
			}
			got, err := w.Lookup(t.Context(), asks)
			must(t, err)
			for i, s := range got {
				failed := i >= 16 && i < 32 || c.limited && i >= 16
				if failed != s.Failed || failed != (s.Nodes == 0) || failed == (s.Seen == chain.Pooled) {
					t.Errorf("%s: ask %d: %+v, want failed %v", name, i, s, failed)
				}
			}
		})
	}
	for name, answers := range map[string][]any{ // the last one from then on
		"none answered":    {&fakenode.Error{Code: -32005, Message: "rate limited"}},
		"of another chain": {"0x1", "0x1", "0x5"}, // one of the first may be asked for before the parts
	} {
		withNodes(1).run(t, func(t *testing.T, w *world) {
			w.nodes[0].On(methodChainID, func([]json.RawMessage) (any, error) {
				answer := answers[0]
				answers = answers[min(1, len(answers)-1):]
				err, _ := answer.(error)
				return answer, err
			})
			asks := slices.Clone(asks)
			for i := range asks {
				asks[i].Hashes = []chain.Hash{chain.Hash(txs[i].Hash)}
			}
			if got, err := w.Lookup(t.Context(), asks); !isUnreachable(err) {
				t.Errorf("%s: %d sightings, %v; want that no node answers", name, len(got), err)
			}
		})
	}
}

func TestAnAnswerThatIsNotTheTransactionIsNone(t *testing.T) {
	for name, extra := range map[string]map[string]any{
		"an empty one": {"from": nil}, "of another account": {"from": fakenode.Account(9)}, "with another nonce": {"nonce": "0x4"},
		"in a strange block": {"blockHash": "0x1"}, "in a block of no number": {"blockHash": fakenode.TxHash(1).String()},
	} {
		if g, err := glimpseWith(t, extra); err == nil {
			t.Errorf("%s: %+v", name, g)
		}
	}
	if g, err := decodeGlimpse([]byte(`"0x1"`), chain.Ask{}, 1); err == nil {
		t.Errorf("no transaction: %+v", g)
	}
}
