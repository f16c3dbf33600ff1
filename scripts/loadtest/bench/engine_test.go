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
)

func TestLongThePerformanceEngineIsMeasuredWithAllSignersInIt(t *testing.T) {
	c := short
	c.Rounds, c.Soak = 1, 4*time.Second
	engines := []scene{
		{name: "engines", sides: sides(few(10), gatewayFar, gatewayEngine, engineFar)},
		{name: "soak", once: true, sides: []side{{name: gatewayEngine, server: gatewayEngine, load: few(10), drive: engineSoak(c.Soak)}}},
	}
	table := []row{
		{name: "far", scene: "engines", over: engineFar, under: gatewayFar, figure: p99},
		{name: "lag", scene: "soak", over: gatewayEngine, figure: noted(noteLagMost)},
		{name: "memory", scene: "soak", over: gatewayEngine, figure: noted(noteGrown), target: atLeast(0.01)},
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
	var looks []soakLook
	for i := range 9 {
		looks = append(looks, soakLook{lagMs: float64(10 * i), memoryMiB: float64(i + 1)})
	}
	looks[4] = soakLook{lagMs: 999, memoryMiB: 77}
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
	if s.noteLooks(looks[:2]); s.Void == "" {
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
