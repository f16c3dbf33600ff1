//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"noncegate/wire"
)

func TestBenchMeasuresReferencesSideBySide(t *testing.T) {
	file := filepath.Join(t.TempDir(), "result.json")
	var out bytes.Buffer
	err := command(t.Context(), []string{"bench", "-servers", "echo,naive", "-rounds", "2",
		"-connections", "4", "-warmup", "0s", "-duration", "300ms", "-json", file}, &out)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := wire.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"echo", "naive"} {
		if runs := r.Runs[name]; len(runs) != 2 || runs[0].PerSecond <= 0 {
			t.Errorf("runs of %s are %+v, want two with results", name, runs)
		}
	}
	if r.Host.PostgreSQL == "" || r.Host.FsyncMs <= 0 || r.Host.Cores == 0 {
		t.Errorf("host is %+v", r.Host)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"round 1/2 echo", "round 1/2 naive", "round 2/2 naive", "round 2/2 echo"} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %s: every second round goes backwards", i, lines[i], want)
		}
	}
}

func TestComparisonsAreMediansOfTheRatiosOfEachRound(t *testing.T) {
	rates := func(values ...float64) (runs []report) {
		for _, v := range values {
			runs = append(runs, report{PerSecond: v})
		}
		return runs
	}
	r := result{Rounds: 3, Runs: map[string][]report{
		gatewayPostgres: rates(100, 300, 90),
		echo:            rates(50, 100, 90),
		gatewaySQLite:   rates(50, 60, 90),
	}}
	r.compare()
	want := map[string]float64{gatewayPostgres + "/" + echo: 2, gatewaySQLite + "/" + gatewayPostgres: 0.5}
	if len(r.Comparisons) != len(want) {
		t.Errorf("comparisons %+v, want those of %v", r.Comparisons, want)
	}
	for _, c := range r.Comparisons {
		if got := c.Median; got != want[c.Server+"/"+c.Reference] {
			t.Errorf("%s ÷ %s = %v, want %v", c.Server, c.Reference, got, want[c.Server+"/"+c.Reference])
		}
	}
	var out bytes.Buffer
	r.print(&out)
	if got := out.String(); !strings.Contains(got, "gateway-postgres ÷ echo") {
		t.Errorf("the table lacks the ratio: %s", got)
	}
}

func TestGatewayIsStartedWithoutAHoldLimit(t *testing.T) {
	a := &arena{dir: "/d", run: 7}
	for name, store := range map[string]string{gatewayPostgres: "postgres://db", gatewaySQLite: "sqlite:/d/07.db"} {
		args, _ := a.command(name, "127.0.0.1:1", "127.0.0.1:2", "postgres://db")
		want := "/d/gateway serve --store " + store + " --listen 127.0.0.1:1 --admin-listen 127.0.0.1:2 --max-holds 0"
		if got := strings.Join(args, " "); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestUnknownServerIsNamed(t *testing.T) {
	err := command(t.Context(), []string{"bench", "-servers", "echo,fast"}, nil)
	if err == nil || !strings.Contains(err.Error(), `"fast"`) {
		t.Errorf("bench: %v, want an error that names the server", err)
	}
}

func TestChildThatEndsEarlyIsReportedWithItsOutput(t *testing.T) {
	never := func(context.Context) bool { return false }
	log := filepath.Join(t.TempDir(), "log")
	_, err := startChild(t.Context(), log, []string{"/bin/sh", "-c", "echo no disk; exit 3"}, never)
	if err == nil || !strings.Contains(err.Error(), "no disk") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("startChild: %v, want its status and output", err)
	}
}

func TestStoppedChildIsAskedFirst(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	script := `trap 'echo asked; exit' TERM; echo up; while :; do sleep 0.01; done`
	ready := func(context.Context) bool {
		out, err := os.ReadFile(log)
		return err == nil && len(out) > 0
	}
	c, err := startChild(t.Context(), log, []string{"/bin/sh", "-c", script}, ready)
	if err != nil {
		t.Fatal(err)
	}
	c.stop()
	if got := string(c.output()); got != "up\nasked\n" {
		t.Errorf("the child said %q", got)
	}
	if err := c.cmd.Process.Signal(os.Signal(os.Interrupt)); err == nil {
		t.Error("the child still runs")
	}
}

func TestFsyncLatencyIsMeasuredOnTheDirectory(t *testing.T) {
	dir := t.TempDir()
	took, err := fsyncLatency(dir)
	if err != nil || took <= 0 || took > time.Minute {
		t.Errorf("fsyncLatency: %v, %v", took, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
