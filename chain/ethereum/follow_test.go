package ethereum

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
	"time"

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

func TestAnAbsurdBlockIsNotBelievedWhileAnotherNodeGoesOn(t *testing.T) {
	high := func(by int64) func(b map[string]any, own *fakenode.Block) {
		return func(b map[string]any, own *fakenode.Block) { b["number"] = fakenode.Quantity(own.Number + by) }
	}
	dated := func(when string) func(b map[string]any, own *fakenode.Block) {
		return func(b map[string]any, own *fakenode.Block) { // the next block, as it were
			b["number"], b["parentHash"], b["timestamp"] = fakenode.Quantity(own.Number+1), own.Hash.String(), when
		}
	}
	for name, lie := range map[string]func(b map[string]any, own *fakenode.Block){
		"far too high": high(1_000_000), "without end": high(1 << 60), "a little ahead": high(70), "many blocks": high(1 << 40),
		"from tomorrow": dated(fakenode.Quantity(time.Now().Unix() + 86400)), "end of time": dated("0x7fffffffffffffff"),
	} {
		t.Run(name, func(t *testing.T) {
			withNodes(2).run(t, func(t *testing.T, w *world) {
				for range 3 { // so that the time between blocks is known
					w.mine()
					w.next()
				}
				liar := w.nodes[1]
				liar.On(methodBlockByNumber, func(params []json.RawMessage) (any, error) {
					own := liar.Head()
					b := own.JSON(true)
					if string(params[0]) == `"latest"` {
						b["hash"], b["parentHash"] = fakenode.TxHash(int(own.Number)).String(), fakenode.TxHash(2).String()
						lie(b, own)
					}
					return b, nil
				})
				for range 5 {
					if b := w.mine(); w.last().Latest != blockOf(b) {
						t.Error("the chain does not go on with the honest node")
					}
				}
				if s := w.nodeStatus(1); s.OnBranch || s.LastError == "" {
					t.Errorf("status %+v, want not believed and why", s)
				}
				if got := w.figure(`chain_node_off_branch{b}`) + w.figure(`chain_node_up{b}`); got != 2 && got != 0 {
					t.Errorf("the figures are %v, want up and off the branch, or down", got)
				}
			})
		})
	}
}
