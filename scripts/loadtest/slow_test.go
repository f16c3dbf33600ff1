package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/target"
)

type comparisonForm struct {
	Runs     []result.Run
	Ratios   []ratio
	Verdicts []result.Verdict
	Passed   bool
}

func quickSlow(g *target.Gateway, more ...string) []string {
	return append([]string{
		"slow", "--url=" + g.URL, "--metrics=" + g.Metrics, "--connections=10", "--slow-share=0.2", "--rate=400", "--rounds=2",
		"--warmup=0s", "--duration=500ms", "--signers=10", "--min-acknowledged=10",
	}, more...)
}

func TestLongTheSlowDrillPutsHealthyClientsWithSlowOnesBesideThoseWithout(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	html := filepath.Join(t.TempDir(), "slow.html")
	d := drill(t, t.Context(), quickSlow(g, "--max-p99-ratio=10000", "--json=-", "--html="+html), exitOK)
	got := decode[comparisonForm](t, d)
	if len(got.Runs) != 4 || !got.Passed {
		t.Fatalf("%d runs, passed %v; want 4 that passed", len(got.Runs), got.Passed)
	}
	bases := map[int64]bool{}
	for i, run := range got.Runs {
		bases[run.Load.SignerBase] = true
		if withSlow := run.Slow != nil; withSlow != (i%2 == 1) || withSlow && run.Slow.Clients != 2 {
			t.Errorf("run %d: slow clients %+v", i, run.Slow)
		}
		if run.Load.Connections != 8 || run.Load.Rate != 320 || run.Acknowledged < 10 || len(run.Nodes) != 1 || len(run.Nodes[0].Memory) == 0 {
			t.Errorf("run %d: %+v; want 8 healthy clients at 320/s, and the gateway's memory", i, run)
		}
	}
	if len(bases) != 4 {
		t.Errorf("signer bases %v, want another for each run", bases)
	}
	if len(got.Ratios) != 2 || len(got.Ratios[1].Rounds) != 2 || got.Ratios[1].Median <= 0 {
		t.Errorf("ratios %+v, want those of two rounds", got.Ratios)
	}
	page, err := os.ReadFile(html)
	if err != nil || !strings.Contains(string(page), "with slow clients, round 2") || !strings.Contains(string(page), "healthy p99") {
		t.Errorf("page of %d bytes, %v; want the runs and the verdict on the ratio", len(page), err)
	}
}

func TestARatioAboveItsLimitFailsTheSlowDrill(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	drill(t, t.Context(), quickSlow(g, "--rounds=1", "--max-p99-ratio=0.0001", "--behaviour=trickle"), exitFailure,
		"FAIL     healthy p99", "2 slow clients (trickle)", "failed")
}

func TestLongSlowClientsMisbehaveInTheMeasuredTime(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	d := drill(t, t.Context(), quickSlow(g, "--rounds=1", "--duration=2s", "--max-p99-ratio=10000", "--behaviour=vanish", "--json=-"), exitOK)
	// A client that vanishes does so within a second and a half.
	if got := decode[comparisonForm](t, d).Runs[1].Slow; got == nil || got.Reconnects < 2 {
		t.Errorf("slow clients %+v, want that both have vanished and come back", got)
	}
}

func TestASlowDrillThatIsInterruptedPrintsWhatItHas(t *testing.T) {
	g := target.StartGateway(t, "--max-holds=4096")
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(2*time.Second, cancel).Stop() // in round 1
	drill(t, ctx, quickSlow(g, "--duration=1h"), exitInterrupted, "without slow clients, round 1", "interrupted")
}
