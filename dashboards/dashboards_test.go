// Package dashboards_test holds the dashboard and the Prometheus rules of this
// folder against a real gateway: whatever they ask for must be among what it
// exposes. It does not evaluate PromQL, and starts no Prometheus and no Grafana.
package dashboards_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

// datasource is the variable that every panel and query reads from.
const datasource = "${datasource}"

type source struct{ Type, UID string }

// dashboard is the part of Grafana's classic model that is looked at.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr string
		Datasource  source
	}
}

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

func overview(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("overview.json")
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// rules returns the rules of all groups, in order. An unknown key fails the test.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestEveryExpressionAsksForWhatTheGatewayExposes(t *testing.T) {
	ws, metrics := gateway(t)
	converse(t, ws)
	exposed := scrape(t, metrics)
	check := func(where, expr string, recorded map[string]bool) {
		for _, c := range exposed.complaints(expr, recorded) {
			t.Errorf("%s: %s\n%s", where, c, expr)
		}
	}

	d := overview(t)
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			check(p.Title, q.Expr, nil)
		}
	}
	for _, v := range d.Templating.List {
		if values := labelValues.FindStringSubmatch(v.Definition); values != nil {
			check("variable "+v.Name, values[1], nil)
		}
	}
	recorded := make(map[string]bool)
	for _, r := range rules(t) {
		check(r.name(), r.Expr, recorded)
		if r.Record != "" {
			recorded[r.Record] = true
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((\w+), instance\)$`)

func TestEachPanelSaysWhatItShows(t *testing.T) {
	d := overview(t)
	if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
		t.Errorf("a dashboard %q, %q with %d panels", d.UID, d.Title, len(d.Panels))
	}
	ids := make(map[int]string)
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice || p.ID == 0 {
			t.Errorf("%q has the id %d, as has %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if p.Title == "" {
			t.Errorf("panel %d has no title", p.ID)
		}
		if p.Type != "row" {
			p.check(t)
		}
	}
}

// check looks at what a panel has and a row has not.
func (p panel) check(t *testing.T) {
	t.Helper()
	want := source{"prometheus", datasource}
	if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource != want || len(p.Targets) == 0 {
		t.Errorf("%q: description %q, unit %q, datasource %v, %d queries",
			p.Title, p.Description, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
	}
	refs := make(map[string]bool)
	for _, q := range p.Targets {
		if refs[q.RefID] || q.RefID == "" || q.Datasource != want {
			t.Errorf("%q: query %q on %v", p.Title, q.RefID, q.Datasource)
		}
		refs[q.RefID] = true
	}
}

func TestTheVariablesThatPanelsUseAreThere(t *testing.T) {
	d := overview(t)
	have := []string{"__rate_interval"} // Grafana's own
	for _, v := range d.Templating.List {
		have = append(have, v.Name)
		if v.Name == "datasource" && v.Type != "datasource" {
			t.Errorf("the variable datasource is of type %q", v.Type)
		}
	}
	used := regexp.MustCompile(`\$\{?(\w+)`)
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			for _, v := range used.FindAllStringSubmatch(q.Expr+q.Datasource.UID, -1) {
				if !slices.Contains(have, v[1]) {
					t.Errorf("%q uses $%s", p.Title, v[1])
				}
			}
		}
	}
}

func TestEachAlertSaysWhatIsWrongAndWhereToRead(t *testing.T) {
	manual, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, r := range rules(t) {
		if (r.Record == "") == (r.Alert == "") || seen[r.name()] {
			t.Errorf("%q: one of record and alert, and once", r.name())
		}
		seen[r.name()] = true
		if r.Alert == "" {
			continue
		}
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, s) {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		for _, a := range []string{"summary", "description", "runbook"} {
			if err := parseAnnotation(r.Annotations[a]); r.Annotations[a] == "" || err != nil {
				t.Errorf("%s: %s %q: %v", r.Alert, a, r.Annotations[a], err)
			}
		}
		if !leads(r.Annotations["runbook"], string(manual)) {
			t.Errorf("%s: the runbook line leads nowhere: %q", r.Alert, r.Annotations["runbook"])
		}
	}
}

// parseAnnotation parses text as Prometheus does when an alert fires.
func parseAnnotation(text string) error {
	format := func(any) string { return "" }
	_, err := template.New("").
		Funcs(template.FuncMap{"humanizePercentage": format, "humanizeDuration": format}).
		Parse(`{{$labels := .Labels}}{{$value := .Value}}` + text)
	return err
}

var (
	runbook = regexp.MustCompile(`^docs/operations\.md#([a-z-]+)(?: \((.+)\))?$`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// leads reports whether a runbook line names a section of the manual and, in
// brackets, how a paragraph of it begins.
func leads(line, manual string) bool {
	to := runbook.FindStringSubmatch(line)
	if to == nil {
		return false
	}
	for _, at := range heading.FindAllStringSubmatchIndex(manual, -1) {
		title := manual[at[2]:at[3]]
		if strings.ReplaceAll(strings.ToLower(title), " ", "-") != to[1] {
			continue
		}
		section, _, _ := strings.Cut(manual[at[1]:], "\n## ")
		return to[2] == "" || strings.Contains(section, "\n**"+to[2])
	}
	return false
}
