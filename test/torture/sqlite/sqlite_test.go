//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"noncegate/test/lab/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateways builds variants for the rest of the test.
func gateways(t *testing.T, variants ...variant) (config, *builds) {
	t.Helper()
	dir := t.TempDir()
	if keep := os.Getenv("TORTURE_KEEP"); keep != "" { // what a failure left is wanted
		dir = filepath.Join(keep, t.Name())
	}
	cfg := config{Dir: dir, Points: 3}
	b, err := buildAll(t.Context(), cfg, variants...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, b
}

func TestLongWhatAGatewayOnAFileAnsweredSurvivesCrashes(t *testing.T) {
	cfg, b := gateways(t, checkpointing)
	for seed, faults := range map[uint64][]fault{
		1: {{none, kill, powerLoss}, {none, kill, tornTail}, {none, kill, none}, {none, stop, powerLoss}},
		2: {{fullDisk, kill, powerLoss}, {failedSync, kill, powerLoss}, {failedSync, kill, none}, {none, kill, powerLoss}},
	} {
		r, err := runHistory(t.Context(), cfg, b, checkpointing.name, seed, faults)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		if len(r.Violations) > 0 {
			t.Error("it does not; TORTURE_KEEP=DIR keeps the traces, the logs, the history and the bad images")
		}
	}
}

// TestLongKnownBadGatewaysAreFoundOut shows that the shim loses what was not synced
// and that the judgement sees it. All of them run in the campaign.
func TestLongKnownBadGatewaysAreFoundOut(t *testing.T) {
	const maxRuns = 5
	for _, p := range thePlanted {
		if p.name != "synchronous-off" && p.name != "answer-before-commit" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			cfg, b := gateways(t, p.variant)
			for seed := range uint64(maxRuns) {
				r, err := runHistory(t.Context(), cfg, b, p.name, seed+1, p.faults)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Violations) > 0 {
					t.Log(r.Violations[0])
					return
				}
			}
			t.Errorf("%d runs found nothing wrong", maxRuns)
		})
	}
}

func TestEveryKnownBadBuildStillDiffersFromTheProduct(t *testing.T) {
	for _, p := range thePlanted {
		if _, err := gateway.Overlay(t.Context(), t.TempDir(), p.all()); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

func TestLongEveryKnownBadBuildCompiles(t *testing.T) {
	for _, p := range thePlanted {
		if err := gateway.Compile(t.Context(), t.TempDir(), p.all()); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}
