package ethereum

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"noncegate/test/lab/fakenode"
)

var testTime = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func TestASettingThatCannotBeUsedIsNamedWithItsRule(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		rule   string
	}{
		{func(c *Config) { c.ID = "" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "1" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "eip155:0" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "eip155:01" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "eip155:+1" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "eip155:9223372036854775808" }, "ID must be eip155:"},
		{func(c *Config) { c.ID = "cosmos:hub" }, "ID must be eip155:"},
		{func(c *Config) { c.Nodes = nil }, "Nodes must have 1 to 16 addresses, has 0"},
		{func(c *Config) { c.Nodes = make([]string, 17) }, "has 17"},
		{func(c *Config) { c.Nodes = []string{"http://a", "ftp://user:secret@b"} }, "Nodes: number 2 must begin with ws://"},
		{func(c *Config) { c.Nodes = []string{"http://user:sec/ret@a"} }, "Nodes: number 1 is no URL"},
		{func(c *Config) { c.Finality = "safe" }, `Finality must be "finalized" or a number`},
		{func(c *Config) { c.Finality = "-1" }, `Finality must be "finalized" or a number`},
		{func(c *Config) { c.Finality = "10001" }, "0 to 10000"},
	} {
		cfg := Config{ID: "eip155:1", Nodes: []string{"http://a"}}
		test.change(&cfg)
		_, err := New(cfg, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		se, ok := errors.AsType[*SettingError](err)
		if !ok || !strings.Contains(se.Rule, test.rule) || !strings.HasPrefix(err.Error(), "chain "+cfg.ID+": ") {
			t.Errorf("%+v: %v, want %s", cfg, err, test.rule)
		}
		if err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("%v shows a password", err)
		}
	}
}

func TestNodesAreNamedByTheirHostsAndNeverTwoAlike(t *testing.T) {
	for _, test := range []struct{ nodes, want []string }{
		{[]string{"http://a", "ws://b:8546", "https://user:x@c/key"}, []string{"a", "b", "c"}},
		{[]string{"http://a:1", "http://a:2", "http://b:1"}, []string{"a:1", "a:2", "b"}},
		{[]string{"http://a/x", "http://a/y", "http://a/z"}, []string{"a", "a#2", "a#3"}},
		{[]string{"http://[::1]:1", "ws://[::1]:2", "ws://[::2]"}, []string{"[::1]:1", "[::1]:2", "[::2]"}},
		{[]string{"http://a:1/x", "http://a:1/y"}, []string{"a:1", "a:1#2"}},
	} {
		c, err := New(Config{ID: "eip155:1", Nodes: test.nodes}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		must(t, err)
		if !slices.Equal(c.set.names, test.want) {
			t.Errorf("%q: names %q, want %q", test.nodes, c.set.names, test.want)
		}
	}
}

func TestDefaultsAreThoseThatAreDocumented(t *testing.T) {
	s, err := Config{ID: "eip155:1", Nodes: []string{"http://a"}}.complete()
	must(t, err)
	if s.Lag != 3 || s.MaxBlocksBehind != 64 || s.MaxInflight != 64 || s.MaxBatch != 100 || s.MaxAnswerBytes != 16<<20 ||
		s.Timeout != 5*time.Second || s.finality != finalizedTag || s.small != 1<<20 || s.chainID != 1 {
		t.Errorf("settings %+v", s)
	}
}

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
		time.Sleep(time.Minute)
		if got := w.figure("chain_last_head_age_seconds"); got < 60 || got > 80 {
			t.Errorf("the last head is %v s old, want some 70", got)
		}
	})
}

func TestSeveralChainsShareARegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	log := slog.New(slog.DiscardHandler)
	for _, id := range []string{"eip155:1", "eip155:10"} {
		if _, err := New(Config{ID: id, Nodes: []string{"http://a"}}, reg, log); err != nil {
			t.Fatal(err)
		}
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
