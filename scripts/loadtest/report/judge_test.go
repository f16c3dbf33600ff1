package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

func good() *result.Run {
	return &result.Run{
		Acknowledged: 1000, PerSecond: 100, Seconds: 10, Opened: 10,
		LatencyMs: result.Latency{Count: 1000, P99: 5},
		Verify:    &result.Verify{Allocations: 1000},
		Nodes:     []result.Node{{Metrics: "a", Stages: []result.Stage{{Name: "commitMs"}, {Name: "writeQueueMs"}}}},
	}
}

var strict = Criteria{MinAcknowledged: 1000, MaxE2EP99: 5 * time.Millisecond, Growth: true}

func verdict(t *testing.T, run *result.Run, name string) result.Verdict {
	t.Helper()
	for _, v := range run.Verdicts {
		if strings.HasPrefix(v.Name, name) {
			return v
		}
	}
	t.Fatalf("no verdict %q among %+v", name, run.Verdicts)
	return result.Verdict{}
}

func TestARunThatMeetsEveryCriterionPasses(t *testing.T) {
	run := good()
	Judge(run, strict)
	var names []string
	for _, v := range run.Verdicts {
		names = append(names, v.Name)
		if !v.Passed || v.Unknown || v.Want == "" || v.Got == "" {
			t.Errorf("%+v, want that it passed, with what was wanted and got", v)
		}
	}
	want := "acknowledged requests; refused and failed together; E2E p99 (request due to its reply); connections lost; " +
		"answers against the rules; growth of commitMs; growth of writeQueueMs"
	if got := strings.Join(names, "; "); got != want || !run.Passed() {
		t.Errorf("verdicts %q, want %q", got, want)
	}
	Judge(run, strict)
	if len(run.Verdicts) != len(names) {
		t.Errorf("judged twice: %d verdicts, want %d", len(run.Verdicts), len(names))
	}
}

func TestEachCriterionFailsTheRunThatDoesNotMeetIt(t *testing.T) {
	for _, c := range []struct {
		name, verdict, got string
		spoil              func(*result.Run)
	}{
		{"one too few", "acknowledged", "999", func(r *result.Run) { r.Acknowledged = 999 }},
		{"one refused", "refused", "0.1 % (1 of 1,001)", func(r *result.Run) { r.Refused = map[string]int64{"server_busy": 1} }},
		{"one failed", "refused", "0.1 % (1 of 1,001)", func(r *result.Run) { r.Failed = 1 }},
		{"one never sent", "refused", "0.1 % (1 of 1,001)", func(r *result.Run) { r.Unsent = 1 }},
		{"a p99 above", "E2E p99", "5.10 ms", func(r *result.Run) { r.LatencyMs.P99 = 5.1 }},
		{"a p99 of nothing", "E2E p99", "nothing was acknowledged", func(r *result.Run) { r.LatencyMs = result.Latency{} }},
		{"a p99 that is no number", "E2E p99", "– ms", func(r *result.Run) { r.LatencyMs.P99 = math.NaN() }},
		{"a late event", "E2E p99", "6.00 ms", func(r *result.Run) {
			r.Events = &result.Events{LatencyMs: result.Latency{Count: 1, P99: 6}}
		}},
		{"no event for the subscribers", "E2E p99", "no event reached a subscriber", func(r *result.Run) { r.Load.Subscribers = 3 }},
		{"a lost connection", "connections lost", "1 of 10", func(r *result.Run) { r.Lost = map[string]int64{"reset": 1} }},
		{"a violation", "answers", "1 in 1,000 hand-outs", func(r *result.Run) { r.Verify.ViolationCount = 1 }},
		{"a queue that grows", "growth of writeQueueMs", "grows: and how", func(r *result.Run) {
			r.Nodes[0].Stages[1].Growth = result.Growth{Grows: true, Why: "and how"}
		}},
		{"a queue that grows at one of two", "growth of commitMs", "grows: b: and how", func(r *result.Run) {
			r.Nodes = append(r.Nodes, result.Node{Metrics: "b", Stages: []result.Stage{
				{Name: "commitMs", Growth: result.Growth{Grows: true, Why: "and how"}}}})
		}},
	} {
		run := good()
		c.spoil(run)
		Judge(run, strict)
		if v := verdict(t, run, c.verdict); v.Passed || v.Got != c.got {
			t.Errorf("%s: passed %v, got %q; want false, %q", c.name, v.Passed, v.Got, c.got)
		}
		if failed := failed(run); len(failed) != 1 || run.Passed() {
			t.Errorf("%s: failed are %q, want this alone", c.name, failed)
		}
	}
}

func TestAnEmptyRunIsNeverASuccess(t *testing.T) {
	for name, c := range map[string]Criteria{
		"strict": {}, "as lax as can be": {MinAcknowledged: -5, MaxFailedShare: -1, MaxLost: -1}, "any share": {MaxFailedShare: 1},
	} {
		run := &result.Run{}
		Judge(run, c)
		if run.Passed() {
			t.Errorf("%s: an empty run passed: %+v", name, run.Verdicts)
		}
	}
	if !strings.Contains(outcome(&result.Run{}), "not judged") {
		t.Error("a run nobody judged is not said to be that")
	}
}

func TestWhatIsToleratedIsTolerated(t *testing.T) {
	run := good()
	run.Refused, run.Failed, run.Lost = map[string]int64{"server_busy": 40}, 10, map[string]int64{"reset": 2}
	Judge(run, Criteria{MaxFailedShare: 0.05, MaxLost: 2})
	if !run.Passed() {
		t.Errorf("just at the limits: %+v, want that it passed", run.Verdicts)
	}
	Judge(run, Criteria{MaxFailedShare: -1, MaxLost: -1})
	if len(run.Verdicts) != 2 { // acknowledged and verify
		t.Errorf("%+v, want no verdict on what is not judged", run.Verdicts)
	}
}

func TestARunWithoutFiguresOfAGatewayFailsWhereGrowthIsJudged(t *testing.T) {
	for _, c := range []struct {
		name, got string
		nodes     []result.Node
	}{
		{"nobody asked", "no /metrics was asked (--metrics)", nil},
		{"no answer", "a could not be read", []result.Node{{Metrics: "a", Missing: "could not be read"}}},
		{"one of two is silent", "b could not be read", []result.Node{
			{Metrics: "a", Stages: []result.Stage{{Name: "commitMs"}}}, {Metrics: "b", Missing: "could not be read"}}},
		{"another program", "a says nothing of its stages", []result.Node{{Metrics: "a"}}},
	} {
		run := good()
		run.Nodes = c.nodes
		Judge(run, strict)
		want := "not known: " + c.got + "; --no-growth-check leaves this out"
		if v := verdict(t, run, "growth of the queues"); run.Passed() || v.Passed || v.Got != want {
			t.Errorf("%s: %+v, want failed because %q", c.name, v, want)
		}
		lenient := strict
		lenient.Growth = false
		if Judge(run, lenient); !run.Passed() {
			t.Errorf("%s: %+v, want passed without the criterion", c.name, run.Verdicts)
		}
	}
}

func TestAShortRunDoesNotFailForGrowthThatItCannotShow(t *testing.T) {
	run := good()
	run.Nodes = []result.Node{{Metrics: "a", Stages: []result.Stage{{Name: "commitMs", Growth: result.Growth{Unknown: true, Why: "too short"}}}}}
	Judge(run, strict)
	if v := verdict(t, run, "growth of commitMs"); !v.Passed || !v.Unknown || v.Got != "too short" {
		t.Errorf("%+v, want unknown because it was too short", v)
	}
}

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
		var data strings.Builder
		if err := JSON(&data, run); err != nil {
			t.Fatal(err)
		}
		text := textOf(t, run)
		for kind, has := range map[string]bool{
			"text": strings.Contains(text, "\nnote    11 holds"), "HTML": bytes.Contains(pageOf(t, run), []byte("Note: 11 holds")),
			"JSON": strings.Contains(data.String(), `"notes": [`),
		} {
			if has != (c.want != "") {
				t.Errorf("%s: a note in the %s: %v", c.name, kind, has)
			}
		}
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: no %q in\n%s", c.name, c.want, text)
		}
	}
}

func TestAGrowthThatIsNotKnownHasNoFigures(t *testing.T) {
	run := good()
	run.Nodes = []result.Node{{Metrics: "a", Stages: []result.Stage{
		{Name: "commitMs", Growth: result.Growth{Unknown: true}}, {Name: "writeQueueMs"},
	}}}
	page := string(pageOf(t, run))
	const unknown, zero = "<td>–</td><td>–</td><td>–</td><td>unknown</td>", "<td>0</td><td>0</td><td>0</td><td>no</td>"
	if !strings.Contains(page, unknown) || !strings.Contains(page, zero) {
		t.Error("the page does not tell what is not known from what is 0")
	}
	for row := range strings.Lines(textOf(t, run)) {
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
