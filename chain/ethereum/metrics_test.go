package ethereum

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/fakenode"
)

func TestTheExpositionIsCleanByPromlint(t *testing.T) {
	withNodes(2).run(t, func(t *testing.T, w *world) {
		w.answersAre("", "insufficient funds")
		w.Send(t.Context(), rawTransfer)
		w.mine()
		problems, err := testutil.GatherAndLint(w.reg)
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		expect.Metrics(t, w.reg, map[string]float64{
			"chain_head_number":               worldStart + 1,
			"chain_final_number":              worldStart - 64,
			`chain_node_up{a}`:                1,
			`chain_node_lag_blocks{b}`:        0,
			`chain_node_other_chain{b}`:       0,
			`chain_node_off_branch{b}`:        0,
			`chain_node_backing_off{b}`:       0,
			`chain_answers_total{in_pool}`:    1,
			`chain_answers_total{free}`:       0,
			`chain_disagreements_total{head}`: 0,
			"chain_reorgs_total":              0,
			"chain_blocks_skipped_total":      0,
			"chain_final_fell_total":          0,
		})
		time.Sleep(time.Minute)
		if got := w.figure("chain_last_head_age_seconds"); got < 60 || got > 80 {
			t.Errorf("the last head is %v s old, want some 70", got)
		}
	})
}

func TestSeveralChainsShareARegistererAndOneChainIsThereOnce(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	log := slog.New(slog.DiscardHandler)
	for _, id := range []string{"eip155:1", "eip155:10"} {
		if _, err := New(Config{ID: id, Nodes: []string{"http://a"}}, reg, log); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(Config{ID: "eip155:1", Nodes: []string{"http://b"}}, reg, log); err == nil {
		t.Error("a chain that is there twice is no error")
	}
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() == "noncegate_chain_head_number" && len(f.GetMetric()) != 2 {
			t.Errorf("%d heads, want one for each chain", len(f.GetMetric()))
		}
	}
}

func TestEachOutcomeOfACallIsCountedByItsName(t *testing.T) {
	for want, answer := range map[result]func(rw http.ResponseWriter, r *http.Request){
		resultLimited:  func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(429) },
		resultLost:     func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(502) },
		resultNonsense: func(rw http.ResponseWriter, _ *http.Request) { rw.Write([]byte("<")) },
		resultTimeout:  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		resultTooLarge: func(rw http.ResponseWriter, _ *http.Request) { rw.Write(make([]byte, 2<<20)) },
	} {
		withNodes(1).run(t, func(t *testing.T, w *world) {
			w.nodes[0].OnHTTP(func(rw http.ResponseWriter, r *http.Request, _ []byte) bool { answer(rw, r); return true })
			if _, err := w.Counts(t.Context(), w.Status().Head, []string{fakenode.Account(1)}); err == nil {
				t.Error("no error")
			}
			w.wantFigure(`chain_requests_total{eth_getTransactionCount}{a}{`+string(want)+`}`, 1)
		})
	}
}
