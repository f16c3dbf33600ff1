package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/interop/chaintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, chaintest.Leftovers()...) }

// TestLongNothingIsLeftBehind is twenty seconds of the soak for each client of ours.
func TestLongNothingIsLeftBehind(t *testing.T) {
	for _, who := range []string{"gateway", "sdk-viem", "sdk-ethers"} {
		t.Run(who, func(t *testing.T) { leavesNothing(t, who) })
	}
}

func leavesNothing(t *testing.T, who string) {
	cfg := defaultConfig()
	cfg.Who = who
	cfg.Duration, cfg.KillEvery, cfg.Accounts, cfg.Seed = 20*time.Second, 6*time.Second, 20, uint64(time.Now().UnixNano())
	cfg.Logs = t.TempDir()
	report, err := run(t.Context(), cfg, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	report.WriteText(t.Output())
	for _, text := range report.Violations {
		t.Error(text)
	}
	// It was no holiday either.
	if report.Payments < 200 || report.Happened["crashes of workers"] == 0 || report.Happened["kills of gateways"] == 0 ||
		report.Happened["troubles of nodes"] == 0 {
		t.Error("the run was too quiet to show anything")
	}
	if !t.Failed() {
		return
	}
	for _, name := range []string{"gateway-a.log", "gateway-b.log"} {
		if text, err := os.ReadFile(filepath.Join(cfg.Logs, name)); err == nil {
			t.Logf("%s:\n%s", name, text[max(0, len(text)-10_000):])
		}
	}
}
