//go:build unix

package dashboards

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"noncegate/dashboards/internal/rig"
)

// ruleFile is all that Prometheus knows in a file of rules, as far as it is used.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr string
	For                 time.Duration
	Labels, Annotations map[string]string
}

func (r rule) name() string { return r.Record + r.Alert }

// decode reads a file; a key that is not in the type fails the test.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// rules returns the rules of all groups, in order.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file ruleFile
	decode(t, "rules.yml", &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func alerts(t *testing.T) []rule {
	t.Helper()
	return slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" })
}

func TestPromtoolAcceptsTheRulesAndTheirTests(t *testing.T) {
	promtool, err := rig.Find("promtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "rules.yml"}, {"test", "rules", "rules_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// ruleTests is what promtool is given.
type ruleTests struct {
	RuleFiles          []string `yaml:"rule_files"`
	EvaluationInterval string   `yaml:"evaluation_interval"`
	Tests              []struct {
		Name, Interval string
		InputSeries    []struct{ Series, Values string } `yaml:"input_series"`
		PromqlExprTest []struct {
			Expr       string
			EvalTime   string `yaml:"eval_time"`
			ExpSamples []struct {
				Labels string
				Value  float64
			} `yaml:"exp_samples"`
		} `yaml:"promql_expr_test"`
	}
}

// That what the file says comes true is promtool's to say.
func TestEachAlertFiresOnceAndStaysSilentOnce(t *testing.T) {
	var file ruleTests
	decode(t, "rules_test.yml", &file)
	fires, silentBefore, silentBeside := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, group := range file.Tests {
		for _, s := range group.InputSeries {
			silentBeside[group.Name] = silentBeside[group.Name] || strings.Contains(s.Series, `instance="good"`)
		}
		for _, ask := range group.PromqlExprTest {
			if want := `count by (instance) (ALERTS{alertname="` + group.Name + `", alertstate="firing"})`; ask.Expr != want {
				t.Errorf("%s asks for %s, want %s", group.Name, ask.Expr, want)
			}
			if len(ask.ExpSamples) == 0 {
				silentBefore[group.Name] = true
			} else {
				fires[group.Name] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silentBefore[a.Alert] || !silentBeside[a.Alert] {
			t.Errorf("rules_test.yml: %s fires %v, is silent before %v and beside a good instance %v; want all",
				a.Alert, fires[a.Alert], silentBefore[a.Alert], silentBeside[a.Alert])
		}
	}
}

func TestEachAlertSaysWhatIsWrongAndWhereToRead(t *testing.T) {
	manual := page(t, "alerts")
	seen := make(map[string]bool)
	for _, r := range rules(t) {
		if (r.Record == "") == (r.Alert == "") || seen[r.name()] {
			t.Errorf("%q: one of record and alert, and once", r.name())
		}
		seen[r.name()] = true
	}
	for _, r := range alerts(t) {
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		for _, a := range []string{"summary", "description", "runbook"} {
			if err := parseAnnotation(r.Annotations[a]); r.Annotations[a] == "" || err != nil {
				t.Errorf("%s: %s %q: %v", r.Alert, a, r.Annotations[a], err)
			}
		}
		if !leads(t, r.Annotations["runbook"]) {
			t.Errorf("%s: the runbook line leads nowhere: %q", r.Alert, r.Annotations["runbook"])
		}
		if !strings.Contains(manual, "\n| `"+r.Alert+"` | "+r.Labels["severity"]+" | ") {
			t.Errorf("%s (%s) has no line in the table of alerts of docs/alerts.md", r.Alert, r.Labels["severity"])
		}
	}
}

// parseAnnotation parses text as Prometheus does when an alert fires.
func parseAnnotation(text string) error {
	format := func(any) string { return "" }
	_, err := template.New("").
		Funcs(template.FuncMap{"humanize": format, "humanizePercentage": format, "humanizeDuration": format}).
		Parse(`{{$labels := .Labels}}{{$value := .Value}}` + text)
	return err
}

var (
	runbook = regexp.MustCompile(`^docs/(access|chain|engine|metrics|monitoring|nodes|operations|runbooks|sizing)\.md#([a-z-]+)(?: \((.+)\))?$`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// page is a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// leads reports whether a runbook line names a section of a page and, in brackets,
// how a paragraph of it begins.
func leads(t *testing.T, line string) bool {
	t.Helper()
	to := runbook.FindStringSubmatch(line)
	if to == nil {
		return false
	}
	manual := page(t, to[1])
	for _, at := range heading.FindAllStringSubmatchIndex(manual, -1) {
		title := manual[at[2]:at[3]]
		if strings.ReplaceAll(strings.ToLower(title), " ", "-") != to[2] {
			continue
		}
		section, _, _ := strings.Cut(manual[at[1]:], "\n## ")
		return to[3] == "" || strings.Contains(section, "\n**"+to[3])
	}
	return false
}
