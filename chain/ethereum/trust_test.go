package ethereum

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

// TestBlocksAndCountsOfOtherNodesAreReadAsTheyAre has a test for each row of
// testdata/blocks.json.
func TestBlocksAndCountsOfOtherNodesAreReadAsTheyAre(t *testing.T) {
	data, err := os.ReadFile("testdata/blocks.json")
	must(t, err)
	var rows []struct {
		What        string
		Right       string
		Transaction map[string]any
		Block       map[string]any
		Count       string
	}
	must(t, json.Unmarshal(data, &rows))
	leftOut := func(t *testing.T, odd map[string]any) {
		withNodes(1).run(t, func(t *testing.T, w *world) {
			tx := transfer(2, 0)
			tx.Extra = odd
			for _, member := range []string{"nonce", "type", "from"} {
				if _, has := odd[member]; !has {
					tx.Extra[member] = nil
				}
			}
			b := w.mine(transfer(1, 0), tx, transfer(3, 0))
			h := w.next()
			read := 0
			for _, u := range h.Uses {
				if !u.Unread {
					read++
				}
			}
			if h.Latest != blockOf(b) || read != 2 || h.Skipped || !w.nodeStatus(0).Up {
				t.Errorf("head %+v, want the two other transactions of the block", h)
			}
		})
	}
	for _, row := range rows {
		t.Run(row.What, func(t *testing.T) {
			switch {
			case row.Transaction != nil:
				leftOut(t, row.Transaction)
			case row.Count != "":
				number, err := parseQuantity(row.Block["number"].(string))
				count, err2 := decodeQuantity([]byte(`"` + row.Count + `"`))
				if err != nil || err2 != nil || number != 10 || count != 1 {
					t.Errorf("%d, %d, %v, %v; want %s", number, count, err, err2, row.Right)
				}
			case strings.Contains(row.What, `"pending\") is an error`), strings.Contains(row.What, "pending"):
				withoutPendingCounts(t)
			case strings.Contains(row.What, "count of any block"):
				ofThePool(t)
			case strings.Contains(row.What, "finalized"):
				withoutFinal(t)
			case strings.Contains(row.What, "more than three calls"):
				smallBatches(t)
			default:
				t.Fatalf("there is no test for this row: %s", row.Right)
			}
		})
	}
}

func withoutPendingCounts(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.mine(transfer(1, 0))
		n := w.nodes[0]
		n.On(methodCount, func(params []json.RawMessage) (any, error) {
			if string(params[1]) == `"pending"` {
				return nil, &fakenode.Error{Code: -32000, Message: "no pending state here"}
			}
			return fakenode.Quantity(1), nil
		})
		accounts := []string{fakenode.Account(1)}
		if got, err := w.Start(t.Context(), accounts); !isUnreachable(err) || !strings.Contains(err.Error(), "no pending state here") || !strings.Contains(err.Error(), "a: ") {
			t.Errorf("the first time: %+v, %v; want that nothing is known, and the node's own error", got, err)
		}
		for range 3 {
			if got, err := w.Start(t.Context(), accounts); err != nil || got[0] != (chain.Start{Latest: 1, Pending: 1}) {
				t.Errorf("%+v, %v; want to begin at the latest count", got, err)
			}
		}
		if got := w.logged("has no pending counts"); got != 1 {
			t.Errorf("said %d times, want once", got)
		}
	})
}

func ofThePool(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		n := w.nodes[0]
		n.SetHead(w.chain.Extend(n.Head(), transfer(1, 0)))
		n.On(methodCount, func([]json.RawMessage) (any, error) { return "0x3", nil })
		w.start()
		w.settle()
		got, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)})
		if err != nil || got[0] != (chain.Count{Used: 3, Nodes: 1, Loose: true}) {
			t.Errorf("%+v, %v; want a count that is loose", got, err)
		}
		if w.logged("the same count for every block") != 1 {
			t.Error("that is not said once")
		}
	})
}

func withoutFinal(t *testing.T) {
	withNodes(2).prepare(t, func(t *testing.T, w *world) {
		w.finals(nil)
		w.start()
		time.Sleep(20 * maxInterval)
		if got := w.logged("--chain-finality"); got != 2 { // in the sentence and the example of one line
			t.Errorf("the setting is named %d times, want in one line", got)
		}
		w.wantFigure("chain_final_missing", 1)
		w.finals(below(w.nodes[0].Head(), 10))
		w.settle()
		w.wantFigure("chain_final_missing", 0)
	})
}

func smallBatches(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		refused := 0
		w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, body []byte) bool {
			var calls []json.RawMessage
			if json.Unmarshal(body, &calls) != nil || len(calls) <= 3 {
				return false
			}
			refused++
			rw.WriteHeader(http.StatusInternalServerError)
			_, _ = rw.Write([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`))
			return true
		})
		w.run()
		w.mine(transfer(59, 0))
		at := w.next().Latest
		for i := range 3 {
			got, err := w.Counts(t.Context(), at, fakeAccounts(60))
			if err != nil || got[59].Used != 1 {
				t.Fatalf("%v", err)
			}
			if i == 0 {
				refused = 0
			}
		}
		if refused != 0 {
			t.Errorf("%d more requests were refused, want the size to be remembered", refused)
		}
		if n := w.logged("level=WARN msg=\"node refuses requests of several calls"); n != 1 {
			t.Errorf("said %d times at warn, want once", n)
		}
	})
}

func TestANodeWithWrongCountsIsLeftOutUntilItIsRightAgain(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		w.named()
		w.mine(transfer(1, 0))
		at, accounts := w.Status().Head, []string{fakenode.Account(1)}
		w.nodes[0].On(methodCount, func([]json.RawMessage) (any, error) { return "0x1f", nil })
		got, err := w.Counts(t.Context(), at, accounts)
		if err != nil || got[0] != (chain.Count{Used: 1, Nodes: 2}) {
			t.Errorf("%+v, %v; want what two agree on", got, err)
		}
		w.wantFigure(`chain_node_wrong{a}`, 1)
		if answer, _, _ := w.Call(t.Context(), "eth_call", nil); string(answer) == `"a"` {
			t.Error("the node that is wrong serves calls")
		}
		if start, err := w.Start(t.Context(), accounts); err != nil || start[0].Pending != 1 {
			t.Errorf("start %+v, %v; want that of the others", start, err)
		}
		w.nodes[0].On(methodCount, nil)
		for range rightAgain {
			w.wantFigure(`chain_node_wrong{a}`, 1)
			_, err := w.Counts(t.Context(), at, accounts)
			must(t, err)
		}
		w.wantFigure(`chain_node_wrong{a}`, 0)
		if w.logged("node is wrong and is left out") != 1 || w.logged(`msg="node agrees with the others again"`) != 1 {
			t.Error("the log does not have each once")
		}
	})
}

func TestWhatOneOfThreeNodesSaysWhileTheOthersAreAwaySettlesNothing(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		agreed, final := *w.agreed.Load(), w.Status().Final
		w.nodes[1].OnHTTP(status(502))
		w.nodes[2].OnHTTP(status(502))
		liar := w.nodes[0]
		for range 5 {
			liar.SetHead(w.chain.Extend(liar.Head(), transfer(1, 30)))
			liar.SetFinal(liar.Head())
			time.Sleep(blockTime)
			synctest.Wait()
		}
		if h := w.last(); h.Latest != blockOf(liar.Head()) {
			t.Errorf("head %+v, want that of the one node that answers", h)
		}
		if *w.agreed.Load() != agreed || w.Status().Final != final {
			t.Errorf("agreed %+v, final %+v; want both as they were", w.agreed.Load(), w.Status().Final)
		}
		got, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)})
		if err != nil || got[0] != (chain.Count{Hint: 31}) {
			t.Errorf("%+v, %v; want a hint", got, err)
		}
	})
}

func TestOneOfTwoNodesIsAHintWhileTheOtherDoesNotContradict(t *testing.T) {
	accounts := []string{fakenode.Account(1)}
	for name, c := range map[string]struct {
		other func(n *fakenode.Node, w *world)
		want  chain.Count
	}{
		"it agrees":  {func(*fakenode.Node, *world) {}, chain.Count{Used: 1, Nodes: 2}},
		"it is away": {func(n *fakenode.Node, _ *world) { n.OnHTTP(status(502)) }, chain.Count{Hint: 1}},
		"it lags":    {func(n *fakenode.Node, w *world) { n.SetHead(below(w.nodes[0].Head(), 1)) }, chain.Count{Hint: 1}},
		"it is mute": {func(n *fakenode.Node, _ *world) { n.On(methodCount, refuseCounts) }, chain.Count{Hint: 1}},
		"it is wrong": {func(n *fakenode.Node, _ *world) {
			n.On(methodCount, func([]json.RawMessage) (any, error) { return "0x5", nil })
		}, chain.Count{}},
		"it has another branch": {func(n *fakenode.Node, w *world) {
			n.SetHead(w.chain.Extend(below(w.nodes[0].Head(), 1)))
		}, chain.Count{}},
	} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			w.mine(transfer(1, 0))
			c.other(w.nodes[1], w)
			w.settle()
			if got, err := w.Counts(t.Context(), blockOf(w.nodes[0].Head()), accounts); err != nil || got[0] != c.want {
				t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
			}
		})
	}
}

func refuseCounts([]json.RawMessage) (any, error) {
	return nil, &fakenode.Error{Code: -32000, Message: "out of order"}
}

func TestAWrongFinalBlockOfOneOfThreeDoesNotStopTheChain(t *testing.T) {
	for liar := range 3 {
		withNodes(3).run(t, func(t *testing.T, w *world) {
			final := below(w.nodes[0].Head(), 64)
			w.nodes[liar].SetFinal(w.chain.Extend(final.Parent))
			time.Sleep(3 * fellRounds * maxInterval)
			w.none()
			w.wantFigure(`chain_node_wrong{`+w.set.names[liar]+`}`, 1)
			next := below(w.nodes[0].Head(), 32)
			for i, n := range w.nodes {
				if i != liar {
					n.SetFinal(next)
				}
			}
			w.settle()
			if h := w.next(); h.Final != blockOf(next) || h.FinalFell {
				t.Errorf("head %+v, want the final block of the others", h)
			}
			w.nodes[liar].SetFinal(next)
			time.Sleep((rightAgain + 1) * maxInterval)
			w.wantFigure(`chain_node_wrong{`+w.set.names[liar]+`}`, 0)
		})
	}
}

func TestWhatFellStandsAgainWhenTheNodeIsWell(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		final := below(w.nodes[0].Head(), 64)
		w.finals(w.chain.Extend(final.Parent))
		time.Sleep((fellRounds + 1) * maxInterval)
		synctest.Wait()
		if h := w.next(); !h.FinalFell {
			t.Fatalf("head %+v, want the final block to fall", h)
		}
		w.finals(below(w.nodes[0].Head(), 50))
		w.settle()
		if h := w.next(); !h.FinalStands || h.FinalFell || h.Final != blockOf(below(w.nodes[0].Head(), 50)) {
			t.Errorf("head %+v, want the final block to stand again", h)
		}
		w.none()
	})
}

func TestAnotherChainUnderTheSameAddressIsOutAtOnce(t *testing.T) {
	for name, break_ := range map[string]bool{"behind the same connection": false, "behind a new connection": true} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			w.named()
			n := w.nodes[0]
			n.SetChainID(5)
			if break_ {
				n.OnHTTP(func(http.ResponseWriter, *http.Request, []byte) bool { panic(http.ErrAbortHandler) })
				_, _ = w.Start(t.Context(), []string{fakenode.Account(1)})
				n.OnHTTP(nil)
				if answer, _, err := w.Call(t.Context(), "eth_call", nil); string(answer) != `"b"` || err != nil {
					t.Errorf("%s: %s, %v; want the answer of the other node", name, answer, err)
				}
			} else {
				n.On(methodCount, func([]json.RawMessage) (any, error) { return "0x1f4", nil })
				got, err := w.Start(t.Context(), []string{fakenode.Account(1)})
				if err != nil || got[0] != (chain.Start{}) {
					t.Errorf("%s: start %+v, %v; want that of the other node", name, got, err)
				}
			}
			if s := w.nodeStatus(0); s.Up || s.OtherChain != "eip155:5" {
				t.Errorf("%s: status %+v, want out", name, s)
			}
		})
	}
}

func TestANodeIsAskedForItsChainAfterAnErrorAndAJump(t *testing.T) {
	accounts := []string{fakenode.Account(1)}
	for name, odd := range map[string]func(w *world, n *fakenode.Node){
		"an error of a call": func(w *world, n *fakenode.Node) {
			n.OnHTTP(status(502))
			_, _, _ = w.Call(w.t.Context(), "eth_call", nil)
			n.OnHTTP(nil)
		},
		"a count that the other contradicts": func(w *world, n *fakenode.Node) {
			n.On(methodCount, func([]json.RawMessage) (any, error) { return "0x1f4", nil })
			_, err := w.Counts(w.t.Context(), w.Status().Head, accounts)
			must(w.t, err)
		},
		"a block that it had": func(w *world, n *fakenode.Node) {
			n.SetHead(w.chain.Extend(w.chain.First()))
			_, err := w.Counts(w.t.Context(), w.Status().Head, accounts)
			must(w.t, err)
		},
	} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			w.named()
			n, dials := w.nodes[0], w.Client.nodes[0].link.Dials()
			n.SetChainID(5)
			odd(w, n)
			asked := n.Calls(methodTxBySender)
			_, err := w.Lookup(t.Context(), []chain.Ask{{Account: accounts[0]}})
			must(t, err)
			if n.Calls(methodTxBySender) != asked {
				t.Errorf("%s: the node of another chain is asked", name)
			}
			if s := w.nodeStatus(0); s.OtherChain != "eip155:5" {
				t.Errorf("%s: status %+v, want another chain", name, s)
			}
			if answer, _, err := w.Call(t.Context(), "eth_call", nil); string(answer) != `"b"` || err != nil {
				t.Errorf("%s: %s, %v; want the answer of the other node", name, answer, err)
			}
			if w.Client.nodes[0].link.Dials() != dials {
				t.Errorf("%s: there is a new connection, and the test shows nothing", name)
			}
		})
	}
}

func TestANodeThatIsSyncingIsNotAskedForAFirstSight(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.nodes[0].On(methodCount, func([]json.RawMessage) (any, error) { return "0x5", nil })
		for _, says := range []any{map[string]any{"currentBlock": "0x1"}, true} {
			w.nodes[0].On(methodSyncing, func([]json.RawMessage) (any, error) { return says, nil })
			if got, err := w.Start(t.Context(), []string{fakenode.Account(1)}); err != nil || got[0] != (chain.Start{}) {
				t.Errorf("%v: %+v, %v; want the start of the other node", says, got, err)
			}
		}
		w.nodes[0].On(methodSyncing, func([]json.RawMessage) (any, error) { return false, nil })
		if got, err := w.Start(t.Context(), []string{fakenode.Account(1)}); err != nil || got[0].Pending != 5 {
			t.Errorf("%+v, %v; want that of the node that is not syncing any more", got, err)
		}
	})
}

func TestAHugeCountIsTheNodesFailure(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.nodes[0].On(methodCount, func([]json.RawMessage) (any, error) { return "0x7ffffffffffffffe", nil })
		if got, err := w.Start(t.Context(), []string{fakenode.Account(1)}); !isUnreachable(err) {
			t.Errorf("%+v, %v; want that nothing is known", got, err)
		}
	})
}
