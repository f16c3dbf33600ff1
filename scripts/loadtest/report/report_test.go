package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/expect"
)

var strict = Criteria{MinAcknowledged: 100, MaxE2EP99: 50 * time.Millisecond, Growth: true}

// good is a run that meets strict.
func good() *result.Run {
	stage := result.Stage{Name: "commitMs", Count: 5, P95: 2, Second: []result.Point{{At: 1, Value: 2}, {At: 2, Value: 3}},
		Growth: result.Growth{Why: "flat"}}
	return &result.Run{
		Command: "run", Targets: []string{"ws://h/ws"}, Seconds: 2, Acknowledged: 1000, PerSecond: 500, Opened: 10,
		LatencyMs: result.Latency{Count: 1000, P50: 1, P99: 40},
		Methods:   map[string]result.Method{"allocate": {LatencyMs: result.Latency{Count: 1000, P50: 1}}},
		Timeline:  []result.Second{{At: 0, Seconds: 1, Acknowledged: 500, P99: 40}, {At: 1, Seconds: 1, Acknowledged: 500, P99: 30}},
		Nodes: []result.Node{{Metrics: "http://h/metrics", Stages: []result.Stage{stage}, Memory: []result.Point{{At: 1, Value: 1 << 20}},
			Counters: map[string]float64{`noncegate_rejected_total{stage="worker"}`: 3}}},
	}
}

func TestEachCriterionFailsTheRunThatMissesIt(t *testing.T) {
	for want, change := range map[string]func(*result.Run){
		"":                                      func(*result.Run) {},
		"acknowledged requests":                 func(r *result.Run) { r.Acknowledged = 99; r.LatencyMs.Count = 99 },
		"refused and failed together":           func(r *result.Run) { r.Refused = map[string]int64{"server_busy": 1} },
		"refused and failed together: 0.0999 %": func(r *result.Run) { r.Failed = 1 },
		"(1 of 1,001)":                          func(r *result.Run) { r.Unsent = 1 },
		"E2E p99 (request due to its reply)":    func(r *result.Run) { r.LatencyMs.P99 = 51 },
		"no event reached a subscriber":         func(r *result.Run) { r.Events = new(result.Events) },
		"connections lost":                      func(r *result.Run) { r.Lost = map[string]int64{"reset": 1} },
		"answers against the rules":             func(r *result.Run) { r.Verify = &result.Verify{Calls: 5, ViolationCount: 1} },
		"not everything could be looked at":     func(r *result.Run) { r.Verify = &result.Verify{Calls: 5, Incomplete: "away"} },
		"0 in 0 calls":                          func(r *result.Run) { r.Verify = new(result.Verify) },
		"growth of commitMs: up":                func(r *result.Run) { r.Nodes[0].Stages[0].Growth = result.Growth{Grows: true, Why: "up"} },
		"no /metrics was asked (--metrics)":     func(r *result.Run) { r.Nodes = nil },
		"b could not be read": func(r *result.Run) {
			r.Nodes = append(r.Nodes, result.Node{Metrics: "b", Missing: "could not be read"})
		},
		"b says nothing of its stages": func(r *result.Run) { r.Nodes = append(r.Nodes, result.Node{Metrics: "b"}) },
	} {
		run := good()
		change(run)
		Judge(run, strict)
		failed := ""
		for _, line := range verdicts("", run.Verdicts) {
			if strings.HasPrefix(line, "FAIL") {
				failed += line + "\n"
			}
		}
		if run.Passed != (want == "") || !strings.Contains(failed, want) || strings.Count(failed, "\n") > 1 {
			t.Errorf("%q: passed %v, %s", want, run.Passed, failed)
		}
	}
}

func TestWhatIsToleratedIsToleratedAndWhatIsUnknownIsSaidToBeSo(t *testing.T) {
	run := good()
	run.Refused, run.Lost = map[string]int64{"server_busy": 50}, map[string]int64{"reset": 2}
	run.Nodes[0].Stages[0].Growth = result.Growth{Unknown: true, Why: "too short"}
	run.Nodes[0].Counters["noncegate_holds_expired_total"] = 11
	Judge(run, Criteria{MaxFailedShare: 0.05, MaxLost: 2, Growth: true})
	var text bytes.Buffer
	if err := Of(run).Text(&text); err != nil || !run.Passed || !strings.Contains(text.String(), "\nunknown growth of commitMs: too short") {
		t.Errorf("%v: %s", err, text.String())
	}
	if len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "11 holds expired") {
		t.Errorf("notes %q, want that holds expired", run.Notes)
	}
	if Judge(run, Criteria{MaxFailedShare: -1, MaxLost: -1}); len(run.Verdicts) != 1 {
		t.Errorf("judged by %v, want by what was acknowledged alone", run.Verdicts)
	}
}

func TestTheReportsShowEveryPartAndObeyNothing(t *testing.T) {
	run := good()
	run.Name, run.Targets = "a, round 1", []string{"ws://h/<script>alert(1)</script>\x1b[2J"}
	run.Lost = map[string]int64{"<b>bold</b>": 3}
	run.Events = &result.Events{Received: 7, LatencyMs: result.Latency{Count: 7, P99: 2}}
	run.Slow = &result.Slow{Clients: 2, Behaviour: "stop", Kicked: 1}
	run.Restart = &result.Restart{Gateways: []result.Restarted{{Gateway: "ws://h/ws", Wrong: "was killed"}}}
	Judge(run, strict)
	var text, page, both, bothPage bytes.Buffer
	c := &result.Comparison{Title: "A: a; B: b", Runs: []*result.Run{run}, Ratios: []result.Ratio{{Name: "p99, B over A",
		Rounds: []float64{0.5}, Median: 0.5}}, Outcome: "FAIL"}
	for _, err := range []error{Of(run).Text(&text), Of(run).HTML(&page), OfComparison(c).Text(&both), OfComparison(c).HTML(&bothPage)} {
		expect.Must(t, err)
	}
	for _, want := range []string{"acknowledged", "500/s", "commitMs", "events at subscribers", "was killed", "noncegate_rejected_total",
		"FAIL", "1.0 MiB", "stop", "allocate"} {
		if !strings.Contains(text.String(), want) || !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in both\n%s", want, text.String())
		}
	}
	for _, want := range []string{"p99, B over A", "0.50", "a, round 1"} {
		if !strings.Contains(both.String(), want) || !strings.Contains(bothPage.String(), want) {
			t.Errorf("%q is not in both\n%s", want, both.String())
		}
	}
	if strings.ContainsRune(text.String(), '\x1b') || strings.Contains(page.String(), "<script") || strings.Contains(page.String(), "<b>") {
		t.Error("something from outside is obeyed")
	}
	if n := strings.Count(page.String(), "<svg"); n != 4 || strings.Contains(page.String(), "src=") ||
		strings.Contains(page.String(), "href=") {
		t.Errorf("%d plots, want four, and nothing of the internet", n)
	}
}

func TestAnEmptyRunIsShownToo(t *testing.T) {
	run := new(result.Run)
	Judge(run, Criteria{})
	var out bytes.Buffer
	if err := Of(run).HTML(&out); err != nil || run.Passed || strings.Contains(out.String(), "<svg") || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v: %s", err, out.String())
	}
}
