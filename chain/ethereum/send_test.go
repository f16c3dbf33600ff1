package ethereum

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

// says answers transactions with a refusal, or with their hash if it is "".
func says(message string) fakenode.Handler {
	return func(params []json.RawMessage) (any, error) {
		if message != "" {
			return nil, &fakenode.Error{Code: -32000, Message: message}
		}
		var text string
		if err := json.Unmarshal(params[0], &text); err != nil {
			return nil, err
		}
		raw, err := hex.DecodeString(strings.TrimPrefix(text, "0x"))
		if err != nil {
			return nil, err
		}
		return hashOf(raw).String(), nil
	}
}

// gone has a node not answer transactions: the request is lost on the way.
const gone = "(gone)"

// answersAre sets what each node says to transactions.
func (w *world) answersAre(all ...string) {
	for i, text := range all {
		n := w.nodes[i]
		if text != gone {
			n.On(methodSend, says(text))
			continue
		}
		n.OnHTTP(func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
			if !strings.Contains(string(body), methodSend) {
				return false
			}
			panic(http.ErrAbortHandler)
		})
	}
}

// decline is one way in which a node, or what stands before it, declines a transaction.
type decline struct {
	What    string
	HTTP    int
	Body    string
	Headers map[string]string
	Error   *fakenode.Error
	Break   string
	Class   string
	Later   bool
	Nonce   string // its state after that, through the endpoint
}

func TestWaysOfDecliningAreGraded(t *testing.T) {
	data, err := os.ReadFile("testdata/declined.json")
	must(t, err)
	var all []decline
	must(t, json.Unmarshal(data, &all))
	for _, d := range all {
		t.Run(d.What, func(t *testing.T) {
			var broken error // of new connections
			dial := func(cfg *Config) {
				through := cfg.Dial
				cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if broken != nil {
						return nil, broken
					}
					return through(ctx, network, address)
				}
			}
			withNodes(1, dial).run(t, func(t *testing.T, w *world) {
				if d.Break == "refused" || d.Break == "unresolved" {
					w.node(0).link.Reconnect(1, nil) // no connection is kept
					broken = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				}
				w.nodes[0].OnHTTP(func(rw http.ResponseWriter, r *http.Request, body []byte) bool {
					if !strings.Contains(string(body), methodSend) {
						return false
					}
					switch {
					case d.Break == "cut":
						panic(http.ErrAbortHandler)
					case d.Break == "silent":
						<-r.Context().Done()
						return true
					}
					for k, v := range d.Headers {
						rw.Header().Set(k, v)
					}
					rw.WriteHeader(d.HTTP)
					answer := []byte(d.Body)
					if d.Error != nil {
						answer, _ = json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": d.Error})
					}
					_, _ = rw.Write(answer)
					return true
				})
				v := w.Send(t.Context(), rawTransfer)
				if v.Class.String() != d.Class || v.Later != d.Later {
					t.Errorf("%+v, want %s, later %v", v, d.Class, d.Later)
				}
				if want := d.Headers["Retry-After"]; want != "" && v.RetryAfter != 2*time.Second {
					t.Errorf("retry after %v, want %s s", v.RetryAfter, want)
				}
			})
		})
	}
}

func TestATryThatIsUnderWayKeepsAnotherFromBeingFree(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		first, let := make(chan struct{}, 1), make(chan struct{})
		first <- struct{}{}
		w.nodes[0].On(methodSend, func([]json.RawMessage) (any, error) {
			select {
			case <-first:
				<-let
			default:
			}
			return nil, &fakenode.Error{Code: -32000, Message: "insufficient funds"}
		})
		slow := make(chan chain.Verdict)
		go func() { slow <- w.Send(t.Context(), rawTransfer) }()
		synctest.Wait()
		if v := w.Send(t.Context(), rawTransfer); v.Class != chain.Unknown {
			t.Errorf("%+v, want unknown while another try is under way", v)
		}
		close(let)
		if v := <-slow; v.Class != chain.Free {
			t.Errorf("%+v, want free: every try was refused", v)
		}
	})
}

func TestATryThatIsUnderWayMayLeaveItWithANodeThatIsNotReached(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.answersAre("", "nonce too low")
		let := make(chan struct{})
		w.nodes[0].On(methodSend, func(params []json.RawMessage) (any, error) {
			<-let
			return says("")(params)
		})
		slow := make(chan chain.Verdict)
		go func() { slow <- w.Send(t.Context(), rawTransfer) }()
		synctest.Wait()
		w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, _ []byte) bool {
			http.Error(rw, "no key", http.StatusUnauthorized)
			return true
		})
		if v := w.Send(t.Context(), rawTransfer); v.Class != chain.Used || !v.Unanswered || !v.Before {
			t.Errorf("%+v, want used, unanswered, and that another try may have left it", v)
		}
		close(let)
		if v := <-slow; v.Class != chain.InPool {
			t.Errorf("%+v, want in_pool", v)
		}
	})
}

func TestTheFirstThatAcceptsAnswersAndTheOthersGetItAllTheSame(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.answersAre("", "")
		w.nodes[1].On(methodSend, func(params []json.RawMessage) (any, error) {
			time.Sleep(3 * time.Second)
			return says("")(params)
		})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		v := w.Send(ctx, rawTransfer)
		cancel()
		if v.Class != chain.InPool || time.Since(begin) > 100*time.Millisecond {
			t.Errorf("%+v after %v, want in_pool at once", v, time.Since(begin))
		}
		synctest.Wait()
		if n := w.nodes[1].Calls(methodSend); n != 1 {
			t.Errorf("the slow node got it %d times, want once", n)
		}
		if n := testutil.ToFloat64(w.m.requests.WithLabelValues("b", methodSend, string(resultOK))); n != 0 {
			t.Error("the slow node has answered already")
		}
		time.Sleep(4 * time.Second)
		w.wantFigure(`chain_requests_total{eth_sendRawTransaction}{b}{ok}`, 1)
	})
}

func TestWhoStopsWaitingDoesNotStopTheSending(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		w.nodes[0].On(methodSend, func(params []json.RawMessage) (any, error) {
			time.Sleep(time.Second)
			return nil, &fakenode.Error{Code: -32000, Message: "insufficient funds"}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if v := w.Send(ctx, rawTransfer); v.Class != chain.Unknown {
			t.Errorf("%+v, want unknown", v)
		}
		time.Sleep(2 * time.Second)
		w.wantFigure(`chain_requests_total{eth_sendRawTransaction}{a}{refused}`, 1)
		if v := w.Send(t.Context(), rawTransfer); v.Class != chain.Free || !v.Before {
			t.Errorf("%+v, want that an earlier try is told: its answer came to nobody", v)
		}
	})
}

// The chain behind an address may change without an error, and between two polls.
func TestANodeThatIsOfAnotherChainMeanwhileDecidesNothing(t *testing.T) {
	const low, funds = "nonce too low", "insufficient funds"
	for _, says := range []string{low, funds, ""} {
		for _, raw := range [][]byte{rawTransfer, rawLegacy(0, 5)} {
			withNodes(2).run(t, func(t *testing.T, w *world) {
				w.answersAre(says, funds)
				w.nodes[0].SetChainID(5)
				want := chain.Free
				if says == "" && slices.Equal(raw, rawTransfer) {
					want = chain.InPool // a node of another chain cannot take it
				}
				if v := w.Send(t.Context(), raw); v.Class != want {
					t.Errorf("%q: %+v, want %v", says, v, want)
				}
			})
		}
	}
	withNodes(1).run(t, func(t *testing.T, w *world) {
		n, tx := w.nodes[0], transfer(1, 3)
		n.On(methodTxBySender, n.FindBySender)
		n.SetPool(tx)
		n.SetChainID(5)
		if got, err := w.Lookup(t.Context(), []chain.Ask{{Account: tx.From, Nonce: 3}}); !isUnreachable(err) {
			t.Errorf("%+v, %v; want that no node answers", got, err)
		}
		if s := w.nodeStatus(0); s.OtherChain != "eip155:5" {
			t.Errorf("status %+v, want another chain", s)
		}
	})
}

func TestATransactionThatCannotBeReadIsNotSent(t *testing.T) {
	withNodes(1).run(t, func(t *testing.T, w *world) {
		for name, raw := range map[string][]byte{
			"nothing": nil, "noise": []byte("noise"), "another chain": rawLegacy(5, 0), "cut off": rawTransfer[:50],
			"a nonce that is too high": rawLegacy(1, 1<<63-1),
		} {
			v := w.Send(t.Context(), raw)
			_, err := w.Decode(raw)
			if v.Class != chain.Free || v.Code != codeInvalid || err == nil || v.Message != err.Error() {
				t.Errorf("%s: %+v and %v, want free with the same sentence", name, v, err)
			}
		}
		_, err := w.Decode(rawLegacy(5, 0))
		if other, ok := errors.AsType[*OtherChainError](err); !ok || *other != (OtherChainError{Want: 1, Is: 5}) {
			t.Errorf("a transaction of chain 5: %v, want one that names chain 1, and 5", err)
		}
		if n := w.nodes[0].Calls(methodSend); n != 0 {
			t.Errorf("%d transactions were sent", n)
		}
	})
}

func TestDecodeTellsSenderNonceHashAndOffer(t *testing.T) {
	withNodes(1).prepare(t, func(t *testing.T, w *world) {
		got, err := w.Decode(rawTransfer)
		got.Payment = [16]byte{} // package rawtx tells what it is of
		want := chain.Tx{Account: authority, Nonce: 5, Hash: hashOf(rawTransfer), Offer: chain.Offer{GasPrice: "0x3b9aca00"}, Protected: true}
		if err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	})
}

func (w *world) node(i int) *node { return w.Client.nodes[i] }

func TestTriesAreForgottenTheOldestFirst(t *testing.T) {
	tries := newTried(3)
	for i := range byte(5) {
		tries.mark(chain.Hash{i})
		tries.mark(chain.Hash{i}) // which changes nothing
	}
	for i := range byte(5) {
		if got := tries.before(chain.Hash{i}); got != (i >= 2) {
			t.Errorf("hash %d is remembered: %v", i, got)
		}
	}
	if tries.marked.Len() != 3 {
		t.Errorf("%d are remembered, want 3", tries.marked.Len())
	}
}
