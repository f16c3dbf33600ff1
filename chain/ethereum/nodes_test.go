package ethereum

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func TestANodeThatGoesAwayIsAskedLessAndFoundAgain(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		away := w.nodes[0]
		var tries atomic.Int64
		away.OnHTTP(func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			tries.Add(1)
			http.Error(w, "gone", http.StatusBadGateway)
			return true
		})
		for range 20 { // four minutes
			b := w.chain.Extend(w.nodes[1].Head(), transfer(1, 0))
			time.Sleep(time.Second)
			w.reach(b)
			if h := w.next(); h.Latest != blockOf(b) || len(h.Uses) != 1 {
				t.Errorf("head %+v, want block %d by the other node", h, b.Number)
			}
		}
		if n := tries.Load(); n < 5 || n > 15 {
			t.Errorf("%d tries in four minutes, want some, ever less often", n)
		}
		if s := w.nodeStatus(0); s.Up || !strings.Contains(s.LastError, "502") {
			t.Errorf("status %+v, want down by 502", s)
		}
		w.wantFigure(`chain_node_up{a}`, 0)
		away.OnHTTP(nil)
		time.Sleep(2 * maxPause)
		if s := w.nodeStatus(0); !s.Up || s.Lag != 0 {
			t.Errorf("status %+v, want up again", s)
		}
	})
}

func TestASlowNodeDoesNotHoldUpTheOthers(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.nodes[0].OnHTTP(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			<-r.Context().Done()
			return true
		})
		time.Sleep(3 * blockTime)
		for range 10 {
			b := w.chain.Extend(w.nodes[1].Head())
			w.to(b)
			begin := time.Now()
			for w.Status().Head != blockOf(b) {
				time.Sleep(10 * time.Millisecond)
			}
			if took := time.Since(begin); took > maxInterval+maxGrace+100*time.Millisecond {
				t.Errorf("block %d was told after %v", b.Number, took)
			}
			time.Sleep(blockTime - time.Since(begin))
		}
	})
}

func TestAnnouncementsWithoutEndDoNotMakePollsWithoutEnd(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		before := w.nodes[0].Requests()
		b := w.nodes[0].Head().JSON(false)
		for i := range 600 {
			b["hash"] = fakenode.TxHash(i).String()
			w.nodes[0].Emit("newHeads", b)
			time.Sleep(100 * time.Millisecond)
		}
		if n := w.nodes[0].Requests() - before; n < 10 || n > 60 {
			t.Errorf("%d polls in a minute, want some 40", n)
		}
	})
}

func TestASubscriptionThatIsSilentIsMadeAnewAndPollingGoesOn(t *testing.T) {
	withNodes(1, overWebSocket).run(t, func(t *testing.T, w *world) {
		w.nodes[0].Mute(true)
		began := w.nodes[0].Calls("eth_subscribe")
		for range 40 {
			b := w.mine()
			w.wantHead(b)
		}
		if n := w.nodes[0].Calls("eth_subscribe") - began; n < 2 || n > 5 {
			t.Errorf("subscribed %d times again in eight minutes, want ever less often", n)
		}
		if w.logged("subscription to new heads is silent") == 0 {
			t.Error("the log does not say so")
		}
	})
}

func TestANodeThatWantsFewerRequestsIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		header string
		wait   time.Duration
	}{"as long as it says": {"90", 90 * time.Second}, "for a while": {"", 500 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			withNodes(1).run(t, func(t *testing.T, w *world) {
				asked := make(chan time.Time, 1000)
				w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, body []byte) bool {
					if strings.Contains(string(body), methodBlockByNumber) {
						asked <- time.Now()
					}
					if test.header != "" {
						rw.Header().Set("Retry-After", test.header)
					}
					rw.WriteHeader(http.StatusTooManyRequests)
					return true
				})
				last := <-asked
				synctest.Wait()
				if s := w.nodeStatus(0); s.BackingOffUntil.Before(last.Add(test.wait)) {
					t.Errorf("status %+v, want to back off for %v", s, test.wait)
				}
				if _, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)}); !isUnreachable(err) {
					t.Errorf("counts meanwhile: %v, want ErrUnreachable", err)
				}
				for range 8 {
					at := <-asked
					if pause := at.Sub(last); pause < test.wait || pause > 3*time.Minute {
						t.Errorf("asked again after %v, want at least %v", pause, test.wait)
					}
					last = at
				}
				w.nodes[0].OnHTTP(nil)
				time.Sleep(3 * time.Minute)
				if s := w.nodeStatus(0); !s.Up || !s.BackingOffUntil.IsZero() {
					t.Errorf("status %+v, want up again", s)
				}
			})
		})
	}
}

func TestWhatANodeSaysToATransactionIsNoWishForFewerRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newWorld(t, 1).node(0)
		for _, test := range []struct {
			method, text string
			code         int
			use          use
			want         bool
		}{
			{methodSend, "nonce too low (your quota of attempts is not touched)", -32000, useSends, false},
			{methodSend, "account limit exceeded: pooled 16 txs", -32005, useSends, false},
			{methodSend, "too many requests", -32005, useSends, true},
			{methodCount, "limit exceeded", -32000, useCounts, true},
			{methodCount, "no", -32005, useCounts, true},
			{methodCount, "no", 429, useCounts, true},
			{methodCount, "Number of requests exceeds max batch size", -32005, useCounts, false},
			{"eth_getLogs", "limit exceeded", -32005, useCalls, false},
			{"eth_getLogs", "rate limit exceeded", -32005, useCalls, true},
			{"eth_call", "Your app has exceeded its compute units per second capacity.", 429, useCalls, true},
			// Words that a caller can choose.
			{"eth_call", "rate limit reached", -32000, useCalls, false},
			{"eth_call", "execution reverted: monthly quota used up", 3, useCalls, false},
			{"eth_call", "execution reverted: too many requests", -32000, useCalls, false},
			{"eth_estimateGas", "VM Exception while processing transaction: reverted with reason string 'rate limit'", -32603, useCalls, false},
			{"eth_call", "message execution failed (exit=[33], revert reason=[Error(quota)])", -32005, useCalls, false},
			{"eth_getLogs", `invalid argument 0: "too many requests" is no address`, -32602, useCalls, false},
		} {
			if got := n.wantsFewer(&RPCError{Code: test.code, Message: test.text}, test.method, asking{use: test.use}); got != test.want {
				t.Errorf("%s: %q (%d) wants fewer requests: %v, want %v", test.method, test.text, test.code, got, test.want)
			}
		}
	})
}

func TestWatchingTenThousandAccountsCostsTwoRequestsABlockAndNode(t *testing.T) {
	for name, change := range map[string]func(*Config){"polled": func(*Config) {}, "announced": overWebSocket} {
		t.Run(name, func(t *testing.T) {
			withNodes(3, change).run(t, func(t *testing.T, w *world) {
				accounts := fakeAccounts(10_000)
				w.mine()
				w.last()
				var before []int
				for _, n := range w.nodes {
					before = append(before, n.Requests())
				}
				const blocks = 50
				for i := range int64(blocks) {
					w.mine(transfer(int(i), 0), transfer(5000, i))
					if h := w.next(); len(h.Uses) != 2 || h.Skipped {
						t.Fatalf("head %+v, want two uses", h)
					}
				}
				for i, n := range w.nodes {
					if got := float64(n.Requests()-before[i]) / blocks; got > 2 {
						t.Errorf("node %d had %v requests a block, want 2 at most", i, got)
					}
					before[i] = n.Requests()
				}
				if name == "announced" { // batches are the same
					return
				}
				counts, err := w.Counts(t.Context(), w.Status().Head, accounts)
				if err != nil || counts[5000].Used != blocks || counts[0].Used != 1 || counts[9999].Used != 0 {
					t.Fatalf("counts: %v", err)
				}
				for i, n := range w.nodes {
					if got := n.Requests() - before[i]; got < 100 || got > 125 { // and its chain after a new connection
						t.Errorf("node %d had %d requests for 10,000 counts, want 100 and a few for its chain", i, got)
					}
				}
			})
		})
	}
}

func TestRunEndsWhateverIsUnderWay(t *testing.T) {
	withNodes(2, func(cfg *Config) { cfg.Nodes[1] = "ws://b:80"; cfg.Timeout = time.Minute }).run(t, func(t *testing.T, w *world) {
		for _, n := range w.nodes {
			n.OnHTTP(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool { <-r.Context().Done(); return true })
		}
		block := make(chan struct{})
		defer close(block)
		for _, method := range []string{"eth_call", methodCount} {
			w.nodes[1].On(method, func([]json.RawMessage) (any, error) { <-block; return nil, nil })
		}
		ended := make(chan error, 2)
		go func() {
			_, _, err := w.Call(t.Context(), "eth_call", nil)
			ended <- err
		}()
		go func() {
			_, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)})
			ended <- err
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		w.stop()
		if took := time.Since(begin); took > time.Second { // a node that does not read hears no goodbye
			t.Errorf("Run ended after %v", took)
		}
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a method that was under way has no error")
			}
		}
		if _, err := w.Counts(t.Context(), chain.Block{}, nil); !isUnreachable(err) {
			t.Errorf("after Run: %v, want ErrUnreachable", err)
		}
		if v := w.Send(context.Background(), rawTransfer); v.Class != chain.Unknown {
			t.Errorf("after Run: %+v, want unknown", v)
		}
	})
}
