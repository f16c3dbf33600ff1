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
	if code, _, stderr, _ := benchOnce(t, ctx, "bench", "--rows", "echo"); code != exitInterrupted {
		t.Errorf("exit code %d: %s; want %d", code, stderr, exitInterrupted)
	}
}

func TestAVoidMeasurementFailsTheBench(t *testing.T) {
	var out, err bytes.Buffer
	p := &program{stdout: &out, stderr: &err}
	r := &bench.Report{Scenes: []bench.Scene{{Name: "s", Sides: []bench.Side{{Name: "a", Samples: []bench.Sample{{Void: "no disk"}}}}}}}
	dir := t.TempDir()
	failure := p.benched(t.Context(), r, nil, filepath.Join(dir, "r.json"), filepath.Join(dir, "r.md"))
	if code := p.exit(failure); code != exitFailure || !strings.Contains(err.String(), "s, a: no disk") {
		t.Errorf("exit code %d: %q; want %d and why", code, err.String(), exitFailure)
	}
	if !strings.Contains(out.String(), "void: no disk") {
		t.Errorf("the report is not printed: %q", out.String())
	}
}
