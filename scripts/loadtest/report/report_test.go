package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

var update = flag.Bool("update", false, "write testdata anew; look at the difference before it is committed")

func judged() *result.Run {
	run := sample()
	Judge(run, Criteria{MinAcknowledged: 1000, MaxFailedShare: 0.05, MaxE2EP99: 50 * time.Millisecond, Growth: true})
	return run
}

func textOf(t *testing.T, run *result.Run) string {
	t.Helper()
	var out bytes.Buffer
	if err := Text(&out, run); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTheTextReportReadsAsItDid(t *testing.T) {
	out := textOf(t, judged())
	const golden = "testdata/run.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out != string(want) {
		t.Errorf("the report is\n%s\nwant\n%s\n(-update writes it anew)", out, want)
	}
}

func TestTheJSONReportReadsBackAsTheRunAndSaysWhetherItPassed(t *testing.T) {
	run := judged()
	var out bytes.Buffer
	if err := JSON(&out, run); err != nil {
		t.Fatal(err)
	}
	back := struct {
		result.Run
		Passed *bool `json:"passed"`
	}{}
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back.Run, *run) {
		t.Error("the run that was read is another than the one written")
	}
	if back.Passed == nil || *back.Passed {
		t.Errorf("passed is %v, want false", back.Passed)
	}
}

// unreal is a run with figures that are no numbers, everywhere.
func unreal() *result.Run {
	nan, inf := math.NaN(), math.Inf(1)
	latency := result.Latency{Count: 1, Mean: nan, P50: inf, P90: -inf, P95: nan, P99: nan, P999: inf, Max: inf}
	return &result.Run{
		Seconds: inf, PerSecond: nan, LatencyMs: latency,
		Load:     result.Load{Rate: inf, Mix: map[string]float64{"nonce_allocate": nan}, Duration: nan},
		Methods:  map[string]result.Method{"nonce_allocate": {LatencyMs: latency}},
		Events:   &result.Events{LatencyMs: latency},
		Timeline: []result.Second{{At: nan, P50: inf, P99: nan, Max: inf}, {At: 1, Acknowledged: 1, P50: inf}},
		Nodes: []result.Node{{
			Stages:   []result.Stage{{Name: "commitMs", P50: nan, Second: []result.Point{{At: inf, Value: nan}}, Growth: result.Growth{SlopePerMinute: inf}}},
			Counters: map[string]float64{"a_total": inf},
			Memory:   []result.Point{{At: nan, Value: inf}},
		}},
	}
}

func TestNoReportFailsOnARunThatIsEmptyOrHoldsWhatIsNoNumber(t *testing.T) {
	for name, make := range map[string]func() *result.Run{
		"empty": func() *result.Run { return new(result.Run) }, "unreal": unreal,
		"empty lists": func() *result.Run {
			return &result.Run{Events: &result.Events{}, Slow: &result.Slow{}, Verify: &result.Verify{}, Nodes: []result.Node{{}},
				Timeline: []result.Second{{}}, Methods: map[string]result.Method{"": {}}}
		},
	} {
		run := make()
		Judge(run, strict)
		if run.Passed() {
			t.Errorf("%s: it passed", name)
		}
		for kind, err := range map[string]error{
			"text": Text(new(bytes.Buffer), run), "JSON": JSON(new(bytes.Buffer), run), "HTML": HTML(new(bytes.Buffer), run),
			"comparison": Comparison(new(bytes.Buffer), "t", Summary{}, []*result.Run{run, run}),
		} {
			if err != nil {
				t.Errorf("%s as %s: %v", name, kind, err)
			}
		}
		out := textOf(t, run) + string(pageOf(t, run))
		for _, word := range []string{"NaN", "Inf", "ZgotmplZ", "%!"} {
			if strings.Contains(out, word) {
				t.Errorf("%s: %q is in the report", name, word)
			}
		}
	}
}

func TestAReportLeavesTheRunAsItWas(t *testing.T) {
	run := unreal()
	if err := JSON(new(bytes.Buffer), run); err != nil {
		t.Fatal(err)
	}
	if v := run.Nodes[0].Stages[0].Second[0].Value; !math.IsNaN(v) || !math.IsNaN(run.Events.LatencyMs.P99) {
		t.Errorf("the run's own figures were changed, one to %v", v)
	}
}

func TestATerminalIsGivenNoOrders(t *testing.T) {
	run := hostile("\x1b[2J\x9b31m\a\u202e\r")
	out := textOf(t, run)
	if i := strings.IndexAny(out, "\x1b\u009b\a\u202e\r"); i >= 0 {
		t.Errorf("the text holds %q", out[max(0, i-20):i+5])
	}
}

// hostile is a run in which everything that comes from outside is s.
func hostile(s string) *result.Run {
	run := sample()
	run.Name, run.Command, run.Targets = s, s, []string{s}
	run.Refused, run.Lost = map[string]int64{s: 1}, map[string]int64{s: 1}
	run.Slow = &result.Slow{Clients: 1, Behaviour: s, Ended: map[string]int64{s: 1}}
	run.Load.Mix, run.Load.Distribution = map[string]float64{s: 1}, s
	run.Methods = map[string]result.Method{s: run.Methods["nonce_status"]}
	run.Verify.Violations, run.Verify.ViolationCount = []string{s}, 1
	node := &run.Nodes[0]
	node.Metrics, node.Missing = s, s
	node.Counters = map[string]float64{"noncegate_" + s: 1, s: 2}
	node.Stages[0].Name, node.Stages[0].Growth.Why = s, s
	node.Stages[0].Growth.Grows = true
	Judge(run, strict)
	return run
}

// full takes a few bytes and then no more.
type full struct{ room int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.room {
		return f.room, errors.New("disk full")
	}
	f.room -= len(b)
	return len(b), nil
}

func TestAReportThatCannotBeWrittenIsAnError(t *testing.T) {
	run := judged()
	for kind, err := range map[string]error{
		"text": Text(&full{10}, run), "JSON": JSON(&full{10}, run), "HTML": HTML(&full{10}, run),
		"comparison":           Comparison(&full{10}, "t", Summary{}, []*result.Run{run}),
		"a comparison of none": Comparison(new(bytes.Buffer), "t", Summary{}, nil),
	} {
		if err == nil {
			t.Errorf("%s: no error", kind)
		}
	}
}
