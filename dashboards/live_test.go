//go:build unix

package dashboards

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/dashboards/internal/boards"
	"noncegate/dashboards/internal/rig"
	"noncegate/internal/testenv/guarded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 90 * time.Second       // a net; the test waits for scrapes
	every    = 500 * time.Millisecond // between two scrapes
	window   = 4 * time.Second        // of the rates: what $__rate_interval stands for
	scrapes  = 10                     // more than a window has
)

// watched are two gateways over one store, of which one has a small load and
// forwards a part of it to the other, that ask a chain and that a Prometheus with our
// rules has scraped often enough. flags are those of the gateways. All of it ends with the test.
func watched(t *testing.T, ctx context.Context, flags ...string) *rig.Prometheus {
	t.Helper()
	room, err := guarded.Open("dashboards-", nil)
	must(t, err)
	t.Cleanup(func() { must(t, room.Close()) })
	// The compiler is a process of its own. Only what the test opens itself makes
	// a cached result out of date: the folders that name the metrics.
	for _, source := range []string{"../chain", "../chain/ethereum", "../chain/ethereum/endpoint", "../cmd/gateway", "../internal/access", "../internal/cluster", "../internal/events/redisevents", "../internal/guard", "../internal/metrics", "../ws"} {
		_, err := os.ReadDir(source)
		must(t, err)
	}
	gateways, err := rig.StartCluster(ctx, room, rig.ClusterConfig{Nodes: 2, Chain: true, Flags: flags})
	must(t, err)
	t.Cleanup(func() { must(t, gateways.Stop()) })
	rules, err := filepath.Abs("rules.yml")
	must(t, err)
	prometheus, err := rig.StartPrometheus(ctx, room, rig.PrometheusConfig{Targets: gateways.Admins(), Rules: rules, Every: every})
	must(t, err)
	t.Cleanup(func() { must(t, prometheus.Stop()) })
	load := rig.StartLoad(gateways.Nodes[0].WS, rig.LoadConfig{Clients: 4, Signers: 10, Pause: 10 * time.Millisecond, Chain: gateways.Chain})
	t.Cleanup(func() { must(t, load.Stop()) })
	must(t, prometheus.AwaitScrapes(ctx, scrapes))
	return prometheus
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLongEveryQueryHasAnAnswerOfRealGateways: and the metrics of the shards say who has
// them.
func TestLongEveryQueryHasAnAnswerOfRealGateways(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	prometheus := watched(t, ctx)
	everythingIsAnswered(t, ctx, prometheus)
	const shards, half = 32, 16
	value := func(expr string) float64 {
		t.Helper()
		got, err := prometheus.Query(ctx, expr)
		must(t, err)
		if len(got) != 1 {
			t.Fatalf("%s has %d answers", expr, len(got))
		}
		return got[0].Samples[0].Value
	}
	for n := scrapes; value("min(noncegate_shards_owned)") < half; n++ {
		must(t, prometheus.AwaitScrapes(ctx, n)) // the nodes move shards still
	}
	for expr, want := range map[string]float64{
		"min(noncegate_shards)": shards, "sum(noncegate_shards_owned)": shards, "max(noncegate_shards_owned)": half,
		"max(noncegate_shards_unowned)": 0, "max(noncegate_shard_unowned_seconds)": 0, "min(noncegate_lease_ttl_seconds)": 5,
		"count(noncegate_signer_memory_bytes > 0 < noncegate_signer_memory_max_bytes)": 2, // the load is at signers of both
		"max(noncegate_signers_unreadable)":                                            0,
	} {
		if got := value(expr); got != want {
			t.Errorf("%s is %v, want %v", expr, got, want)
		}
	}
}

// everythingIsAnswered asks all that the dashboards and the rules ask, and looks for metrics that nobody asks for.
func everythingIsAnswered(t *testing.T, ctx context.Context, prometheus *rig.Prometheus) {
	t.Helper()
	again := 0
	ask := func(where, expr string) {
		t.Helper()
		for {
			got, err := prometheus.Query(ctx, expr)
			switch {
			case err != nil:
				t.Errorf("%s: %v", where, err)
			case anyNumber(got):
			case again < scrapes: // a scrape that had no time ends all series until the next one
				again++
				stored, err := prometheus.Scrapes(ctx)
				must(t, err)
				must(t, prometheus.AwaitScrapes(ctx, stored+1))
				continue
			default:
				t.Errorf("%s: no answer to\n%s", where, expr)
			}
			return
		}
	}
	for _, b := range boards.All() {
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					ask(b.File+", "+p.Title, q.Ask(window))
				}
			}
		}
	}
	everyMetricIsShown(t, ctx, prometheus)
	for _, r := range rules(t) {
		ask(r.name(), unconditional(r.Expr))
		if r.Record != "" {
			ask("recorded "+r.Record, r.Record)
		}
	}
	states, err := prometheus.Rules(ctx)
	must(t, err)
	if len(states) != len(rules(t)) {
		t.Errorf("Prometheus knows %d rules, want %d", len(states), len(rules(t)))
	}
	for _, r := range states {
		if r.Health != "ok" || r.State == "firing" {
			t.Errorf("%s is %s %s at rest: %s", r.Name, r.Health, r.State, r.LastError)
		}
	}
}

// unshown are the metrics on no dashboard, and why.
var unshown = map[string]string{
	"noncegate_redis_configured":        "a setting, which gateway_info says too",
	"noncegate_redis_queued_events_max": "8192, which the panel of the events that wait says",
}

// everyMetricIsShown: what nobody looks at need not be counted.
func everyMetricIsShown(t *testing.T, ctx context.Context, prometheus *rig.Prometheus) {
	t.Helper()
	var queries strings.Builder
	for _, b := range boards.All() {
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					queries.WriteString(q.Expr + "\n")
				}
			}
		}
	}
	exported, err := prometheus.Query(ctx, `count by (__name__) ({__name__=~"noncegate_.+", job="noncegate"})`)
	must(t, err)
	if len(exported) < 100 {
		t.Errorf("only %d metrics are exported", len(exported))
	}
	left := maps.Clone(unshown)
	page, err := os.ReadFile("../docs/metrics.md")
	must(t, err)
	for _, s := range exported {
		name := histogramOf.ReplaceAllString(s.Labels["__name__"], "")
		if !regexp.MustCompile("`" + strings.TrimPrefix(name, "noncegate_") + "[`{]").Match(page) {
			t.Errorf("%s has no line in docs/metrics.md", name)
		}
		shown := regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).MatchString(queries.String())
		_, excused := unshown[name]
		if delete(left, name); shown == excused {
			t.Errorf("%s: on a dashboard %v, and in the list of those that need not be %v", name, shown, excused)
		}
	}
	for name := range left {
		t.Errorf("%s is in the list of those that need not be shown, and no gateway exports it", name)
	}
}

// histogramOf is how the series of a histogram end.
var histogramOf = regexp.MustCompile(`_(bucket|sum|count)$`)

func anyNumber(all []rig.Series) bool {
	for _, s := range all {
		if s.Number() {
			return true
		}
	}
	return false
}

// comparison is a limit of an alert, or the guard of a division by 0.
var comparison = regexp.MustCompile(`\s(?:==|!=|>=|<=|>|<)\s+[0-9.e-]+`)

// unconditional makes of the expression of an alert what it looks at: without
// the limits, which nothing should pass at rest, and with what is there in the
// place of what is absent. Matchers within braces have no spaces, and stay.
func unconditional(expr string) string {
	return strings.ReplaceAll(comparison.ReplaceAllString(expr, ""), "absent(", "(")
}

func TestOnlyLimitsAreTakenFromAnAlert(t *testing.T) {
	for expr, want := range map[string]string{
		`up{job="noncegate"} == 0 or absent(up{job="noncegate"})`: `up{job="noncegate"} or (up{job="noncegate"})`,
		`sum by (job) (rate(x_total{reason!="idle"}[5m])) > 0`:    `sum by (job) (rate(x_total{reason!="idle"}[5m]))`,
		"a\n/ (b > 0)": "a\n/ (b)",
		`predict_linear(a[10m], 900) > 1 and b > 0.2`: `predict_linear(a[10m], 900) and b`,
	} {
		if got := unconditional(expr); got != want {
			t.Errorf("%s became %s, want %s", expr, got, want)
		}
	}
}
