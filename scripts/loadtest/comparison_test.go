package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
)

// sample is a run that answered something.
func sampleRun(perSecond, p99 float64) *result.Run {
	return &result.Run{PerSecond: perSecond, Acknowledged: 100, LatencyMs: result.Latency{Count: 100, P99: p99}}
}

func compareRuns(t *testing.T, runs ...*result.Run) *comparison {
	t.Helper()
	c := &comparison{Title: "two"}
	for i, run := range runs {
		side := []string{"A", "B"}[i%2]
		if done := c.add(run, nil, side, side, report.Criteria{}); done != run.Interrupted {
			t.Errorf("run %d is the last: %v", i, done)
		}
	}
	return c
}

func TestARatioIsThatOfEachRoundAndTheirMedian(t *testing.T) {
	c := compareRuns(t, sampleRun(10, 4), sampleRun(20, 2), sampleRun(10, 4), sampleRun(40, 1), sampleRun(10, 1), sampleRun(30, 1))
	got := c.ratio("throughput", "B", "A", func(r *result.Run) float64 { return r.PerSecond })
	if !slices.Equal(got.Rounds, []float64{2, 4, 3}) || got.Median != 3 {
		t.Errorf("%+v, want 2, 4, 3 and the median 3", got)
	}
	if got := c.ratio("p99", "B", "A", p99Of); got.Median != 0.5 || got.String() != "0.50 (0.25 … 1.00)" {
		t.Errorf("%+v, %s; want 0.5", got, got)
	}
}

func TestARoundThatSaysNothingIsLeftOut(t *testing.T) {
	cut := sampleRun(10, 1)
	cut.Interrupted = true
	c := compareRuns(t, sampleRun(0, 0), sampleRun(20, 2), sampleRun(10, 1), sampleRun(30, 1), sampleRun(10, 1), cut)
	got := c.ratio("throughput", "B", "A", func(r *result.Run) float64 { return r.PerSecond })
	if !slices.Equal(got.Rounds, []float64{3}) {
		t.Errorf("%+v, want the one of the second round", got)
	}
}

func TestARatioIsJudgedByItsMedian(t *testing.T) {
	for _, test := range []struct {
		want   string
		limit  float64
		rounds []float64
		passed bool
	}{
		{"at most", 1.2, []float64{1.1, 5, 1}, true},
		{"at most", 1.2, []float64{1.1, 5, 1.3}, false},
		{"at least", 1, []float64{0.5, 1}, false},
		{"at least", 1, []float64{1}, true},
		{"at most", 1.2, nil, false},
		{"at least", 0.1, nil, false},
	} {
		c := compareRuns(t, sampleRun(1, 1))
		c.judge(ratio{Name: "x", Rounds: test.rounds, Median: rounds.Median(test.rounds)}, test.want, test.limit)
		if got := c.Verdicts[0].Passed; got != test.passed || c.failed() == test.passed {
			t.Errorf("%v %s %v: %v, want %v", test.rounds, test.want, test.limit, got, test.passed)
		}
	}
}

func TestAComparisonPassesOnlyWhenEachRunDoes(t *testing.T) {
	if got := (&comparison{}).outcome(); got != "failed" {
		t.Errorf("one without runs has %s", got)
	}
	of := func(runs ...*result.Run) string {
		c := compareRuns(t, runs...)
		c.Verdicts = []result.Verdict{{Passed: true}}
		return c.outcome()
	}
	if got := of(sampleRun(1, 1), sampleRun(1, 1)); got != "passed" {
		t.Errorf("two runs that passed have %s", got)
	}
	if got := of(sampleRun(1, 1), &result.Run{}); got != "failed" {
		t.Errorf("one with an empty run has %s", got)
	}
}

func TestAComparisonWithoutACriterionIsNotJudged(t *testing.T) {
	c := compareRuns(t, sampleRun(1, 1), sampleRun(1, 1))
	if got := c.outcome(); got != "not judged: no criterion on the ratios was given" || c.failed() {
		t.Errorf("%s, failed %v", got, c.failed())
	}
	c.interrupted = true
	c.judge(ratio{Name: "x"}, "at most", 1)
	if got := c.outcome(); got != "not judged: interrupted" || c.failed() {
		t.Errorf("interrupted before there was a round: %s, failed %v", got, c.failed())
	}
}

func TestThePageOfAComparisonBeginsWithWhatCameOfIt(t *testing.T) {
	without, with := sampleRun(10, 2), sampleRun(10, 3)
	with.Slow = &result.Slow{Clients: 7, Behaviour: "stop", Kicked: 2, Reconnects: 5}
	with.Nodes = []result.Node{{Metrics: "http://m", Stages: []result.Stage{{Name: "commitMs"}}, Counters: map[string]float64{
		`noncegate_kicked_total{reason="slow"}`: 4, `noncegate_kicked_total{reason="write_timeout"}`: 9, `noncegate_dropped_total{reason="slow"}`: 8013,
	}}}
	c := compareRuns(t, without, with)
	c.Missed = map[string]int64{"B": 41}
	c.judge(c.ratio("healthy p99", "B", "A", p99Of), "at most", 1.2)
	page := filepath.Join(t.TempDir(), "slow.html")
	out, err := (&reportFlags{HTML: page}).open(&program{stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if err := out.write(c.forms()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	top, _, _ := strings.Cut(string(text), "The runs side by side")
	for _, want := range []string{
		`<p class="outcome fail">failed`, "healthy p99, median of the rounds", "at most 1.20", "<td>1.50</td>",
		"<td>7 (stop)</td><td>2</td><td>13</td><td>5</td><td>8013</td><td>41</td>",
	} {
		if !strings.Contains(top, want) {
			t.Errorf("the top does not have %s", want)
		}
	}
}

func TestTheTextOfAComparisonSaysWhatWasDoneToWhom(t *testing.T) {
	run := sampleRun(10, 1)
	run.Refused = map[string]int64{"server_busy": 3}
	run.Slow = &result.Slow{Clients: 7, Behaviour: "stop", Kicked: 2, Ended: map[string]int64{"reset": 5}}
	run.Nodes = []result.Node{{
		Metrics: "http://m", Counters: map[string]float64{`noncegate_kicked_total{reason="slow"}`: 4, "go_gc_total": 9, "noncegate_holds_expired_total": 50},
		Memory: []result.Point{{At: 0, Value: 10 << 20}, {At: 1, Value: 30 << 20}},
	}}
	c := compareRuns(t, run)
	c.Missed = map[string]int64{"A": 41}
	var text strings.Builder
	if err := c.text(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"server_busy 3", "7 slow clients (stop): 2 saw close 4001", "41 events missed", "reset 5",
		`kicked_total{reason="slow"} 4`, "10 MiB at first, 30 at last", "FAIL     A: refused and failed together",
		"A: note: 50 holds expired meanwhile",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "go_gc_total") {
		t.Error("it shows a counter that has nothing to do with it")
	}
}
