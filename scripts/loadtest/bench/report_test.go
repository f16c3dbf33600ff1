//go:build unix

package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/result"
)

// rates are samples that differ in throughput only.
func rates(values ...float64) (samples []Sample) {
	for _, v := range values {
		samples = append(samples, Sample{Acknowledged: int64(v), PerSecond: v, P50Ms: 1, P99Ms: 2})
	}
	return samples
}

// judged is a row about two sides of a scene.
func judged(t *testing.T, target *Target, over, under []Sample) Row {
	t.Helper()
	rows := judge([]Row{{Name: "r", Scene: "s", Over: "a", Under: "b", figure: perSecond, Target: target}},
		[]Scene{{Name: "s", Sides: []Side{{Name: "a", Samples: over}, {Name: "b", Samples: under}}}})
	for _, v := range append(rows[0].Values, rows[0].Median) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("the row has %v", rows[0])
		}
	}
	return rows[0]
}

func TestARowIsTheMedianOfTheRatiosOfEachRound(t *testing.T) {
	r := judged(t, atLeast(2), rates(100, 300, 90), rates(50, 100, 90))
	if want := []float64{2, 3, 1}; !slices.Equal(r.Values, want) || r.Median != 2 || r.Verdict != Met {
		t.Errorf("row is %+v, want ratios %v, their median, and that it is met", r, want)
	}
	if r := judged(t, atLeast(2.01), rates(100, 300, 90), rates(50, 100, 90)); r.Verdict != Missed {
		t.Errorf("a target above the median is %q", r.Verdict)
	}
	if r := judged(t, nil, rates(1), rates(1)); r.Verdict != "" {
		t.Errorf("a row without a target is %q", r.Verdict)
	}
}

func TestATargetIsAtLeastOrAtMost(t *testing.T) {
	for _, c := range []struct {
		target *Target
		median float64
		met    bool
	}{
		{atLeast(0.7), 0.7, true}, {atLeast(0.7), 0.69, false}, {atLeast(0.7), 9, true},
		{atMost(3), 3, true}, {atMost(3), 3.01, false}, {atMost(3), 0.5, true},
	} {
		if got := c.target.met(c.median); got != c.met {
			t.Errorf("%+v met by %v: %v, want %v", *c.target, c.median, got, c.met)
		}
	}
}

func TestARowWithoutAFigureIsVoidAndDividesByNothing(t *testing.T) {
	void := []Sample{{Acknowledged: 1, PerSecond: 1, Void: "3 refused: server_busy"}}
	for name, c := range map[string]struct {
		over, under []Sample
		why         string
	}{
		"nothing to divide by":  {rates(100), rates(0), "nothing to divide by"},
		"never measured":        {nil, nil, "not measured"},
		"one side not measured": {rates(100), nil, "not measured"},
		"a void side":           {rates(100), void, "3 refused: server_busy"},
		"the other void side":   {void, rates(100), "3 refused: server_busy"},
	} {
		if r := judged(t, atLeast(0), c.over, c.under); r.Verdict != Void || r.Why != c.why || len(r.Values) != 0 {
			t.Errorf("%s: row is %+v, want void because of %q", name, r, c.why)
		}
	}
	r := judged(t, nil, append(rates(100), void...), rates(50, 50))
	if r.Verdict != Void || !slices.Equal(r.Values, []float64{2}) {
		t.Errorf("row is %+v, want void with the ratio of the other round", r)
	}
	missing := judge([]Row{{Name: "r", Scene: "elsewhere", figure: perSecond}}, nil)[0]
	if missing.Verdict != Void || missing.Why != "not measured" {
		t.Errorf("a row whose scene was not reached is %+v", missing)
	}
}

func TestAVoidMeasurementIsFound(t *testing.T) {
	fine := Report{Scenes: []Scene{{Name: "s", Sides: []Side{{Name: "a", Samples: rates(1)}}}}}
	if why, void := fine.IsVoid(); void {
		t.Errorf("a report without a void one is void: %s", why)
	}
	bad := Report{Scenes: []Scene{{Name: "s", Sides: []Side{{Name: "a", Samples: append(rates(1), Sample{Void: "no disk"})}}}}}
	if why, void := bad.IsVoid(); !void || why != "s, a: no disk" {
		t.Errorf("IsVoid: %q, %v; want the scene, the side and the reason", why, void)
	}
}

func TestWhatMakesARunVoid(t *testing.T) {
	refused := map[string]int64{"server_busy": 2}
	for _, c := range []struct {
		run       result.Run
		refusable float64
		want      string
	}{
		{run: result.Run{Acknowledged: 5}},
		{run: result.Run{}, want: "nothing was acknowledged"},
		{run: result.Run{Acknowledged: 98, Refused: refused}, want: "2 refused: server_busy"},
		{run: result.Run{Acknowledged: 98, Refused: refused}, refusable: 0.02},
		{run: result.Run{Acknowledged: 97, Refused: refused}, refusable: 0.02, want: "2 refused: server_busy"},
		{run: result.Run{Acknowledged: 5, Failed: 1, Unsent: 2, Lost: map[string]int64{"EOF": 3}},
			want: "1 requests unanswered, 2 requests never sent, 3 connections lost: EOF"},
	} {
		if got := sampleOf(&c.run, c.refusable).Void; got != c.want {
			t.Errorf("%+v: void %q, want %q", c.run, got, c.want)
		}
	}
}

// sampleReport has one of everything that a report can show.
func sampleReport() Report {
	scenes := []Scene{
		{Name: "64x16", About: "64 connections", Sides: []Side{{Name: "gateway", Samples: rates(50_000, 60_000)}, {Name: "echo", Samples: rates(100_000, 100_000)}}},
		{Name: "idle", About: "left alone", Sides: []Side{{Name: "gateway", Samples: []Sample{{Acknowledged: 1, PerConnection: 9216, Resident: 3 << 20}}}}},
		{Name: "slow", About: "some do not read", Sides: []Side{
			{Name: "all", Samples: rates(10)}, {Name: "some", Samples: []Sample{{Void: "exit|status 1\nits words", Notes: map[string]float64{"kicked": 7}}}}}},
	}
	rows := []Row{
		{Name: "echo", What: "÷ echo", Scene: "64x16", Over: "gateway", Under: "echo", figure: perSecond, Target: atLeast(1)},
		{Name: "idle", What: "memory", Scene: "idle", Over: "gateway", figure: perConnection, Target: atMost(8 << 10)},
		{Name: "slow", What: "p99 ÷ p99", Scene: "slow", Over: "some", Under: "all", figure: p99, Target: atMost(1.2)},
	}
	return Report{
		Host:     Host{Date: "2026-01-02", System: "linux/amd64", Cores: 2, Go: "go1.26", PostgreSQL: "15", Redis: "7", Commit: "abc+", FsyncMs: 0.25},
		Settings: map[string]string{"rounds": "2", "gateway": "--max-holds 0"},
		Scenes:   scenes, Rows: judge(rows, scenes), Interrupted: true,
	}
}

func TestMarkdownHasTheTableAndEverythingBehindIt(t *testing.T) {
	var out bytes.Buffer
	r := sampleReport()
	if err := r.WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	const want = `2026-01-02, linux/amd64, 2 cores, go1.26, PostgreSQL 15, Redis 7, commit abc+, an fsync takes 0.25 ms (median). Settings: gateway --max-holds 0; rounds 2.

Interrupted: this is what was measured until then.

| what | target | median | of the rounds | verdict | figures |
| --- | --- | --- | --- | --- | --- |
| ÷ echo | ≥ 1.00 | 0.55 | 0.50 … 0.60 (2) | missed | 55,000/s ÷ 100,000/s |
| memory | ≤ 8.0 KiB | 9.0 KiB | 9.0 KiB … 9.0 KiB (1) | missed | – |
| p99 ÷ p99 | ≤ 1.20 | – | – | void: exit/status 1 | – ÷ 2.00 ms |

### 64x16: 64 connections

| median of the rounds | acknowledged/s | p50 ms | p99 ms | resident MiB | notes |
| --- | --- | --- | --- | --- | --- |
| gateway | 55,000 | 1.00 | 2.00 | – |  |
| echo | 100,000 | 1.00 | 2.00 | – |  |

### idle: left alone

| median of the rounds | acknowledged/s | p50 ms | p99 ms | resident MiB | notes |
| --- | --- | --- | --- | --- | --- |
| gateway | – | – | – | 3.0 | 9.0 KiB a connection |

### slow: some do not read

| median of the rounds | acknowledged/s | p50 ms | p99 ms | resident MiB | notes |
| --- | --- | --- | --- | --- | --- |
| all | 10 | 1.00 | 2.00 | – |  |
| some | – | – | – | – | void: exit/status 1 |
`
	if got := out.String(); got != want {
		t.Errorf("markdown is\n%s\nwant\n%s", got, want)
	}
}

func TestTextHasTheSameCells(t *testing.T) {
	var text, markdown bytes.Buffer
	r := sampleReport()
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(&markdown); err != nil {
		t.Fatal(err)
	}
	words := func(s string) []string {
		return slices.DeleteFunc(strings.Fields(s), func(w string) bool { return strings.Trim(w, "|-#") == "" })
	}
	if got, want := words(text.String()), words(markdown.String()); !slices.Equal(got, want) {
		t.Errorf("text says %q, markdown %q", got, want)
	}
}

func TestJSONIsTheWholeReport(t *testing.T) {
	var out bytes.Buffer
	r := sampleReport()
	if err := r.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Rows[0].Median != 0.55 || len(back.Scenes) != 3 || back.Host != r.Host || !back.Interrupted {
		t.Errorf("read back: %+v", back)
	}
}

func TestASoakIsToldAsPassOrFailAndItsLogInBytes(t *testing.T) {
	good, bad := Sample{Verdict: pass}, Sample{Verdict: "FAIL: dead rows grow"}
	good.note(noteWAL, 812.4)
	for want, s := range map[string]Sample{pass: good, "FAIL": bad} {
		scene := Scene{Name: "soak", Sides: []Side{{Name: halfOfPeak, Samples: []Sample{s}}}}
		r := Report{Scenes: []Scene{scene}}
		r.Rows = judge([]Row{{Scene: "soak", Over: halfOfPeak, figure: passed, Target: atLeast(1)}}, r.Scenes)
		line := r.rowTable().Rows[0]
		if line[1] != pass || line[2] != want || line[4] != map[string]string{pass: Met, "FAIL": Missed}[want] {
			t.Errorf("row %q, want %s", line, want)
		}
		if notes := scene.table().Rows[0][5]; !strings.Contains(notes, s.Verdict) {
			t.Errorf("notes %q, want the verdict in them", notes)
		}
	}
	r := judge([]Row{{Scene: "soak", Over: halfOfPeak, figure: notedIn(noteWAL, "bytes a pair")}},
		[]Scene{{Name: "soak", Sides: []Side{{Name: halfOfPeak, Samples: []Sample{good}}}}})[0]
	if got := r.amount(r.Median); got != "812 bytes a pair" {
		t.Errorf("WAL is %q", got)
	}
}
