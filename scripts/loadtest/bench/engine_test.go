//go:build unix

package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

func TestLongThePerformanceEngineIsMeasuredWithAllSignersInIt(t *testing.T) {
	c := short
	c.Rounds, c.Soak = 1, 4*time.Second
	engines := []Scene{
		{Name: "engines", Sides: sides(few(10), gatewayFar, gatewayEngine, engineFar)},
		{Name: "soak", once: true, Sides: []Side{{Name: gatewayEngine, server: gatewayEngine, load: few(10), drive: engineSoak(c.Soak)}}},
	}
	table := []Row{
		{Name: "far", Scene: "engines", Over: engineFar, Under: gatewayFar, figure: p99},
		{Name: "lag", Scene: "soak", Over: gatewayEngine, figure: noted(noteLagMost)},
		{Name: "memory", Scene: "soak", Over: gatewayEngine, figure: noted(noteGrown), Target: atLeast(0.01)},
	}
	r, err := run(t.Context(), c, engines, table)
	why, void := r.IsVoid()
	for tries := 1; err == nil && void && tries < 4; tries++ {
		// Beside other work Redis may keep a gateway waiting until it leaves the engine.
		t.Logf("once more, the bench was void: %s", why)
		r, err = run(t.Context(), c, engines, table)
		why, void = r.IsVoid()
	}
	if err != nil {
		t.Fatal(err)
	}
	if void {
		t.Fatalf("the bench is void: %s", why)
	}
	sides := r.Scenes[0].Sides
	if got := sides[0].Samples[0]; got.P50Ms < 5 {
		t.Errorf("with PostgreSQL far away a commit took %v ms, want 5 at least", got.P50Ms)
	}
	for _, side := range sides[1:] {
		if _, ok := side.Samples[0].Notes[noteCatchUp]; !ok {
			t.Errorf("%s: nobody has waited for the rows: %+v", side.Name, side.Samples[0])
		}
	}
	if got := r.Scenes[1].Sides[0].Samples[0].Notes; got[noteMemoryMost] < 0.1 || got[noteMemoryMost] < got[noteMemoryLast] {
		t.Errorf("the soak noted %v", got)
	}
}

// admin is a private side that says what the engine is, in order, and the last for
// good.
func admin(t *testing.T, says ...engineState) *server {
	t.Helper()
	n := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		at := min(n, len(says)-1)
		n++
		if err := json.NewEncoder(w).Encode(says[at]); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return &server{admin: s.URL}
}

// behindBy is the state of a gateway of which so many signers are behind.
func behindBy(state string, signers int) (e engineState) {
	e.State, e.Reason = state, "slow"
	e.Logs = append(e.Logs, struct {
		Signers int `json:"unshippedSigners"`
	}{signers})
	return e
}

func TestALoadCountsOnlyIfTheEngineWasNotLeftAndOnceAllIsShipped(t *testing.T) {
	got, err := admin(t, behindBy(performance, 7), behindBy(performance, 3), behindBy(performance, 0)).shipped(t.Context(), Sample{PerSecond: 1})
	if err != nil || got.Void != "" || got.Notes[noteBehind] != 7 || got.Notes[noteCatchUp] == 0 {
		t.Errorf("a sample of which 7 signers were behind is %+v, %v", got, err)
	}
	got, err = admin(t, behindBy("DEGRADED", 0)).shipped(t.Context(), Sample{PerSecond: 1})
	if err != nil || got.Void != "the engine is DEGRADED: slow" {
		t.Errorf("a sample at whose end the engine was left is %+v, %v; want it void", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := admin(t, behindBy(performance, 3)).shipped(ctx, Sample{}); err == nil || !strings.Contains(err.Error(), "3 signers behind") {
		t.Errorf("where nothing is shipped: %v", err)
	}
}

func TestASoakComparesItsLastThirdWithItsFirst(t *testing.T) {
	looks := soakLooks{[]float64{0, 10, 20, 30, 999, 50, 60, 70, 80}, []float64{1, 2, 3, 4, 77, 6, 7, 8, 9}}
	var s Sample
	s.noteLooks(looks)
	want := map[string]float64{
		noteLagFirst: 10, noteLagLast: 70, noteLagMost: 999, noteMemoryFirst: 2, noteMemoryLast: 8, noteMemoryMost: 77, noteGrown: 4,
	}
	for name, v := range want {
		if s.Notes[name] != v {
			t.Errorf("%s: %v, want %v", name, s.Notes[name], v)
		}
	}
	if s.noteLooks(soakLooks{looks.lagMs[:2], looks.memoryMiB[:2]}); s.Void == "" {
		t.Error("a soak of two looks counts")
	}
}

func TestTheEnginesRowsAreAskedForTogether(t *testing.T) {
	got := chosenNames(t, engineRows)
	want := []string{"engine-peak", "engine-allocate", "engine-incr", "engine-incr-allocate", "engine-far-peak", "engine-far-allocate", "engine-far-p50", "engine-far-p99"}
	if !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v: the soak only by its name", got, want)
	}
}

func TestLongHandOutsGoOnWhilePostgresIsOutOfReachAndMarksWait(t *testing.T) {
	c := short
	c.Rounds = 1
	s := outageScene(outage{before: 1, away: 3, after: 2}, open(10, 100))
	rows := []Row{
		{Name: "refusing", Scene: s.Name, Over: refusing, figure: passed, Target: atLeast(1)},
		{Name: "silent", Scene: s.Name, Over: silent, figure: notedIn(noteLongestHandOut, "ms")},
	}
	r, err := run(t.Context(), c, []Scene{s}, rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range r.Scenes[0].Sides {
		got := side.Samples[0]
		if got.Void != "" || got.Verdict == "" || got.Notes[noteMarksMeanwhile] != 0 || got.Notes[noteMarks] < 100 || got.Notes[noteLongestHandOut] == 0 {
			t.Errorf("%s: %+v; want marks that were answered, but none meanwhile", side.Name, got)
		}
	}
}

func TestAnOutageIsFailedByARefusalByAMarkMeanwhileAndByAHandOutThatWaits(t *testing.T) {
	o := outage{before: 1, away: 3, after: 1}
	for _, c := range []struct {
		name            string
		marks, handOuts [5]int64 // by second
		refused         map[string]int64
		failed          int64
		want            string
	}{
		{name: "as it should be", marks: [5]int64{9, 2, 0, 0, 40}, want: pass},
		{name: "a mark meanwhile", marks: [5]int64{9, 2, 0, 1, 40}, want: "FAIL: 1 marks were answered while PostgreSQL was out of reach"},
		{name: "no hand-out", marks: [5]int64{9, 0, 0, 0, 40}, handOuts: [5]int64{9, 9, 9, 0, 30},
			want: "FAIL: nothing was handed out in 1 of 2 seconds without PostgreSQL"},
		{name: "a refusal", marks: [5]int64{9, 0, 0, 0, 40}, refused: map[string]int64{"unavailable": 3}, want: "FAIL: 3 refused: allocate unavailable"},
		{name: "no answer", marks: [5]int64{9, 0, 0, 0, 40}, failed: 2, want: "FAIL: 2 requests unanswered"},
	} {
		if c.handOuts == ([5]int64{}) {
			c.handOuts = [5]int64{9, 9, 9, 9, 9}
		}
		r := &result.Run{Acknowledged: 100, Failed: c.failed, Methods: map[string]result.Method{
			"allocate": {Acknowledged: 50, Refused: c.refused, LatencyMs: result.Latency{P99: 3, Max: 70}},
			"markUsed": {Acknowledged: 50, LatencyMs: result.Latency{P99: 3000}},
		}}
		for i, n := range c.marks {
			r.Timeline = append(r.Timeline, result.Second{Acknowledged: n + c.handOuts[i], Marks: n})
		}
		s := sampleOf(r, 1)
		s.judgeOutage(r, o)
		if s.Verdict != c.want || s.Void != "" {
			t.Errorf("%s: %+v, want %s", c.name, s, c.want)
		}
		if s.P99Ms != 3 || s.Notes[noteLongestHandOut] != 70 || s.Notes[noteRefusedHandOuts] != float64(c.refused["unavailable"]) {
			t.Errorf("%s: %+v, want the figures of hand-outs", c.name, s)
		}
		r.Timeline = r.Timeline[:4]
		if s.judgeOutage(r, o); !strings.Contains(s.Void, "ended before its time") {
			t.Errorf("%s: one that was cut short counts: %+v", c.name, s)
		}
	}
}
