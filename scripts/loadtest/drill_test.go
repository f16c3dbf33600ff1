//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

func run(per float64) *result.Run { return &result.Run{PerSecond: per, Acknowledged: 100} }

// TestAContestIsJudgedByTheMedianOfItsRounds: of what its sides had, in the order they were measured.
func TestAContestIsJudgedByTheMedianOfItsRounds(t *testing.T) {
	for _, test := range []struct {
		name, want       string
		b                []float64 // of side B, whose side A always has 100
		atLeast, atMost  float64
		code, stopsAfter int
	}{
		{"passes", "PASS", []float64{80, 120, 90}, 0.9, 0, exitOK, 0},
		{"is below", "FAIL", []float64{80, 120, 70}, 0.9, 0, exitFailure, 0},
		{"is above", "FAIL", []float64{80, 120, 95}, 0, 0.9, exitFailure, 0},
		{"is not judged", "not judged: no criterion", []float64{80, 120, 95}, 0, 0, exitOK, 0},
		{"is cut short", "FAIL", []float64{80, 120, 95}, 0.5, 0, exitFailure, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			p := &program{stdout: &out, stderr: &out}
			runs, bases, order := 0, map[int64]bool{}, ""
			err := p.contest(t.Context(), contest{
				title: "A and B", files: new(ReportFlags), sides: [2]string{"A", "B"}, rounds: 3, andBack: true,
				load: traffic.Load{Signers: traffic.Signers{Count: 10}},
				measure: func(side int, load traffic.Load) (*result.Run, error) {
					if runs++; test.stopsAfter > 0 && runs > test.stopsAfter {
						return nil, context.DeadlineExceeded
					}
					bases[load.Signers.Base], order = true, order+string(rune('A'+side))
					return run([]float64{100, test.b[(runs-1)/2]}[side]), nil
				},
				ratios: []result.Ratio{{Name: "B over A", Figure: result.PerSecond, AtLeast: test.atLeast, AtMost: test.atMost}},
			})
			if code := p.exit(err); code != test.code || !strings.Contains(out.String(), "\n"+test.want) {
				t.Errorf("exit %d, %v: %s", code, err, out.String())
			}
			if test.stopsAfter == 0 && (len(bases) != 6 || order != "ABBAAB" || !strings.Contains(out.String(), "1.20")) {
				t.Errorf("signers from %v, in the order %s: %s", bases, order, out.String())
			}
		})
	}
}

func TestTheSlowDrillReportsBothSides(t *testing.T) {
	g := startGateway(t, "--max-holds=4096")
	html := filepath.Join(t.TempDir(), "slow.html")
	code, out, stderr := runProgram(t.Context(), t, nil, "slow", "--url="+g.URL, "--metrics="+g.Admin+"/metrics", "--connections=10",
		"--rate=400", "--rounds=1",
		"--warmup=0s", "--duration=2s", "--signers=10", "--min-acknowledged=1", "--max-failed-share=1", "--max-p99-ratio=1000000",
		"--behaviour=trickle", "--json=-", "--html="+html)
	var got result.Comparison
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK || len(got.Runs) != 2 || !got.Passed {
		t.Fatalf("exit %d, %v: %s %s", code, err, out, stderr)
	}
	for i, run := range got.Runs {
		if withSlow := run.Slow != nil; withSlow != (i == 1) || withSlow && run.Slow.Clients != 2 || run.Load.Connections != 8 ||
			run.Load.Rate != 320 {
			t.Errorf("run %d: %+v, slow clients %+v", i, run, run.Slow)
		}
	}
	if page, err := os.ReadFile(html); err != nil || !strings.Contains(string(page), "with slow clients, round 1") ||
		!strings.Contains(string(page), "healthy clients") {
		t.Errorf("page of %d bytes, %v; want the runs and the ratio", len(page), err)
	}
}

// gatewayAt is where a gateway of a test is, and how it is started.
type gatewayAt struct{ url, ready, command string }

// newGateway chooses the addresses of a gateway on a store.
func newGateway(t *testing.T, store string) gatewayAt {
	t.Helper()
	public, err := guarded.FreeAddr()
	expect.Must(t, err)
	admin, err := guarded.FreeAddr()
	expect.Must(t, err)
	return gatewayAt{
		url: "ws://" + public + "/ws", ready: "http://" + admin + "/readyz",
		command: gatewayProgram + " serve --max-holds=4096 --listen=" + public + " --admin-listen=" + admin + " --store=" + store,
	}
}

func sqlite(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "nonces.db") }

func TestTwoSettingsAreComparedAndAForeignServerIsNotTakenForOne(t *testing.T) {
	a, url := newGateway(t, sqlite(t)), ""
	b := strings.Replace(a.command, "--store=", "--mode=basic --store=", 1)
	args := func() []string {
		return []string{"compare", "--a=" + a.command, "--b=" + b, "--url=" + url, "--rounds=1", "--connections=4", "--duration=1s",
			"--warmup=0s",
			"--min-acknowledged=1", "--max-failed-share=1", "--mix=pairs"}
	}
	url = a.url
	if code, out, stderr := runProgram(t.Context(), t, nil, args()...); code != exitOK || !strings.Contains(out, "B, round 1") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	url = startGateway(t).URL
	if code, _, stderr := runProgram(t.Context(), t, nil, args()...); code != exitUsage ||
		!strings.Contains(stderr, "--url: the address is taken") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func quickRestart(more ...string) []string {
	return append([]string{
		"restart", "--connections=5", "--rate=100", "--signers=10", "--before=300ms", "--after=300ms", "--min-acknowledged=1", "--json=-",
	}, more...)
}

func TestGatewaysAreRestartedInTurnAndNothingIsLost(t *testing.T) {
	pg, err := pgtest.Start()
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, pg.Close()) })
	store := pg.NewDatabase(t)
	a, b := newGateway(t, "'"+store+"'"), newGateway(t, "'"+store+"'")
	code, out, stderr := runProgram(t.Context(), t, nil, quickRestart("--gateway="+a.url+"="+a.command, "--gateway="+b.url+"="+b.command,
		"--ready="+a.ready, "--ready="+b.ready)...)
	var got result.Run
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("exit %d, %v: %s %s", code, err, out, stderr)
	}
	if got.Failed != 0 || got.Verify == nil || got.Verify.Calls == 0 || got.Verify.ViolationCount != 0 || len(got.Phases) != 3 {
		t.Errorf("%+v, verify %+v; want everything answered, in three phases, and verified", got, got.Verify)
	}
	r := got.Restart
	if len(r.Gateways) != 2 || r.Gateways[0].Gateway != a.url || r.Gateways[1].Gateway != b.url || r.Gateways[0].Wrong != "" {
		t.Errorf("restarts %+v, want one of each, in turn", r.Gateways)
	}
	// A client that is idle when it learns of the drain leaves before it is closed.
	if result.Sum(got.Lost)+r.Drained == 0 || r.Closed != result.Sum(got.Lost) || r.Opened == 0 {
		t.Errorf("%v lost, %+v, want that connections were closed in order, or left, and opened again", got.Lost, r)
	}
}

func TestAGatewayThatDoesNotEndOrDoesNotComeBackFailsTheDrill(t *testing.T) {
	g := newGateway(t, sqlite(t))
	code, out, stderr := runProgram(t.Context(), t, nil, quickRestart("--gateway="+g.url+`=/bin/sh -c "trap '' TERM; `+g.command+`; true"`,
		"--stop-timeout=300ms")...)
	if code != exitFailure || !strings.Contains(out+stderr, "was killed") || !strings.Contains(out, "0 of 1") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
	g = newGateway(t, sqlite(t)) // what is verified are unused signers
	marker := filepath.Join(t.TempDir(), "ran")
	command := `/bin/sh -c "test ! -e ` + marker + ` && touch ` + marker + ` && exec ` + g.command + `"`
	code, out, stderr = runProgram(t.Context(), t, nil, quickRestart("--gateway="+g.url+"="+command)...)
	if code != exitFailure || !strings.Contains(stderr, "ended before it was ready: exit status 1") || !strings.Contains(out, "0 of 1") {
		t.Errorf("exit %d: %s %s", code, out, stderr)
	}
}
