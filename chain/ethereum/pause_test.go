package ethereum

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"noncegate/chain"
	"noncegate/test/lab/fakenode"
)

func TestANodeThatWantsFewerRequestsOfOneUseIsAskedForTheOthers(t *testing.T) {
	for limited, what := range map[string]struct {
		method string
		use    use
	}{
		"calls":  {"eth_call", useCalls},
		"counts": {methodCount, useCounts},
		"sends":  {methodSend, useSends},
		"polls":  {methodBlockByNumber, usePolls},
	} {
		withNodes(1).run(t, func(t *testing.T, w *world) {
			w.answersAre("")
			w.named()
			w.nodes[0].OnHTTP(func(rw http.ResponseWriter, _ *http.Request, body []byte) bool {
				if !strings.Contains(string(body), what.method) {
					return false
				}
				rw.Header().Set("Retry-After", "3600")
				rw.WriteHeader(http.StatusTooManyRequests)
				return true
			})
			at, account := w.Status().Head, []string{fakenode.Account(1)}
			uses := map[use]func() bool{
				useCalls:  func() bool { _, _, err := w.Call(t.Context(), "eth_call", nil); return err == nil },
				useCounts: func() bool { _, err := w.Counts(t.Context(), at, account); return err == nil },
				useSends:  func() bool { return w.Send(t.Context(), rawTransfer).Class == chain.InPool },
				usePolls: func() bool {
					w.to(w.chain.Extend(w.nodes[0].Head()))
					time.Sleep(2 * blockTime)
					return len(w.heads) > 0
				},
			}
			uses[what.use]() // which the node limits from now on
			for u, works := range uses {
				if got := works(); got != (u != what.use) {
					t.Errorf("with its %s limited, the node answers %v: %v", limited, u, got)
				}
			}
			if s := w.nodeStatus(0); s.BackingOffUntil.IsZero() {
				t.Errorf("%s: status %+v, want to say that the node wants fewer requests", limited, s)
			}
		})
	}
}
