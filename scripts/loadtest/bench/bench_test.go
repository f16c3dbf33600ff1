//go:build unix

package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/scripts/loadtest/result"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryRowNamesAScenesSidesAndHasOneTarget(t *testing.T) {
	for i, r := range rows {
		at := slices.IndexFunc(scenes, func(s scene) bool { return s.name == r.Scene })
		if at < 0 {
			t.Errorf("%s is of no scene", r.Name)
			continue
		}
		has := func(name string) bool {
			return slices.ContainsFunc(scenes[at].sides, func(s side) bool { return s.name == name })
		}
		if !has(r.Over) || r.Under != "" && !has(r.Under) || (r.AtLeast > 0) == (r.AtMost > 0) || r.Figure.write(1) == "" {
			t.Errorf("%s: sides %q and %q, at least %v, at most %v", r.Name, r.Over, r.Under, r.AtLeast, r.AtMost)
		}
		if other := slices.IndexFunc(rows, func(o Row) bool { return o.Name == r.Name }); other != i {
			t.Errorf("two rows are called %s", r.Name)
		}
	}
	for _, s := range scenes {
		for _, side := range s.sides {
			if !slices.ContainsFunc(rows, func(r Row) bool { return r.Scene == s.name && (r.Over == side.name || r.Under == side.name) }) {
				t.Errorf("no row needs %s of %s", side.name, s.name)
			}
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
	for _, s := range needed[0].sides {
		sides = append(sides, s.name)
	}
	if len(needed) != 2 || strings.Join(sides, " ") != "echo gateway gateway-sqlite" {
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
		_, err := Run(t.Context(), c)
		if !errors.Is(err, ErrConfig) || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// measured is a scene with the p99 of each round of two sides; 0 is a void one.
func measured(over, under []float64) []Scene {
	s := Scene{Name: "s", Sides: []Side{{Name: "over"}, {Name: "under"}}}
	for i, values := range [][]float64{over, under} {
		for _, v := range values {
			sample := Sample{Figures: map[Figure]float64{perSecond: 1000, p99: v, perConnection: 2048}}
			if v == 0 {
				sample.Void = "it did not start"
			}
			s.Sides[i].Samples = append(s.Sides[i].Samples, sample)
		}
	}
	return []Scene{s}
}

func TestARowIsJudgedByTheMedianOfItsRounds(t *testing.T) {
	ratio := Row{Name: "r", What: "a ratio", Scene: "s", Over: "over", Under: "under", Figure: p99, AtMost: 2}
	alone := Row{Name: "a", What: "memory", Scene: "s", Over: "over", Figure: perConnection, AtLeast: 2048}
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
		got := test.row.judge(measured(test.over, test.under))
		if got.Verdict != test.verdict || got.Median != test.median || (got.Verdict == Void) != (got.Why != "") {
			t.Errorf("%v ÷ %v: %+v, want %s, %v", test.over, test.under, got, test.verdict, test.median)
		}
	}
}

func TestTheReportShowsRowsAndSides(t *testing.T) {
	scenes := measured([]float64{5, 3}, []float64{2, 2})
	ratio := Row{Name: "r", What: "a ratio", Scene: "s", Over: "over", Under: "under", Figure: p99, AtMost: 2}
	r := &Report{Settings: "2 rounds", Scenes: scenes, Rows: []Row{ratio.judge(scenes)}}
	var text, machine bytes.Buffer
	if err := errors.Join(r.WriteMarkdown(&text), r.WriteJSON(&machine)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"≤ 2.00", "2.00", "1.50 … 2.50 (2)", "met", "4.00 ms ÷ 2.00 ms", "1,000/s"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if _, void := r.IsVoid(); void || !strings.Contains(machine.String(), `"verdict": "met"`) {
		t.Error(machine.String())
	}
}

func TestASampleOfARunThatMissedSomethingIsVoid(t *testing.T) {
	for name, r := range map[string]*result.Run{
		"nothing was acknowledged": {},
		"refused: server_busy 2":   {Acknowledged: 98, Refused: map[string]int64{"server_busy": 2}},
		"connections lost":         {Acknowledged: 98, Lost: map[string]int64{"reset": 1}},
		"1 requests unanswered":    {Acknowledged: 98, Failed: 1},
		"1 never sent":             {Acknowledged: 98, Unsent: 1},
	} {
		if s := sampleOf(r, 0.01); !strings.Contains(s.Void, name) {
			t.Errorf("%s: %q", name, s.Void)
		}
	}
	if s := sampleOf(&result.Run{Acknowledged: 99, Refused: map[string]int64{"server_busy": 1}}, 0.01); s.Void != "" || len(s.Notes) != 1 {
		t.Errorf("%+v, want a note of what may be refused", s)
	}
}

func TestASoakFailsByWhatGrowsAndIsVoidWhenItIsTooShort(t *testing.T) {
	stage := func(g result.Growth) *result.Run {
		return &result.Run{Acknowledged: 5000, Nodes: []result.Node{{Stages: []result.Stage{{Name: "commitMs", Growth: g}}}}}
	}
	for _, test := range []struct {
		run    *result.Run
		before Sample
		dead   result.Growth
		failed string
		void   bool
	}{
		{stage(result.Growth{}), Sample{}, result.Growth{}, "", false},
		{stage(result.Growth{Grows: true}), Sample{}, result.Growth{}, "growth of commitMs", false},
		{stage(result.Growth{}), Sample{}, result.Growth{Grows: true}, "dead rows grow", false},
		{stage(result.Growth{}), Sample{Void: "3 refused"}, result.Growth{}, "3 refused", false},
		{stage(result.Growth{Unknown: true}), Sample{}, result.Growth{}, "", true},
		{stage(result.Growth{}), Sample{}, result.Growth{Unknown: true}, "", true},
	} {
		s := test.before
		s.Figures = make(map[Figure]float64)
		s.judgeSoak(test.run, test.dead)
		notes := strings.Join(s.Notes, "; ")
		if (s.Figures[passed] > 0) != (test.failed == "") || !strings.HasPrefix(notes, test.failed) || (s.Void != "") != test.void {
			t.Errorf("%+v: %q, void %q", test, notes, s.Void)
		}
	}
}

// TestLongEverySceneIsMeasured: with loads that any machine carries. What they find is not judged.
func TestLongEverySceneIsMeasured(t *testing.T) {
	usual, signers := scenes, fullSigners
	t.Cleanup(func() { scenes, fullSigners = usual, signers })
	fullSigners = 1000
	scenes = nil
	for _, s := range usual {
		s.sides = slices.Clone(s.sides)
		for i := range s.sides {
			l := &s.sides[i].load
			l.Connections, l.Inflight, l.Rate, l.Signers.Count = 10, 2, min(l.Rate, 100), min(l.Signers.Count, 100)
		}
		scenes = append(scenes, s)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := Run(ctx, Config{Rows: []string{"all"}, Rounds: 1, Duration: 500 * time.Millisecond, Soak: 14 * time.Second, Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if why, void := r.IsVoid(); void || len(r.Rows) != len(rows) || r.Interrupted {
		t.Errorf("%d rows, void: %s", len(r.Rows), why)
	}
}
