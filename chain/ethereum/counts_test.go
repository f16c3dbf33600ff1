package ethereum

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func isUnreachable(err error) bool { return errors.Is(err, chain.ErrUnreachable) }

func TestANodeThatChangesItsBranchWhileItIsAskedGivesNoCount(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		n, changes := w.nodes[0], false
		n.On(methodCount, func(params []json.RawMessage) (any, error) {
			if strings.HasPrefix(string(params[1]), "{") { // so that it is asked by number
				return nil, &fakenode.Error{Code: -32602, Message: "invalid argument 1: json: cannot unmarshal object into Go value of type string"}
			}
			if changes {
				n.SetHead(w.chain.Extend(n.Head().Parent))
			}
			return "0x63", nil
		})
		w.run()
		at := w.Status().Head
		changes = true
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
		{"by a status and a body", func(w *world) {
			w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, body []byte) bool {
				if strings.Count(string(body), "method") <= 3 {
					return false
				}
				http.Error(rw, `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"internal error"}}`, http.StatusInternalServerError)
				return true
			})
		}, 3},
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
				if n := w.logged("level=WARN msg=\"node refuses requests of several calls"); n != 1 {
					t.Errorf("said %d times at warn, want once", n)
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
