//go:build unix

package bench

import (
	"strings"
	"testing"

	"noncegate/internal/testenv/pgtest"
	"noncegate/scripts/loadtest/result"
)

func TestLongHandOutsGoOnWhilePostgresIsOutOfReachAndMarksWait(t *testing.T) {
	c := short
	c.Rounds = 1
	o := outage{before: 1, away: 3, after: 2}
	l := open(10, 100)
	on := func(name string, take func(*pgtest.Proxy)) side {
		return side{name: name, server: engineOutage, load: l, drive: duringOutage(o, take)}
	}
	s := scene{name: "outage", once: true, sides: []side{on(refusing, (*pgtest.Proxy).Refuse), on(silent, (*pgtest.Proxy).BlackHole)}}
	rows := []row{
		{name: "refusing", scene: s.name, over: refusing, figure: passed, target: atLeast(1)},
		{name: "silent", scene: s.name, over: silent, figure: notedIn(noteLongestHandOut, "ms")},
	}
	r, err := run(t.Context(), c, []scene{s}, rows)
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
