//go:build unix

package main

import (
	"strings"
	"testing"
)

func quickCompare(g gatewayAt, b string, more ...string) []string {
	return append([]string{
		"compare", "--a=" + g.command, "--b=" + b, "--url=" + g.url, "--connections=2", "--inflight=4", "--signers=10",
		"--warmup=0s", "--duration=200ms", "--min-acknowledged=10",
	}, more...)
}

func TestLongTwoSettingsAreComparedInAlternation(t *testing.T) {
	g := newGateway(t, "")
	d := drill(t, t.Context(), quickCompare(g, g.command+" --mode=basic", "--rounds=2", "--min-ratio=0.0001", "--max-p99-ratio=100000", "--json=-"), exitOK)
	got := decode[comparisonForm](t, d)
	var names []string
	bases := map[int64]bool{}
	for _, run := range got.Runs {
		names = append(names, run.Name)
		bases[run.Load.SignerBase] = true
	}
	if order := strings.Join(names, "; "); order != "A, round 1; B, round 1; B, round 2; A, round 2" {
		t.Errorf("runs %s", order)
	}
	if len(bases) != 4 {
		t.Errorf("signer bases %v, want another for each run", bases)
	}
	if len(got.Verdicts) != 2 || len(got.Ratios) != 2 || len(got.Ratios[0].Rounds) != 2 {
		t.Errorf("%+v, %+v; want both ratios of two rounds judged", got.Ratios, got.Verdicts)
	}
	// The ratio is that of B over A.
	want := got.Runs[1].PerSecond / got.Runs[0].PerSecond
	if diff := got.Ratios[0].Rounds[0] / want; diff < 0.999 || diff > 1.001 {
		t.Errorf("ratio %v, want %v", got.Ratios[0].Rounds[0], want)
	}
}

func TestARatioBelowItsLimitFailsTheComparison(t *testing.T) {
	g := newGateway(t, "")
	drill(t, t.Context(), quickCompare(g, g.command, "--rounds=1", "--min-ratio=1000"), exitFailure, "FAIL     acknowledged a second, B over A", "failed")
}

func TestLongASideThatDoesNotStartSaysWhy(t *testing.T) {
	g := newGateway(t, "")
	drill(t, t.Context(), quickCompare(g, g.command+" --mode=sideways", "--rounds=1"), exitFailure, "A, round 1", "B: ", "sideways",
		"FAIL     B, round 1: B: ", "\nfailed\n")
}

func TestLongAGatewayThatIsThereAlreadyIsNotTakenForTheOneToStart(t *testing.T) {
	g := newGateway(t, "")
	g.start(t)
	d := drill(t, t.Context(), quickCompare(g, g.command, "--rounds=1"), exitUsage, "--url", "the address is taken", "end it first")
	if d.stdout != "" {
		t.Errorf("it has measured something:\n%s", d.stdout)
	}
	for _, ready := range []string{"", g.ready} {
		args := quickRestart("--gateway=" + g.url + "=" + g.command)
		if ready != "" { // the address of another one is free, that of its readiness is not
			args = quickRestart("--gateway=ws://"+freeAddress(t)+"/ws="+g.command, "--ready="+ready)
		}
		if d := drill(t, t.Context(), args, exitUsage, "--gateway", "the address is taken"); d.stdout != "" {
			t.Errorf("it has measured something:\n%s", d.stdout)
		}
	}
}
