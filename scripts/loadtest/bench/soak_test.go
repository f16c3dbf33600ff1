//go:build unix

package bench

import (
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
)

// soaked is a run of a minute that lacks nothing, with a stage that grows or not.
func soaked(commitGrows bool) *result.Run {
	return &result.Run{
		Seconds: 60, Acknowledged: 2000, Methods: map[string]result.Method{"markUsed": {Acknowledged: 1000}},
		Nodes: []result.Node{{Stages: []result.Stage{{Name: "commitMs", Growth: result.Growth{Grows: commitGrows, Why: "more and more"}}}}},
	}
}

// looksOf are looks a second, with so many dead rows in each, and 500 bytes of WAL more.
func looksOf(dead func(i int) float64) (looks []databaseLook) {
	begin := time.Now()
	for i := range 61 {
		looks = append(looks, databaseLook{at: begin.Add(time.Duration(i) * time.Second), dead: dead(i), wal: 7 + 500*float64(i)})
	}
	return looks
}

func TestASoakFailsByWhatGrowsAndByWhatIsNotAnswered(t *testing.T) {
	sawtooth := func(i int) float64 { return float64(i%12) * 4000 }
	refusing := soaked(false)
	refusing.Refused = map[string]int64{"server_busy": 1}
	for name, test := range map[string]struct {
		run  *result.Run
		dead func(int) float64
		fail string
	}{
		"nothing grows":              {soaked(false), sawtooth, ""},
		"few dead rows":              {soaked(false), func(i int) float64 { return float64(10 * i) }, ""},
		"a queue grows":              {soaked(true), sawtooth, "growth of commitMs: grows: more and more"},
		"dead rows pile up":          {soaked(false), func(i int) float64 { return float64(i) * 1000 }, "dead rows grow: median 9,500 in the first third, 50,500 in the last"},
		"one of all requests is out": {refusing, sawtooth, "1 refused: server_busy"},
	} {
		s := sampleOf(test.run, 0)
		s.judgeSoak(test.run, looksOf(test.dead))
		if s.Void != "" || test.fail == "" && s.Verdict != pass || !strings.Contains(s.Verdict, test.fail) {
			t.Errorf("%s: void %q, verdict %q, want %q in it", name, s.Void, s.Verdict, test.fail)
		}
		if s.Notes[noteWAL] != 30 {
			t.Errorf("%s: %v bytes a pair, want 30 kB of 1,000 pairs", name, s.Notes[noteWAL])
		}
		if got := passed.of(s); (got == 1) != (test.fail == "") || got == 0 {
			t.Errorf("%s: figure %v", name, got)
		}
	}
}

func TestASoakThatCannotTellIsVoid(t *testing.T) {
	steady := func(int) float64 { return 5 }
	unseen := soaked(false)
	unseen.Nodes = nil
	for name, s := range map[string]func(*Sample){
		"no look":             func(s *Sample) { s.judgeSoak(soaked(false), nil) },
		"few looks":           func(s *Sample) { s.judgeSoak(soaked(false), looksOf(steady)[:5]) },
		"no figures of nodes": func(s *Sample) { s.judgeSoak(unseen, looksOf(steady)) },
	} {
		var got Sample
		if s(&got); got.Void == "" {
			t.Errorf("%s: %+v, want it void", name, got)
		}
	}
}

func TestLongASoakFindsItsPeakAndMakesHalfOfIt(t *testing.T) {
	c := short
	c.Soak = 2 * time.Second // too short to pass judgement, which others test
	few := soakScene(c.Soak)
	for i := range few.Sides {
		few.Sides[i].load.Connections = 8
	}
	r, err := run(t.Context(), c, []Scene{few}, []Row{{Name: "soak", Scene: "soak", Over: halfOfPeak, figure: passed, Target: atLeast(1)}})
	if err != nil {
		t.Fatal(err)
	}
	peak, half := r.Scenes[0].Sides[0].Samples[0], r.Scenes[0].Sides[1].Samples[0]
	if peak.Void != "" || peak.PerSecond == 0 {
		t.Errorf("the peak is %+v", peak)
	}
	if half.PerSecond < peak.PerSecond/4 || half.PerSecond > peak.PerSecond*3/4 || half.Notes[noteWAL] < 50 || half.Notes[noteDeadMost] == 0 || half.Void == "" {
		t.Errorf("after a peak of %.0f/s the soak is %+v, want half of it, notes, and that it was too short", peak.PerSecond, half)
	}
	unknown := soakScene(c.Soak)
	unknown.Sides = unknown.Sides[1:]
	r, err = run(t.Context(), c, []Scene{unknown}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if why := r.Scenes[0].Sides[0].void(); !strings.Contains(why, "peak is not known") {
		t.Errorf("without its peak: %q", why)
	}
}
