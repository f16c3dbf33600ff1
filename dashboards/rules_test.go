//go:build unix

package dashboards

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"noncegate/test/lab/expect"
)

type rule struct {
	Record, Alert, Expr string
	For                 time.Duration
	Labels, Annotations map[string]string
}

// decode reads a file of which promtool says whether its fields are right.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	expect.Must(t, err)
	expect.Must(t, yaml.Unmarshal(text, into))
}

// rules returns the rules of all groups, in order.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
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

// TestPromtoolAcceptsTheRulesTheirTestsAndThePanels: that an annotation can be written when an
// alert fires is promtool's to say, too.
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
	fires, silentBefore, silentBeside := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, group := range file.Tests {
		for _, s := range group.InputSeries {
			silentBeside[group.Name] = silentBeside[group.Name] || strings.Contains(s.Series, `instance="good"`)
		}
		for _, ask := range group.PromqlExprTest {
			if want := `count by (instance) (ALERTS{alertname="` + group.Name + `", alertstate="firing"})`; ask.Expr != want {
				t.Errorf("%s asks for %s, want %s", group.Name, ask.Expr, want)
			}
			fires[group.Name] = fires[group.Name] || len(ask.ExpSamples) > 0
			silentBefore[group.Name] = silentBefore[group.Name] || len(ask.ExpSamples) == 0
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
	for _, r := range alerts(t) {
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

var (
	runbook = regexp.MustCompile(`^docs/([a-z]+)\.md#([a-z-]+)(?: \((.+)\))?$`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// page is a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + name + ".md")
	expect.Must(t, err)
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
