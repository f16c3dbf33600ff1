package main

import (
	"slices"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/report"
	"noncegate/scripts/loadtest/result"
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
		c.judge(ratio{Name: "x", Rounds: test.rounds, Median: median(test.rounds)}, test.want, test.limit)
		if got := c.Verdicts[0].Passed; got != test.passed || c.passed() != test.passed {
			t.Errorf("%v %s %v: %v, want %v", test.rounds, test.want, test.limit, got, test.passed)
		}
	}
}

func TestAComparisonPassesOnlyWhenEachRunDoes(t *testing.T) {
	if (&comparison{}).passed() {
		t.Error("one without runs has passed")
	}
	if c := compareRuns(t, sampleRun(1, 1), sampleRun(1, 1)); !c.passed() {
		t.Errorf("%+v has failed", c.Runs[0].Verdicts)
	}
	if c := compareRuns(t, sampleRun(1, 1), &result.Run{}); c.passed() {
		t.Error("one with an empty run has passed")
	}
}

func TestTheTextOfAComparisonSaysWhatWasDoneToWhom(t *testing.T) {
	run := sampleRun(10, 1)
	run.Refused = map[string]int64{"server_busy": 3}
	run.Slow = &result.Slow{Clients: 7, Behaviour: "stop", Kicked: 2, Ended: map[string]int64{"reset": 5}}
	run.Nodes = []result.Node{{
		Metrics: "http://m", Counters: map[string]float64{`noncegate_kicked_total{reason="slow"}`: 4, "go_gc_total": 9},
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
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "go_gc_total") {
		t.Error("it shows a counter that has nothing to do with it")
	}
}
