//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
)

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
