package ethereum

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

// finals sets the final block of all nodes.
func (w *world) finals(b *fakenode.Block) {
	for _, n := range w.nodes {
		n.SetFinal(b)
	}
}

func TestTheFinalBlockAdvancesAlsoWithoutANewHead(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		final := below(w.nodes[0].Head(), 32)
		w.finals(final)
		w.settle()
		if h := w.next(); h.Final != blockOf(final) || h.FinalFell || h.Latest != blockOf(w.nodes[0].Head()) || len(h.Uses) != 0 {
			t.Errorf("head %+v, want the final block %d", h, final.Number)
		}
		w.none()
		w.wantFigure("chain_final_number", float64(final.Number))
	})
}

func TestWithoutAFinalBlockThereAreHeadsAllTheSame(t *testing.T) {
	for name, answer := range map[string]func() (any, error){
		"refused":  func() (any, error) { return nil, &fakenode.Error{Code: -39001, Message: "finalized block not found"} },
		"null":     func() (any, error) { return nil, nil },
		"nonsense": func() (any, error) { return map[string]any{"number": 7}, nil },
		"ahead": func() (any, error) {
			b := fakenode.NewChain(time.Now(), time.Second)
			return b.ExtendBy(b.First(), 5000).JSON(false), nil
		},
	} {
		withNodes(1).prepare(t, func(t *testing.T, w *world) {
			n := w.nodes[0]
			n.On(methodBlockByNumber, func(params []json.RawMessage) (any, error) {
				if string(params[0]) == `"finalized"` {
					return answer()
				}
				return n.Head().JSON(true), nil
			})
			w.start()
			w.settle()
			if h := w.next(); h.Final != (chain.Block{}) || h.Latest != blockOf(n.Head()) {
				t.Errorf("%s: head %+v, want one without a final block", name, h)
			}
			b := w.mine()
			if h := w.next(); h.Final != (chain.Block{}) || h.Latest != blockOf(b) {
				t.Errorf("%s: head %+v, want one without a final block", name, h)
			}
		})
	}
}

func TestWhatMostNodesCallFinalIsFinal(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		was := w.Status().Final
		w.nodes[0].SetFinal(w.nodes[0].Head()) // alone
		w.settle()
		w.none()
		next := below(w.nodes[0].Head(), 10)
		w.nodes[1].SetFinal(next)
		w.settle()
		if h := w.next(); h.Final != blockOf(next) || was.Number >= next.Number {
			t.Errorf("final %+v, want block %d, which two of three have reached", h.Final, next.Number)
		}
	})
}

func TestAFinalBlockThatIsLowerNowAndThenDoesNotFall(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		was := w.Status().Final
		high, low := below(w.nodes[0].Head(), 64), below(w.nodes[0].Head(), 96)
		for i := range 40 {
			if i%4 == 3 {
				w.finals(high)
			} else {
				w.finals(low)
			}
			time.Sleep(maxInterval)
		}
		w.none()
		if w.Status().Final != was {
			t.Errorf("final %+v, want still %+v", w.Status().Final, was)
		}
	})
}

func TestAFinalBlockThatStaysLowerHasFallen(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		low := below(w.nodes[0].Head(), 96)
		w.finals(low)
		time.Sleep(fellRounds * maxInterval)
		synctest.Wait()
		if h := w.next(); !h.FinalFell || h.Final != blockOf(low) || h.Reorg != nil {
			t.Errorf("head %+v, want one whose final block fell to %d", h, low.Number)
		}
		time.Sleep(time.Minute)
		w.none() // it is told once
		w.wantFigure("chain_final_fell_total", 1)
	})
}

func TestAnotherFinalBlockWithTheSameNumberHasFallen(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.MaxBlocksBehind = 5 }).run(t, func(t *testing.T, w *world) { // so that block 136 is not remembered
		final := below(w.nodes[0].Head(), 64)
		w.finals(w.chain.Extend(final.Parent))
		w.settle()
		w.none() // it may be one odd answer
		time.Sleep(fellRounds * maxInterval)
		synctest.Wait()
		if h := w.next(); !h.FinalFell || h.Final.Number != final.Number || h.Final.Hash == chain.Hash(final.Hash) {
			t.Errorf("head %+v, want one whose final block is another one", h)
		}
	})
}

func TestAReorganizationBelowTheFinalBlockMakesItFall(t *testing.T) {
	for _, behind := range []int{64, 5} { // read one by one, and skipped
		withNodes(1, func(cfg *Config) { cfg.MaxBlocksBehind = behind }).run(t, func(t *testing.T, w *world) {
			old := w.nodes[0].Head()
			w.finals(below(old, 2))
			w.settle()
			w.next()
			b := w.chain.ExtendBy(below(old, 4), 6)
			w.to(b)
			w.finals(below(old, 5))
			time.Sleep((fellRounds + 1) * maxInterval)
			synctest.Wait()
			h := w.next()
			if !h.FinalFell || h.Reorg == nil || h.Reorg.Depth != 4 || h.Latest != blockOf(b) || h.Final.Number != old.Number-5 {
				t.Errorf("head %+v with %+v, want the final block to fall by a reorganization of 4 blocks", h, h.Reorg)
			}
		})
	}
}

func TestAChainThatBeganAnewIsNoticedAndFollowed(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.mine(transfer(1, 0))
		w.next()
		fresh := w.chain.ExtendBy(w.chain.First(), 3)
		w.nodes[0].SetHead(fresh)
		w.nodes[0].SetFinal(w.chain.First())
		time.Sleep(10 * maxInterval)
		w.none() // one of two nodes may just be far behind
		w.nodes[1].OnHTTP(status(500))
		time.Sleep(10 * maxInterval)
		w.none() // also when the other one does not answer
		w.nodes[1].OnHTTP(nil)
		time.Sleep(2 * maxPause)
		w.nodes[1].SetHead(fresh)
		w.nodes[1].SetFinal(w.chain.First())
		time.Sleep((fellRounds + 1) * maxInterval)
		synctest.Wait()
		h := w.next()
		if !h.FinalFell || !h.Skipped || h.Latest != blockOf(fresh) || h.Final != blockOf(w.chain.First()) || h.Reorg == nil {
			t.Errorf("head %+v, want the chain that began anew", h)
		}
		b := w.mine(transfer(1, 0))
		if h := w.next(); h.Latest != blockOf(b) || h.FinalFell || len(h.Uses) != 1 {
			t.Errorf("head %+v, want the chain to be followed", h)
		}
	})
}

func TestAChainWithoutAFinalBlockThatBeganAnewIsFollowed(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		w.finals(nil)
		w.start()
		w.settle()
		w.next()
		fresh := w.chain.ExtendBy(w.chain.First(), 3)
		w.to(fresh)
		time.Sleep((fellRounds + 1) * maxInterval)
		synctest.Wait()
		h := w.next()
		if h.Latest != blockOf(fresh) || !h.Skipped || h.FinalFell || h.Reorg == nil {
			t.Fatalf("head %+v, want the chain that began anew", h)
		}
		if fork := h.Reorg.From.Number - int64(h.Reorg.Depth); fork > 0 {
			t.Errorf("reorganization %+v leaves the blocks up to %d in place, which are other ones now", h.Reorg, fork)
		}
	})
}

func TestABlockFarAheadThatNoNodeKnowsAnyMoreDoesNotStopTheChain(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		n := w.nodes[0]
		old, final := n.Head(), w.Status().Final
		ahead := w.chain.ExtendBy(old, 5000) // of a balancer that asked another one, for once
		w.reach(ahead)
		w.wantHead(ahead)
		b := w.chain.Extend(old)
		for w.reach(b); b.Number < old.Number+20; w.reach(b) {
			b = w.chain.Extend(b)
			time.Sleep(time.Second)
		}
		w.none() // it may be just far behind
		for range 40 {
			b = w.chain.Extend(b)
			time.Sleep(time.Second)
			w.reach(b)
		}
		h := w.next()
		if h.Reorg == nil || h.Reorg.From != blockOf(ahead) || h.Reorg.From.Number-int64(h.Reorg.Depth) > old.Number || h.FinalFell || h.Final != final || !h.Skipped {
			t.Errorf("head %+v with %+v, want the chain below to be followed, and the final block to stand", h, h.Reorg)
		}
		if h = w.last(); h.Latest != blockOf(b) || h.Reorg != nil || h.FinalFell {
			t.Errorf("head %+v, want block %d", h, b.Number)
		}
	})
}

func TestFinalCanBeANumberOfBlocks(t *testing.T) {
	for _, blocks := range []string{"0", "12", "150"} {
		withNodes(2, func(cfg *Config) { cfg.Finality = blocks }).prepare(t, func(t *testing.T, w *world) {
			w.finals(nil)
			w.start()
			w.settle()
			depth := map[string]int{"0": 0, "12": 12, "150": 150}[blocks]
			if h := w.next(); h.Final != blockOf(below(w.nodes[0].Head(), depth)) {
				t.Errorf("%s: final %+v", blocks, h.Final)
			}
			for range 3 {
				b := w.mine()
				if h := w.next(); h.Final != blockOf(below(b, depth)) || h.FinalFell {
					t.Errorf("%s: head %+v, want the block %d below %d", blocks, h, depth, b.Number)
				}
				w.none()
			}
			if n := w.nodes[0].Calls("eth_getBlockByNumber"); n == 0 {
				t.Error("nothing was asked")
			}
		})
	}
}

func TestFinalByNumberFallsWithADeepReorganization(t *testing.T) {
	withNodes(1, func(cfg *Config) { cfg.Finality = "3" }).run(t, func(t *testing.T, w *world) {
		old := w.nodes[0].Head()
		b := w.chain.ExtendBy(below(old, 3), 4) // the final block itself stays
		w.reach(b)
		if h := w.next(); h.FinalFell || h.Final != blockOf(below(b, 3)) {
			t.Errorf("head %+v, want no fall", h)
		}
		b = w.chain.ExtendBy(below(b, 4), 5)
		w.reach(b)
		w.none() // before it has stayed
		time.Sleep(fellRounds * maxInterval)
		synctest.Wait()
		if h := w.next(); !h.FinalFell || h.Final != blockOf(below(b, 3)) {
			t.Errorf("head %+v, want the final block to fall", h)
		}
	})
}

func TestTheFinalBlockStandsWhileANodeStillCallsItFinal(t *testing.T) {
	withNodes(3).run(t, func(t *testing.T, w *world) {
		was := w.Status().Final
		w.nodes[2].SetFinal(below(w.nodes[2].Head(), 96)) // it has its new heads from elsewhere than its final blocks
		w.nodes[0].OnHTTP(status(500))                    // for maintenance
		time.Sleep(10 * maxInterval)
		synctest.Wait()
		w.none()
		w.nodes[1].OnHTTP(status(500))
		time.Sleep(10 * maxInterval)
		synctest.Wait()
		w.none() // who does not answer does not say that it fell
		if w.Status().Final != was {
			t.Errorf("final %+v, want still %+v", w.Status().Final, was)
		}
	})
}
