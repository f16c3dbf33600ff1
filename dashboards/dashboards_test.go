//go:build unix

package dashboards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
)

// dashboard is the part of Grafana's classic model that is looked at.
type dashboard struct {
	UID, Title string
	Panels     []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Panels                   []panel // of a row that is collapsed
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		Expr       string
		Datasource struct{ Type, UID string }
	}
}

// boards are the dashboards, by file, and what each query asks Prometheus for, by panel.
func boards(t *testing.T) (all map[string]dashboard, queries map[string]string) {
	t.Helper()
	files, err := filepath.Glob("*.json")
	expect.Must(t, err)
	if len(files) < 5 {
		t.Fatalf("only %v", files)
	}
	all, queries = make(map[string]dashboard), make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.Must(t, err)
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
		for _, p := range d.all() {
			for i, q := range p.Targets {
				queries[fmt.Sprintf("%s, %s, %d", file, p.Title, i)] = q.Expr
			}
		}
	}
	return all, queries
}

// all are the rows and the panels, also those within rows.
func (d dashboard) all() (all []panel) {
	for _, p := range d.Panels {
		all = append(append(all, p), p.Panels...)
	}
	return all
}

func TestEachPanelSaysWhatItShows(t *testing.T) {
	all, _ := boards(t)
	uids := make(map[string]bool)
	for file, d := range all {
		if d.UID == "" || uids[d.UID] || d.Title == "" {
			t.Errorf("%s: uid %q, title %q", file, d.UID, d.Title)
		}
		uids[d.UID] = true
		ids := make(map[int]bool)
		for _, p := range d.all() {
			if ids[p.ID] || p.ID == 0 || p.Title == "" {
				t.Errorf("%s: %q has the id %d", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			if p.Type != "row" && (p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0) {
				t.Errorf("%s: %q has description %q, unit %q and %d queries", file, p.Title, p.Description, p.FieldConfig.Defaults.Unit, len(p.Targets))
			}
			for _, q := range p.Targets {
				if q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
					t.Errorf("%s: %q asks %v", file, p.Title, q.Datasource)
				}
			}
		}
	}
}

// unshown are the metrics on no dashboard, and why.
var unshown = map[string]string{
	"noncegate_chain_node_wrong":          "an alert says it",
	"noncegate_chain_final_missing":       "an alert says it",
	"noncegate_chain_absurd_counts_total": "0 as a rule, and in the log",
	"noncegate_eth_offered_again_total":   "a detail of the unknown ones of eth_sends_total, which is shown",
	"noncegate_receive_bytes_max":         "a setting, --max-receive-bytes",
}

var (
	metric   = regexp.MustCompile(`\b(?:noncegate|go|process)_[a-z0-9_]+\b`)
	recorded = regexp.MustCompile(`\b\w+:[\w:]+\b`) // the name of a recording rule has colons
	ofSeries = regexp.MustCompile(`_(bucket|sum|count)$`)
)

func TestEveryQueryNamesAnExportedMetric(t *testing.T) {
	exported := exportedMetrics(t)
	if len(exported) < 100 {
		t.Fatalf("only %d metrics are exported", len(exported))
	}
	_, queries := boards(t)
	shown := make(map[string]bool)
	named := func(where, expr string, known []string) {
		names := metric.FindAllString(recorded.ReplaceAllStringFunc(expr, func(name string) string {
			if !slices.Contains(known, name) {
				t.Errorf("%s asks for %s, which no rule before it records", where, name)
			}
			return ""
		}), -1)
		for _, name := range names {
			if family := ofSeries.ReplaceAllString(name, ""); exported[family] {
				name = family
			} else if !exported[name] {
				t.Errorf("%s asks for %s, which no gateway exports", where, name)
			}
			shown[name] = shown[name] || strings.Contains(where, ".json")
		}
		if len(names) == 0 && !recorded.MatchString(expr) && !strings.Contains(expr, "up{") {
			t.Errorf("%s names no metric: %s", where, expr)
		}
	}
	for where, expr := range queries {
		named(where, expr, nil)
	}
	var records []string
	for _, r := range rules(t, false) {
		named(r.Record+r.Alert, r.Expr, records)
		records = append(records, r.Record)
	}
	page := page(t, "metrics")
	for name := range exported {
		short, ours := strings.CutPrefix(name, "noncegate_")
		if !ours {
			continue
		}
		if !strings.Contains(page, "`"+short+"`") && !strings.Contains(page, "`"+short+"{") {
			t.Errorf("%s has no line in docs/metrics.md", name)
		}
		if _, excused := unshown[name]; shown[name] == excused {
			t.Errorf("%s: on a dashboard %v, and in the list of those that need not be %v", name, shown[name], excused)
		}
	}
}

// exportedMetrics are the names of what a gateway with a chain says at /metrics, once its Ethereum endpoint was asked and it has asked a
// node. Everything else it counts is there from the start, at 0.
func exportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	ctx := t.Context()
	room, err := guarded.Open("dashboards-", nil)
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, room.Close()) })
	program, err := gateway.Program(ctx)
	expect.Must(t, err)
	g, err := gateway.Start(ctx, room, gateway.Config{
		Program: program, Log: "gateway.log",
		Args: []string{"--store=sqlite:" + filepath.Join(t.TempDir(), "db"), "--chain=eip155:1337=http://127.0.0.1:1"}, // nothing listens there
	})
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, g.Kill()) })
	endpoint := "http" + strings.TrimSuffix(strings.TrimPrefix(g.URL, "ws"), "/ws") + "/eth/1337"
	asked, err := http.Post(endpoint, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"eth_sign","params":[]}`))
	expect.Must(t, err)
	expect.Check(t, asked.Body.Close())
	names := make(map[string]bool)
	expect.Must(t, g.Await(ctx, 50*time.Millisecond, func(ctx context.Context) error {
		answer, err := http.Get(g.Admin + "/metrics")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(answer.Body)
		for name := range families {
			names[name] = true
		}
		if err == nil && !names["noncegate_chain_requests_total"] {
			err = errors.New("no node of the chain was asked yet")
		}
		return err
	}))
	return names
}

// asRules are the queries of the panels as a file of recording rules, so that promtool reads them: of all instances, over a minute.
func asRules(queries map[string]string) (text []byte) {
	plain := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m")
	text = []byte("groups:\n- name: panels\n  rules:\n")
	for i, where := range slices.Sorted(maps.Keys(queries)) {
		text = fmt.Appendf(text, "  # %s\n  - {record: 'panel:%d', expr: %q}\n", where, i, plain.Replace(queries[where]))
	}
	return text
}

type rule struct {
	Record, Alert, Expr string
	For                 time.Duration
	Labels, Annotations map[string]string
}

// decode reads a file of which promtool says whether its fields are right.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.Must(t, errors.Join(err, yaml.Unmarshal(text, into)))
}

// rules returns the rules of all groups, in order, or the alerts among them.
func rules(t *testing.T, alerts bool) (all []rule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	decode(t, "rules.yml", &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return slices.DeleteFunc(all, func(r rule) bool { return alerts && r.Alert == "" })
}

// TestPromtoolAcceptsTheRulesTheirTestsAndThePanels: that an annotation can be written when an alert fires is promtool's to say, too.
func TestPromtoolAcceptsTheRulesTheirTestsAndThePanels(t *testing.T) {
	_, queries := boards(t)
	panels := filepath.Join(t.TempDir(), "panels.yml")
	expect.Must(t, os.WriteFile(panels, asRules(queries), 0o600))
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"check", "rules", panels}, {"test", "rules", "rules_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// That what the file says comes true is promtool's to say.
func TestEachAlertFiresOnceAndStaysSilentOnce(t *testing.T) {
	var file struct {
		Tests []struct {
			Name           string
			InputSeries    []struct{ Series string } `yaml:"input_series"`
			PromqlExprTest []struct {
				Expr       string
				ExpSamples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	decode(t, "rules_test.yml", &file)
	shown := make(map[string]bool) // by what and alert
	for _, group := range file.Tests {
		for _, s := range group.InputSeries {
			if strings.Contains(s.Series, `instance="good"`) {
				shown["is silent beside a good instance "+group.Name] = true
			}
		}
		for _, ask := range group.PromqlExprTest {
			if want := `count by (instance) (ALERTS{alertname="` + group.Name + `", alertstate="firing"})`; ask.Expr != want {
				t.Errorf("%s asks for %s, want %s", group.Name, ask.Expr, want)
			}
			shown[map[bool]string{true: "fires ", false: "is silent before "}[len(ask.ExpSamples) > 0]+group.Name] = true
		}
	}
	for _, a := range rules(t, true) {
		for _, what := range []string{"fires ", "is silent before ", "is silent beside a good instance "} {
			if !shown[what+a.Alert] {
				t.Errorf("rules_test.yml does not show that %s %s", a.Alert, what)
			}
		}
	}
}

func TestEachAlertSaysWhatIsWrongAndWhereToRead(t *testing.T) {
	manual := page(t, "alerts")
	for _, r := range rules(t, true) {
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !leads(t, r.Annotations["runbook"]) {
			t.Errorf("%s: summary or description is missing, or the runbook line leads nowhere: %v", r.Alert, r.Annotations)
		}
		if !strings.Contains(manual, "\n| `"+r.Alert+"` | "+r.Labels["severity"]+" | ") {
			t.Errorf("%s (%s) has no line in the table of alerts of docs/alerts.md", r.Alert, r.Labels["severity"])
		}
	}
}

var runbook = regexp.MustCompile(`^docs/([a-z]+)\.md#([a-z-]+)(?: \((.+)\))?$`)

// page is a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name + ".md")
	expect.Must(t, err)
	return string(text)
}

// leads reports whether a runbook line names a section of a page and, in brackets, how a paragraph of it begins.
func leads(t *testing.T, line string) bool {
	t.Helper()
	to := runbook.FindStringSubmatch(line)
	if to == nil {
		return false
	}
	for section := range strings.SplitSeq(page(t, to[1]), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		if strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(title, "# ")), " ", "-") == to[2] {
			return to[3] == "" || strings.Contains(text, "\n**"+to[3])
		}
	}
	return false
}
