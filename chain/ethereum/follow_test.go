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

func TestTheFirstHeadHasTheNewestAndTheFinalBlockAndAsksForCounts(t *testing.T) {
	withNodes(2).prepare(t, func(t *testing.T, w *world) {
		w.start()
		w.settle()
		h := w.next()
		head := w.nodes[0].Head()
		want := chain.Head{Latest: blockOf(head), Final: blockOf(below(head, 64)), Skipped: true}
		if !reflect.DeepEqual(h, want) {
			t.Errorf("head %+v, want %+v", h, want)
		}
		w.none()
	})
}

func TestEachNewBlockIsToldOnceWithTheNoncesThatItUsed(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		legacy, blob := transfer(1, 7), transfer(2, 0)
		legacy.Type, blob.Type = 0, 3
		deposit := transfer(3, 5)
		deposit.Type = 0x7e
		for range 3 {
			b := w.mine(legacy, deposit, blob)
			want := chain.Head{Latest: blockOf(b), Final: w.Status().Final, Uses: []chain.Use{useOf(legacy), {Account: deposit.From, Unread: true}, useOf(blob)}}
			if h := w.next(); !reflect.DeepEqual(h, want) {
				t.Errorf("head %+v, want %+v", h, want)
			}
			w.none()
		}
	})
}

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

func TestBlocksBetweenTwoPollsAreReadInOrder(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		b := w.nodes[0].Head()
		var want []chain.Use
		for i := range int64(20) {
			tx := transfer(1, i)
			b = w.chain.Extend(b, tx)
			want = append(want, useOf(tx))
		}
		w.reach(b)
		h := w.next()
		if h.Latest != blockOf(b) || h.Skipped || h.Reorg != nil || !reflect.DeepEqual(h.Uses, want) {
			t.Errorf("head %+v, want the uses %v", h, want)
		}
		if n := w.nodes[0].Calls(methodBlockByHash) + w.nodes[1].Calls(methodBlockByHash); n != 19 {
			t.Errorf("%d blocks were read by hash, want the 19 between", n)
		}
	})
}

func TestTooManyBlocksAreSkippedAndThatIsSaid(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.MaxBlocksBehind = 10 }).run(t, func(t *testing.T, w *world) {
		time.Sleep(11 * blockTime)
		b := w.chain.ExtendBy(w.nodes[0].Head(), 11)
		w.reach(b)
		if h := w.next(); h.Latest != blockOf(b) || !h.Skipped || h.Reorg != nil || len(h.Uses) != 0 {
			t.Errorf("head %+v, want one that skipped blocks and no reorganization", h)
		}
		if n := w.nodes[0].Calls(methodBlockByHash); n != 0 {
			t.Errorf("%d blocks were read by hash, want none", n)
		}
		if b := w.mine(transfer(1, 0)); w.last().Latest != blockOf(b) {
			t.Error("the next block is not told")
		}
	})
}

func TestAReorganizationIsToldWithItsDepth(t *testing.T) {
	for _, depth := range []int{1, 2, 5, 20} {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			for i := range int64(depth) {
				w.mine(transfer(1, i))
				w.next()
			}
			old := w.nodes[0].Head()
			b := below(old, depth)
			var want []chain.Use
			for i := range int64(depth) + 1 {
				tx := transfer(2, i)
				b = w.chain.Extend(b, tx)
				want = append(want, useOf(tx))
			}
			w.reach(b)
			h := w.next()
			reorg := &chain.Reorg{From: blockOf(old), To: blockOf(b), Depth: depth}
			if !reflect.DeepEqual(h.Reorg, reorg) || !reflect.DeepEqual(h.Uses, want) || h.Skipped || h.FinalFell {
				t.Errorf("depth %d: head %+v with %+v, want %+v and %v", depth, h, h.Reorg, reorg, want)
			}
			w.wantFigure("chain_reorgs_total", 1)
		})
	}
}

func TestAReorganizationAmongSkippedBlocksIsFoundByTheHashes(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.MaxBlocksBehind = 10 }).run(t, func(t *testing.T, w *world) {
		for range 8 {
			w.mine()
			w.next()
		}
		old := w.nodes[0].Head()
		time.Sleep(30 * blockTime)
		b := w.chain.ExtendBy(below(old, 5), 30)
		w.reach(b)
		h := w.next()
		if want := (&chain.Reorg{From: blockOf(old), To: blockOf(b), Depth: 5}); !reflect.DeepEqual(h.Reorg, want) || !h.Skipped {
			t.Errorf("head %+v with %+v, want %+v and Skipped", h, h.Reorg, want)
		}
	})
}

func TestHeadersThatANodeDoesNotShowAreNotReplaced(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		n := w.nodes[0]
		old := n.Head()
		w.finals(below(old, 10))
		w.settle()
		w.next()
		b := w.chain.ExtendBy(old, 100)
		n.On(methodBlockByNumber, func(params []json.RawMessage) (any, error) {
			var tag string
			must(t, json.Unmarshal(params[0], &tag))
			switch tag {
			case "latest":
				return n.Head().JSON(string(params[1]) == "true"), nil
			case "finalized":
				return below(old, 10).JSON(false), nil
			case fakenode.Quantity(old.Number - 30):
				return below(old, 30).JSON(false), nil
			}
			return nil, &fakenode.Error{Code: -32603, Message: "database closed"}
		})
		w.reach(b)
		h := w.next()
		if h.Latest != blockOf(b) || !h.Skipped || h.FinalFell || h.Final != blockOf(below(old, 10)) {
			t.Errorf("head %+v, want block %d, and the final block to stand", h, b.Number)
		}
		if h.Reorg == nil || h.Reorg.Depth != 10 { // nobody knows, and lower counts are to be believed
			t.Errorf("reorganization %+v, want one of all that is not final", h.Reorg)
		}
	})
}

func TestAShorterBranchIsNoReorganizationBeforeItIsAsLong(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		old := w.nodes[0].Head()
		b := w.chain.ExtendBy(below(old, 3), 2)
		w.reach(b)
		w.none()
		w.to(below(old, 5)) // a node behind an address that is not as far
		w.settle()
		w.none()
		b = w.chain.Extend(b)
		w.reach(b)
		if h := w.next(); h.Reorg == nil || h.Reorg.Depth != 3 {
			t.Errorf("head %+v, want a reorganization of 3 blocks", h)
		}
	})
}

func TestANodeThatIsFarBehindIsNotAskedForCounts(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		withNodes(nodes).run(t, func(t *testing.T, w *world) {
			slow := w.nodes[nodes-1]
			for range 20 {
				b := w.chain.Extend(w.nodes[0].Head())
				time.Sleep(time.Second)
				for _, n := range w.nodes[:nodes-1] {
					n.SetHead(b)
				}
				w.settle()
				if h := w.next(); h.Latest != blockOf(b) || h.Reorg != nil {
					t.Errorf("head %+v, want block %d", h, b.Number)
				}
			}
			if s := w.nodeStatus(nodes - 1); s.Lag != 20 || !s.Up {
				t.Errorf("status %+v, want 20 blocks behind", s)
			}
			if _, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)}); err != nil {
				t.Error(err)
			}
			if n := slow.Calls(methodCount); n != 1 { // the probe
				t.Errorf("the node was asked for %d counts, want none", n-1)
			}
			slow.SetHead(w.nodes[0].Head())
			w.settle()
			if s := w.nodeStatus(nodes - 1); s.Lag != 0 {
				t.Errorf("status %+v, want none behind", s)
			}
			if _, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)}); err != nil || slow.Calls(methodCount) != 2 {
				t.Errorf("%v, and %d counts; want one more", err, slow.Calls(methodCount))
			}
		})
	}
}

func TestAStartWithANodeThatIsFarBehindFollowsTheOther(t *testing.T) {
	for first := range 2 {
		withNodes(2).prepare(t, func(t *testing.T, w *world) {
			head := w.nodes[0].Head()
			w.nodes[first].SetHead(below(head, 20))
			w.start()
			w.settle()
			if h := w.last(); h.Latest != blockOf(head) {
				t.Errorf("head %+v, want block %d", h, head.Number)
			}
		})
	}
}

func TestOfDifferentBranchesThatOfMostNodesIsTheChain(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		base := w.nodes[0].Head()
		mine, theirs := w.chain.Extend(base), w.chain.ExtendBy(base, 1)
		time.Sleep(time.Second)
		w.nodes[0].SetHead(mine)
		w.nodes[1].SetHead(theirs)
		w.nodes[2].SetHead(theirs)
		w.settle()
		w.wantHead(theirs)
		w.nodes[0].SetHead(w.chain.ExtendBy(mine, 2)) // higher, and alone
		w.settle()
		w.none()
		if s := w.nodeStatus(0); s.OnBranch || !s.Up {
			t.Errorf("status %+v, want up and on another branch", s)
		}
		w.wantFigure(`chain_node_off_branch{a}`, 1)
		if got := w.figure(`chain_disagreements_total{head}`); got < 1 {
			t.Errorf("%v disagreements are counted, want 1", got)
		}
	})
}

func TestBetweenTwoNodesThatContradictEachOtherTheChainGoesOnAsItWas(t *testing.T) {
	for kept := range 2 {
		withNodes(2).run(t, func(t *testing.T, w *world) {
			base := w.nodes[0].Head()
			follow := w.chain.Extend(base)
			branches := []*fakenode.Block{w.chain.ExtendBy(base, 2), w.chain.ExtendBy(base, 2)} // the other one is higher
			branches[kept] = follow
			time.Sleep(time.Second)
			w.nodes[kept].SetHead(follow) // it is first, and the other one takes another way
			w.settle()
			w.next()
			for range 10 {
				for i := range branches {
					branches[i] = w.chain.Extend(branches[i])
					w.nodes[i].SetHead(branches[i])
				}
				time.Sleep(time.Second)
				w.settle()
				if h := w.last(); h.Reorg != nil || h.Latest != blockOf(branches[kept]) {
					t.Fatalf("node %d: head %+v, want block %d of the branch that was followed", kept, h, branches[kept].Number)
				}
			}
		})
	}
}

func TestANodeThatStandsStillDoesNotHoldTheChainUp(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		stuck := w.mine()
		w.next()
		b := w.chain.ExtendBy(stuck.Parent, 1) // the other node was reorganized, the first is stuck
		for range 10 {
			b = w.chain.Extend(b)
			w.nodes[1].SetHead(b)
			time.Sleep(time.Second)
			w.settle()
		}
		if h := w.last(); h.Latest != blockOf(b) {
			t.Errorf("head %+v, want block %d of the node that moves", h, b.Number)
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

func TestASingleNodeIsBelieved(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		b := w.chain.ExtendBy(w.nodes[0].Head(), 3000) // long before their time
		w.reach(b)
		if h := w.next(); h.Latest != blockOf(b) || !h.Skipped {
			t.Errorf("head %+v, want the block of the only node", h)
		}
	})
}
