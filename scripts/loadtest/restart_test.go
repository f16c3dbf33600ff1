//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/pgtest"
)

type restartForm struct {
	result.Run
	Restarts []restarted
	Noticed  traffic.Noticed
}

func quickRestart(more ...string) []string {
	return append([]string{
		"restart", "--connections=5", "--rate=100", "--signers=10", "--before=300ms", "--after=300ms", "--min-acknowledged=10",
	}, more...)
}

func TestLongOneGatewayIsRestartedAndNothingIsLost(t *testing.T) {
	g := newGateway(t, "")
	html := filepath.Join(t.TempDir(), "restart.html")
	d := drill(t, t.Context(), quickRestart("--gateway="+g.url+"="+g.command, "--ready="+g.ready, "--rounds=2", "--rate=200", "--json=-", "--html="+html), exitOK)
	got := decode[restartForm](t, d)
	if got.Command != "restart" || got.Failed != 0 || got.Refusals() != 0 || got.Verify == nil || got.Verify.ViolationCount != 0 || got.Verify.Allocations == 0 {
		t.Errorf("%+v, verify %+v; want everything answered, and verified", got.Run, got.Verify)
	}
	if len(got.Restarts) != 2 || got.Restarts[0].Gateway != g.url || got.Restarts[0].At < 0.3 || got.Restarts[0].Wrong != "" {
		t.Errorf("restarts %+v, want two", got.Restarts)
	}
	// A client that is idle when it learns of the drain leaves before it is closed.
	if got.Noticed.Lost+got.Noticed.Drained == 0 || got.Noticed.Closed != got.Noticed.Lost || got.Noticed.Opened == 0 {
		t.Errorf("%+v, want that connections were closed in order, or left, and opened again", got.Noticed)
	}
	lost := result.Sum(got.Lost)
	if lost != got.Noticed.Lost || got.Opened != 5+got.Noticed.Opened {
		t.Errorf("%d lost (%v) and %d opened, and the clients noticed %+v; want one truth", lost, got.Lost, got.Opened, got.Noticed)
	}
	var phases []string
	for _, p := range got.Phases {
		if p.LatencyMs.Count > 0 {
			phases = append(phases, p.Name)
		}
	}
	if order := strings.Join(phases, ", "); order != "before, while one is away, after" {
		t.Errorf("latencies %s", order)
	}
	if page, err := os.ReadFile(html); err != nil || !strings.Contains(string(page), "came back") {
		t.Errorf("page of %d bytes, %v; want the verdicts", len(page), err)
	}
}

func TestLongTwoGatewaysAreRestartedInTurnAndNothingIsLost(t *testing.T) {
	pg, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Close(); err != nil {
			t.Error(err)
		}
	})
	store := pg.NewDatabase(t)
	a, b := newGateway(t, store), newGateway(t, store)
	d := drill(t, t.Context(), quickRestart("--gateway="+a.url+"="+a.command, "--gateway="+b.url+"="+b.command,
		"--ready="+a.ready, "--ready="+b.ready, "--json=-"), exitOK)
	got := decode[restartForm](t, d)
	if got.Failed != 0 || got.Verify == nil || got.Verify.ViolationCount != 0 {
		t.Errorf("%+v, verify %+v; want everything answered, and verified", got.Run, got.Verify)
	}
	if len(got.Restarts) != 2 || got.Restarts[0].Gateway != a.url || got.Restarts[1].Gateway != b.url {
		t.Errorf("restarts %+v, want one of each, in turn", got.Restarts)
	}
}

func TestAGatewayThatDoesNotEndWhenAskedToFailsTheDrill(t *testing.T) {
	g := newGateway(t, "")
	drill(t, t.Context(), quickRestart("--gateway="+g.url+`=/bin/sh -c "trap '' TERM; `+strings.ReplaceAll(g.command, "'", "")+`; true"`,
		"--stop-timeout=300ms"), exitFailure, "was killed", "FAIL    gateways that ended when asked to and came back: 0 of 1")
}

func TestLongAGatewayThatDoesNotComeBackEndsTheDrillWithWhatItHas(t *testing.T) {
	g := newGateway(t, "")
	marker := filepath.Join(t.TempDir(), "ran")
	command := `/bin/sh -c "test ! -e ` + marker + ` && touch ` + marker + ` && exec ` + strings.ReplaceAll(g.command, "'", "") + `"`
	ctx, cancel := context.WithTimeout(t.Context(), drillTimeout)
	defer cancel()
	drill(t, ctx, quickRestart("--gateway="+g.url+"="+command, "--start-timeout=2s", "--stop-timeout=5s"), exitFailure, "ended before it was ready: exit status 1", "acknowledged", "came back: 0 of 1")
}

func TestARestartDrillThatIsInterruptedEndsItsGateways(t *testing.T) {
	g := newGateway(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(time.Second, cancel).Stop()
	drill(t, ctx, quickRestart("--gateway="+g.url+"="+g.command, "--before=1h"), exitInterrupted)
	g.start(t) // its address and its store are free again
}
