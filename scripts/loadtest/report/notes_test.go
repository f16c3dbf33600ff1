package report

import (
	"bytes"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/result"
)

func TestHoldsThatExpireInNumbersAreANoteAndNoFailure(t *testing.T) {
	const name = "noncegate_holds_expired_total"
	for _, c := range []struct {
		name  string
		nodes []result.Node
		want  string
	}{
		{"none", nil, ""},
		{"as many as may be", []result.Node{{Counters: map[string]float64{name: 10, name + "_created": 99}}}, ""},
		{"at two gateways", []result.Node{{Counters: map[string]float64{name: 6}}, {Counters: map[string]float64{name + `{kind="a"}`: 5}}},
			"11 holds expired meanwhile, 1.1 % of the acknowledged requests"},
	} {
		run := good()
		run.Acknowledged, run.Nodes = 1000, c.nodes
		Judge(run, Criteria{})
		if !run.Passed() {
			t.Errorf("%s: %+v, want that it passed", c.name, run.Verdicts)
		}
		var text, page, data bytes.Buffer
		if err := Text(&text, run); err != nil {
			t.Fatal(err)
		}
		if err := HTML(&page, run); err != nil {
			t.Fatal(err)
		}
		if err := JSON(&data, run); err != nil {
			t.Fatal(err)
		}
		for kind, has := range map[string]bool{
			"text": strings.Contains(text.String(), "\nnote    11 holds"), "HTML": strings.Contains(page.String(), "Note: 11 holds"),
			"JSON": strings.Contains(data.String(), `"notes": [`),
		} {
			if has != (c.want != "") {
				t.Errorf("%s: a note in the %s: %v", c.name, kind, has)
			}
		}
		if !strings.Contains(text.String(), c.want) {
			t.Errorf("%s: no %q in\n%s", c.name, c.want, &text)
		}
	}
}

func TestAGrowthThatIsNotKnownHasNoFigures(t *testing.T) {
	run := good()
	run.Nodes = []result.Node{{Metrics: "a", Stages: []result.Stage{
		{Name: "commitMs", Growth: result.Growth{Unknown: true}}, {Name: "writeQueueMs"},
	}}}
	var text, page bytes.Buffer
	if err := Text(&text, run); err != nil {
		t.Fatal(err)
	}
	if err := HTML(&page, run); err != nil {
		t.Fatal(err)
	}
	const unknown, zero = "<td>–</td><td>–</td><td>–</td><td>unknown</td>", "<td>0</td><td>0</td><td>0</td><td>no</td>"
	if !strings.Contains(page.String(), unknown) || !strings.Contains(page.String(), zero) {
		t.Error("the page does not tell what is not known from what is 0")
	}
	for row := range strings.Lines(text.String()) {
		dashes := strings.Count(row, "–")
		if strings.HasPrefix(row, "commitMs") && dashes != 3 || strings.HasPrefix(row, "writeQueueMs") && dashes != 0 {
			t.Errorf("row %q", row)
		}
	}
}

func TestAVerificationThatCouldNotReadEverythingHasNotPassed(t *testing.T) {
	run := good()
	run.Verify = &result.Verify{Allocations: 5, Incomplete: "connection reset"}
	Judge(run, Criteria{})
	if v := verdict(t, run, "answers against the rules"); v.Passed || v.Got != "0 in 5 hand-outs; not everything could be read: connection reset" {
		t.Errorf("%+v, want that it failed, and why", v)
	}
}
