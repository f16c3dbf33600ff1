package ethereum

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func isUnreachable(err error) bool { return errors.Is(err, chain.ErrUnreachable) }

func TestCountsAreThoseAtTheBlockThatIsAskedFor(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		first := blockOf(w.mine(transfer(1, 0)))
		second := blockOf(w.mine(transfer(1, 1), transfer(2, 0)))
		accounts := []string{fakenode.Account(1), fakenode.Account(2), fakenode.Account(3)}
		for at, want := range map[chain.Block][]int64{first: {1, 0, 0}, second: {2, 1, 0}} {
			got, err := w.Counts(t.Context(), at, accounts)
			must(t, err)
			for i, c := range got {
				if c.Used != want[i] || c.Nodes != 2 {
					t.Errorf("block %d: %s has %+v, want %d", at.Number, accounts[i], c, want[i])
				}
			}
		}
	})
}

func TestACountThatOneOfThreeClaimsIsLeftOut(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		w.nodes[1].On(methodCount, func([]json.RawMessage) (any, error) { return "0x7", nil })
		got, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)})
		if err != nil || got[0] != (chain.Count{Used: 0, Nodes: 2}) {
			t.Errorf("count %+v, %v; want 0, on which two agree, and no hint", got, err)
		}
		w.wantFigure(`chain_disagreements_total{count}`, 1)
	})
}

func TestWhatIsNoCountIsTheNodesFailureAndNeverANumber(t *testing.T) {
	for _, answer := range []any{
		nil, "", "0x", "7", 7, "0xg", "0x-1", "-0x1", "0x1 ", "0x8000000000000000", "0xffffffffffffffff",
		"0x10000000000000000", true, []string{"0x1"}, map[string]string{"result": "0x1"}, "0x_1", "0x+1", "0X1",
	} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			w.nodes[1].On(methodCount, func([]json.RawMessage) (any, error) { return answer, nil })
			w.mine(transfer(1, 0))
			at := w.next().Latest
			got, err := w.Counts(t.Context(), at, []string{fakenode.Account(1)})
			if err != nil || got[0] != (chain.Count{Hint: 1}) {
				t.Errorf("%v: count %+v, %v; want that of the other node as a hint", answer, got, err)
			}
			w.nodes[0].On(methodCount, func([]json.RawMessage) (any, error) { return answer, nil })
			if got, err := w.Counts(t.Context(), at, []string{fakenode.Account(1)}); !isUnreachable(err) || got != nil {
				t.Errorf("%v: count %+v, %v; want ErrUnreachable", answer, got, err)
			}
			if s := w.nodeStatus(1); !strings.Contains(s.LastError, methodCount) {
				t.Errorf("%v: status %+v does not say why", answer, s)
			}
		})
	}
}

func TestABlockThatNoNodeHasHasNoCounts(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		at := w.Status().Head
		at.Hash[0]++
		if got, err := w.Counts(t.Context(), at, []string{fakenode.Account(1)}); !isUnreachable(err) || got != nil {
			t.Errorf("counts %+v, %v; want ErrUnreachable", got, err)
		}
		if !w.nodeStatus(0).Up {
			t.Error("a node that does not have a block counts as down")
		}
	})
}

// withoutHashes has a node not know EIP-1898: it refuses the object, or ignores it.
func withoutHashes(n *fakenode.Node, ignores bool) {
	n.On(methodCount, func(params []json.RawMessage) (any, error) {
		if strings.HasPrefix(string(params[1]), "{") {
			if ignores {
				return "0x63", nil
			}
			return nil, &fakenode.Error{Code: -32602, Message: "invalid argument 1: json: cannot unmarshal object into Go value of type string"}
		}
		switch string(params[1]) {
		case fmt.Sprintf("%q", fakenode.Quantity(n.Head().Number)):
			return "0x5", nil
		}
		return "0x63", nil
	})
}

func TestANodeWithoutBlockHashesIsAskedByNumberAndItsBlockChecked(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		withNodes(1).prepare(t, func(t *testing.T, w *world) {
			withoutHashes(w.nodes[0], ignores)
			w.run()
			got, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)})
			if err != nil || got[0].Used != 5 {
				t.Errorf("ignores %v: count %+v, %v; want 5", ignores, got, err)
			}
			was := w.Status().Head
			w.to(w.chain.Extend(w.nodes[0].Head().Parent)) // another block with that number, not polled yet
			if got, err := w.Counts(t.Context(), was, []string{fakenode.Account(1)}); !isUnreachable(err) {
				t.Errorf("ignores %v: count %+v, %v; want ErrUnreachable", ignores, got, err)
			}
		})
	}
}

func TestANodeThatChangesItsBranchWhileItIsAskedGivesNoCount(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		n := w.nodes[0]
		withoutHashes(n, false)
		w.run()
		at := w.Status().Head
		n.On(methodCount, func([]json.RawMessage) (any, error) {
			n.SetHead(w.chain.Extend(n.Head().Parent))
			return "0x63", nil
		})
		if got, err := w.Counts(t.Context(), at, []string{fakenode.Account(1)}); !isUnreachable(err) {
			t.Errorf("count %+v, %v; want ErrUnreachable", got, err)
		}
	})
}

func TestANodeThatRefusesBatchesGetsSmallerOnes(t *testing.T) {
	accounts := fakeAccounts(60)
	for _, test := range []struct {
		name     string
		refuse   func(w *world)
		maxCalls int
	}{
		{"of more than 10", func(w *world) { w.nodes[0].RefuseBatches(10) }, 10},
		{"all", func(w *world) { w.nodes[0].RefuseBatches(1) }, 1},
		{"by a status", func(w *world) {
			w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, body []byte) bool {
				if body[0] != '[' {
					return false
				}
				http.Error(rw, "no batches", http.StatusBadRequest)
				return true
			})
		}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			withNodes(1).prepare(t, func(t *testing.T, w *world) {
				test.refuse(w)
				w.run()
				w.mine(transfer(59, 0))
				at := w.next().Latest
				for range 2 {
					got, err := w.Counts(t.Context(), at, accounts)
					if err != nil || got[59].Used != 1 || got[0].Used != 0 {
						t.Fatalf("%v", err)
					}
				}
				before := len(w.nodes[0].Batches())
				if _, err := w.Counts(t.Context(), at, accounts); err != nil {
					t.Fatal(err)
				}
				if got := w.nodes[0].Batches()[before:]; slices.Max(got) > test.maxCalls || len(got) > 60 {
					t.Errorf("requests of %v calls, want at most %d each and none that is refused", got, test.maxCalls)
				}
			})
		})
	}
}

func TestAsManyRequestsAsAllowedAreUnderWayAndTheOthersWait(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.MaxInflight = 3 * ownPart; cfg.MaxBatch = 1 }).run(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		now, peak := 0, 0
		w.nodes[0].OnHTTP(func(_ http.ResponseWriter, _ *http.Request, body []byte) bool {
			if !strings.Contains(string(body), methodCount) {
				return false
			}
			mu.Lock()
			now++
			peak = max(peak, now)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			return false
		})
		accounts := fakeAccounts(20)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := w.Counts(t.Context(), w.Status().Head, accounts); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(50 * time.Millisecond)
		w.nodes[0].On("eth_call", func([]json.RawMessage) (any, error) { return true, nil })
		begin := time.Now()
		if _, _, err := w.Call(t.Context(), "eth_call", nil); err != nil || time.Since(begin) > 0 {
			t.Errorf("a call of others meanwhile: %v after %v, want an answer at once: it has slots of its own", err, time.Since(begin))
		}
		all.Wait()
		if peak != 3 {
			t.Errorf("%d requests were under way at a time, want 3", peak)
		}
	})
}

func TestAnAccountThatIsNoneIsRefusedByItsPlace(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		good := fakenode.Account(1)
		for _, bad := range []string{"", "0x1", "eip155:1:" + good, strings.ToUpper(good), "0x" + strings.Repeat("A", 40)} {
			for name, err := range map[string]error{
				"Counts": second(w.Counts(t.Context(), w.Status().Head, []string{good, bad})),
				"Start":  second(w.Start(t.Context(), []string{good, bad})),
				"Lookup": second(w.Lookup(t.Context(), []chain.Ask{{Account: good}, {Account: bad}})),
			} {
				if err == nil || !strings.Contains(err.Error(), "accounts[1] must be 0x and 40 lower-case") {
					t.Errorf("%s(%q): %v, want a sentence that names accounts[1]", name, bad, err)
				}
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestStartIsTheGreatestOfAllNodesAlsoOfThoseBehind(t *testing.T) {
	withNodes(2).prepare(t, func(t *testing.T, w *world) {
		a, b := w.nodes[0], w.nodes[1]
		head := w.chain.Extend(a.Head(), transfer(1, 0), transfer(2, 0), transfer(2, 1))
		a.SetHead(head)
		b.SetHead(below(head, 30))
		b.SetPool(transfer(1, 0), transfer(1, 1), transfer(1, 2))
		a.SetCode(fakenode.Account(2), "0xEF0100"+strings.Repeat("aa", 20))
		a.SetCode(fakenode.Account(3), "0xef0000")
		w.start()
		w.settle()
		got, err := w.Start(t.Context(), []string{fakenode.Account(1), fakenode.Account(2), fakenode.Account(3)})
		want := []chain.Start{{Pending: 3}, {Pending: 2, Delegated: true}, {}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("starts %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestStartIsNotThatOfANodeOnAnotherBranchOrNotBelieved(t *testing.T) {
	for name, at := range map[string]func(w *world, top *fakenode.Block) *fakenode.Block{
		"on another branch": func(w *world, top *fakenode.Block) *fakenode.Block {
			return w.chain.Extend(w.chain.Extend(below(top, 2), transfer(1, 0), transfer(1, 1)))
		},
		"not believed": func(w *world, top *fakenode.Block) *fakenode.Block {
			return w.chain.ExtendBy(w.chain.Extend(top, transfer(1, 0), transfer(1, 1)), 5000)
		},
	} {
		withNodes(3).prepare(t, func(t *testing.T, w *world) {
			liar := w.nodes[2]
			liar.SetHead(at(w, liar.Head()))
			w.start()
			w.settle()
			w.settle()
			start := func() (chain.Start, error) {
				got, err := w.Start(t.Context(), []string{fakenode.Account(1)})
				if err != nil {
					return chain.Start{}, err
				}
				return got[0], nil
			}
			if got, err := start(); err != nil || got != (chain.Start{}) {
				t.Errorf("%s: start %+v, %v; want that of the others", name, got, err)
			}
		})
	}
}

func TestStartIsUnknownUntilANodeSaysAllOfIt(t *testing.T) {
	for _, method := range []string{methodCount, methodCode} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			for _, n := range w.nodes {
				n.On(method, func([]json.RawMessage) (any, error) { return 5, nil })
			}
			if got, err := w.Start(t.Context(), []string{fakenode.Account(1)}); !isUnreachable(err) || got != nil {
				t.Errorf("%s: %+v, %v; want ErrUnreachable", method, got, err)
			}
			w.nodes[1].On(method, nil)
			if got, err := w.Start(t.Context(), []string{fakenode.Account(1)}); err != nil || got[0] != (chain.Start{}) {
				t.Errorf("%s: %+v, %v; want what the other node says", method, got, err)
			}
		})
	}
}

func TestPendingIsNeverBelowLatest(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.nodes[0].On(methodCount, func(params []json.RawMessage) (any, error) {
			if string(params[1]) == `"pending"` {
				return "0x1", nil // of a pool that is behind
			}
			return "0x3", nil
		})
		got, err := w.Start(t.Context(), []string{fakenode.Account(1)})
		if err != nil || got[0].Latest != 3 || got[0].Pending != 3 {
			t.Errorf("start %+v, %v; want 3 and 3", got, err)
		}
	})
}

func TestStartDoesNotWaitForTheFirstHead(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		if _, err := w.Start(t.Context(), []string{fakenode.Account(1)}); !isUnreachable(err) {
			t.Errorf("before Run: %v, want ErrUnreachable", err)
		}
		w.start()
		synctest.Wait()
		if _, err := w.Start(t.Context(), []string{fakenode.Account(1)}); err != nil {
			t.Error(err)
		}
	})
}
