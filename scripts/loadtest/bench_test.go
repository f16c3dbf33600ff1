//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/bench"
)

// benchOnce runs a bench sub-command and returns its exit code, what it printed,
// and where its files are.
func benchOnce(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr, dir string) {
	t.Helper()
	var out, err bytes.Buffer
	dir = t.TempDir()
	files := []string{"--json", filepath.Join(dir, "new", "r.json"), "--markdown", filepath.Join(dir, "r.md")}
	p := &program{stdout: &out, stderr: &err}
	code = p.run(ctx, append(args, files...))
	return code, out.String(), err.String(), dir
}

func TestLongBenchPrintsAndWritesTheTableAndAMissedTargetIsNoFailure(t *testing.T) {
	code, stdout, stderr, dir := benchOnce(t, t.Context(),
		"bench", "--rows", "echo-sqlite,idle", "--rounds", "1", "--warmup", "0s", "--duration", "100ms", "--idle", "0s")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.Contains(stderr, "64x16, round 1/1, echo:") {
		t.Errorf("progress is %q", stderr)
	}
	data, err := os.ReadFile(filepath.Join(dir, "new", "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r bench.Report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || r.Rows[0].Median <= 0 || r.Rows[1].Median <= 0 {
		t.Errorf("rows are %+v", r.Rows)
	}
	markdown, err := os.ReadFile(filepath.Join(dir, "r.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{stdout, string(markdown)} {
		if !strings.Contains(out, "resident memory per idle connection") {
			t.Errorf("the table is %q", out)
		}
	}
}

func TestBenchRefusesAWrongCommandLine(t *testing.T) {
	for flag, args := range map[string][]string{
		"--rows":   {"bench", "--rows", "fast"},
		"--rounds": {"bench", "--rounds", "0"},
		"--only":   {"scale", "--only", "speed"},
		"--idle":   {"nodes", "--idle", "2m"},
		`--only knows no "speed", only throughput`: {"nodes", "--only", "speed"},
		"--rounds must be 1 to 1000":               {"nodes", "--rounds", "0"},
	} {
		code, _, stderr, _ := benchOnce(t, t.Context(), args...)
		if code != exitUsage || !strings.Contains(stderr, flag) {
			t.Errorf("%v: exit code %d, %q; want %d and the flag", args, code, stderr, exitUsage)
		}
	}
}

func TestAnInterruptedBenchSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"bench", "--rows", "echo"}, {"nodes"}} {
		if code, _, stderr, _ := benchOnce(t, ctx, args...); code != exitInterrupted {
			t.Errorf("%v: exit code %d: %s; want %d", args, code, stderr, exitInterrupted)
		}
	}
}

func TestABenchIsPrintedAndWrittenAndAVoidMeasurementFailsIt(t *testing.T) {
	for _, c := range []struct {
		void string
		code int
	}{{"", exitOK}, {"no disk", exitFailure}} {
		var out, said bytes.Buffer
		p := &program{stdout: &out, stderr: &said}
		r := &bench.Report{Scenes: []bench.Scene{{Name: "s", Sides: []bench.Side{{Name: "one node", Samples: []bench.Sample{{PerSecond: 4321, Void: c.void}}}}}}}
		dir := t.TempDir()
		markdown := filepath.Join(dir, "r.md")
		code := p.exit(p.benched(t.Context(), r, nil, filepath.Join(dir, "new", "r.json"), markdown))
		if code != c.code || c.void != "" && !strings.Contains(said.String(), "s, one node: no disk") {
			t.Errorf("void %q: exit code %d, %q; want %d and why", c.void, code, said.String(), c.code)
		}
		written, err := os.ReadFile(markdown)
		if err != nil || !strings.Contains(string(written), "one node") || !strings.Contains(out.String(), c.void) || !strings.Contains(out.String(), "one node") {
			t.Errorf("void %q: printed %q, written %q, %v", c.void, out.String(), written, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new", "r.json")); err != nil {
			t.Error(err)
		}
	}
}
