//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/bench"
)

func TestNodesPrintsAndWritesItsTablesAndAVoidMeasurementFailsIt(t *testing.T) {
	for _, c := range []struct {
		void string
		code int
	}{{"", exitOK}, {"no disk", exitFailure}} {
		var out, said bytes.Buffer
		p := &program{stdout: &out, stderr: &said}
		r := new(bench.NodesReport)
		r.Scenes = []bench.Scene{{Name: "throughput", Sides: []bench.Side{{Name: "one node", Samples: []bench.Sample{{PerSecond: 4321, Void: c.void}}}}}}
		dir := t.TempDir()
		markdown := filepath.Join(dir, "r.md")
		code := p.exit(p.nodesMeasured(r, filepath.Join(dir, "new", "r.json"), markdown))
		if code != c.code || !strings.Contains(said.String(), c.void) {
			t.Errorf("void %q: exit code %d, %q; want %d", c.void, code, said.String(), c.code)
		}
		written, err := os.ReadFile(markdown)
		if err != nil || !strings.Contains(string(written), "one node") || !strings.Contains(out.String(), "one node") {
			t.Errorf("void %q: printed %q, written %q, %v", c.void, out.String(), written, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new", "r.json")); err != nil {
			t.Error(err)
		}
	}
}

func TestInterruptedNodesSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code, _, stderr, _ := benchOnce(t, ctx, "nodes"); code != exitInterrupted {
		t.Errorf("exit code %d: %s; want %d", code, stderr, exitInterrupted)
	}
}

func TestNodesRefusesAWrongCommandLine(t *testing.T) {
	for flag, args := range map[string][]string{
		"--only":   {"nodes", "--only", "speed"},
		"--rounds": {"nodes", "--rounds", "0"},
		"--idle":   {"nodes", "--idle", "2m"},
	} {
		code, _, stderr, _ := benchOnce(t, t.Context(), args...)
		if code != exitUsage || !strings.Contains(stderr, flag) {
			t.Errorf("%v: exit code %d, %q; want %d and the flag", args, code, stderr, exitUsage)
		}
	}
}
