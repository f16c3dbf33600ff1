//go:build unix

package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRowHasANameAndOneTargetAndASideIsTheSameInAllOfAScene(t *testing.T) {
	names, sides := map[string]bool{}, map[string]string{}
	for _, r := range rows {
		if names[r.Name] || (r.AtLeast > 0) == (r.AtMost > 0) || len(r.sides) == 0 || r.figure.Of == nil {
			t.Errorf("%s: a second one, or at least %v, at most %v", r.Name, r.AtLeast, r.AtMost)
		}
		names[r.Name] = true
		for _, s := range r.sides {
			key, is := r.Scene+" "+cmp.Or(s.name, s.server), fmt.Sprint(r.times, r.once, s.server, s.nodes, s.full, s.load)
			if was, found := sides[key]; found && was != is {
				t.Errorf("%s: %s, and in another row %s", key, is, was)
			}
			sides[key] = is
		}
	}
}

func TestRowsAreChosenByNameWithTheSidesTheyNeed(t *testing.T) {
	chosen, err := chooseRows([]string{"echo", "sqlite", "soak"})
	if err != nil || len(chosen) != 3 {
		t.Fatalf("%v, %v", chosen, err)
	}
	needed := scenesOf(chosen)
	var sides []string
	for _, s := range needed[0].Sides {
		sides = append(sides, s.Name)
	}
	if len(needed) != 2 || strings.Join(sides, " ") != "gateway echo gateway-sqlite" {
		t.Errorf("%d scenes, the first with %v", len(needed), sides)
	}
	if usual, _ := chooseRows(nil); len(usual) != len(rows)-2 {
		t.Errorf("%d rows by default, want all but the two that take long", len(usual))
	}
}

func TestAWrongConfigNamesItsFlag(t *testing.T) {
	right := Config{Rounds: 1, Duration: time.Second, Soak: time.Minute, Progress: io.Discard}
	for flag, change := range map[string]func(*Config){
		"--rows":                func(c *Config) { c.Rows = []string{"fast"} },
		"--rounds":              func(c *Config) { c.Rounds = 0 },
		"--warmup and --idle":   func(c *Config) { c.Idle = time.Hour },
		"--duration and --soak": func(c *Config) { c.Duration = 0 },
		"--warmup":              func(c *Config) { c.Duration = 40 * time.Second },
	} {
		c := right
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// measured is a scene with the p99 of each round of two sides; 0 is a void one.
func measured(over, under []float64) *Scene {
	s := &Scene{Name: "s", Sides: []*Side{{Name: "over"}, {Name: "under"}}}
	for i, values := range [][]float64{over, under} {
		for _, v := range values {
			run := &result.Run{PerSecond: 1000, LatencyMs: result.Latency{P99: v}, BytesPerConnection: 2048}
			if v == 0 {
				run.Void = "it did not start"
			}
			s.Sides[i].Runs = append(s.Sides[i].Runs, run)
		}
	}
	return s
}

// ratio is a row of what measured makes.
var ratio = Row{Name: "r", What: "a ratio", Scene: "s", figure: p99, AtMost: 2, sides: []side{{name: "over"}, {name: "under"}}}

func TestARowIsJudgedByTheMedianOfItsRounds(t *testing.T) {
	alone := Row{Name: "a", What: "memory", Scene: "s", figure: perConnection, AtLeast: 2048, sides: []side{{name: "over"}}}
	for _, test := range []struct {
		row         Row
		over, under []float64
		verdict     string
		median      float64
	}{
		{ratio, []float64{2, 8, 3}, []float64{2, 2, 2}, Met, 1.5},
		{ratio, []float64{5, 8, 3}, []float64{2, 2, 2}, Missed, 2.5},
		{ratio, []float64{5, 0, 3}, []float64{2, 2, 2}, Void, 2},
		{ratio, []float64{5, 4}, []float64{2, 0}, Void, 2.5},
		{ratio, []float64{5, 4}, []float64{2}, Missed, 2.5}, // interrupted amid a round
		{ratio, nil, nil, Void, 0},
		{alone, []float64{1}, nil, Met, 2048},
	} {
		test.row.measured = measured(test.over, test.under).Sides[:len(test.row.sides)]
		got := test.row.judge()
		if got.Verdict != test.verdict || got.Median != test.median || (got.Verdict == Void) != (got.Void != "") {
			t.Errorf("%v ÷ %v: %+v, want %s, %v", test.over, test.under, got, test.verdict, test.median)
		}
	}
}

func TestTheReportShowsRowsAndSides(t *testing.T) {
	scene, row := measured([]float64{5, 3}, []float64{2, 2}), ratio
	row.measured = scene.Sides
	r := &Report{Settings: "2 rounds", Scenes: []*Scene{scene}, Rows: []Outcome{row.judge()}}
	var text bytes.Buffer
	expect.Must(t, r.WriteMarkdown(&text))
	machine, err := json.Marshal(r)
	for _, want := range []string{"at most 2.00", "2.00 (1.50 … 2.50)", "met", "4.00 ms ÷ 2.00 ms", "1,000/s"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if _, void := r.IsVoid(); err != nil || void || !strings.Contains(string(machine), `"verdict":"met"`) ||
		!strings.Contains(string(machine), `"perSecond":1000`) {
		t.Error(string(machine), err)
	}
}

func TestARunThatMissedSomethingIsVoid(t *testing.T) {
	for name, r := range map[string]*result.Run{
		"nothing was acknowledged": {},
		"refused: server_busy 2":   {Acknowledged: 98, Refused: map[string]int64{"server_busy": 2}},
		"connections lost":         {Acknowledged: 98, Lost: map[string]int64{"reset": 1}},
		"1 requests unanswered":    {Acknowledged: 98, Failed: 1},
		"1 never sent":             {Acknowledged: 98, Unsent: 1},
	} {
		if lookAt(r, 0.01); !strings.Contains(r.Void, name) {
			t.Errorf("%s: %q", name, r.Void)
		}
	}
	r := &result.Run{Acknowledged: 99, Refused: map[string]int64{"server_busy": 1}}
	if lookAt(r, 0.01); r.Void != "" || len(r.Notes) != 1 {
		t.Errorf("%+v, want a note of what may be refused", r)
	}
}

func TestASoakFailsByWhatGrowsAndIsVoidWhenItIsTooShort(t *testing.T) {
	for _, test := range []struct {
		void   string // of the run
		stage  result.Growth
		dead   result.Growth
		failed string
		short  bool
	}{
		{},
		{stage: result.Growth{Grows: true}, failed: "growth of commitMs"},
		{dead: result.Growth{Grows: true}, failed: "dead rows: from"},
		{void: "3 refused", failed: "requests: 3 refused"},
		{stage: result.Growth{Unknown: true}, short: true},
		{dead: result.Growth{Unknown: true}, short: true},
	} {
		run := &result.Run{Void: test.void, Acknowledged: 5000, Nodes: []result.Node{{Stages: []result.Stage{{Name: "commitMs",
			Growth: test.stage}}}}}
		judgeSoak(run, test.dead)
		notes := strings.Join(run.Notes, "; ")
		if (passes(run) > 0) != (test.failed == "") || !strings.HasPrefix(notes, test.failed) || (run.Void != "") != test.short {
			t.Errorf("%+v: %q, void %q", test, notes, run.Void)
		}
	}
}

// TestLongEverySceneIsMeasured: with loads that any machine carries. What they find is not judged.
func TestLongEverySceneIsMeasured(t *testing.T) {
	usual, signers := rows, fullSigners
	t.Cleanup(func() { rows, fullSigners = usual, signers })
	fullSigners, rows = 1000, slices.Clone(rows)
	for i := range rows {
		rows[i].sides = slices.Clone(rows[i].sides)
		for j := range rows[i].sides {
			l := &rows[i].sides[j].load
			l.Connections, l.Inflight, l.Rate, l.Signers.Count = 10, 2, min(l.Rate, 100), min(l.Signers.Count, 100)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := Run(ctx, Config{Rows: []string{"all"}, Rounds: 1, Duration: 500 * time.Millisecond, Soak: 14 * time.Second,
		Progress: io.Discard})
	expect.Must(t, err)
	if why, void := r.IsVoid(); void || len(r.Rows) != len(rows) || r.Interrupted {
		t.Errorf("%d rows, void: %s", len(r.Rows), why)
	}
}
