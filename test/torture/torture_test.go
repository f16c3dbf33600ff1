//go:build unix

package torture

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
	"noncegate/test/lab/patroni"
	"noncegate/test/lab/pgtest"
)

// server is the PostgreSQL of all histories, started when the first of them asks; started is it then.
var (
	started *pgtest.Server
	server  = sync.OnceValues(func() (_ *pgtest.Server, err error) {
		started, err = StartPostgres(context.Background())
		return started, err
	})
)

func TestMain(m *testing.M) {
	flag.Parse()
	err := flag.Set("test.parallel", "3") // a history waits for most of its time
	code := m.Run()
	if started != nil {
		err = started.Close()
	}
	if code == 0 && err == nil {
		err = goleak.Find(goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		expect.Must(t, err)
		return v
	}
}

// judged does a run, with the tests' own gateway unless the plan has one, and fails for what the judge finds.
func judged(t *testing.T, axis string, p Plan, names string) *Result {
	t.Helper()
	p.Faults = must[[]Fault](t)(FaultsNamed(strings.Fields(names)...))
	p.Dir = filepath.Join(os.TempDir(), "noncegate-torture")
	if p.Gateway == "" {
		p.Axis, p.Load = must[Axis](t)(AxisNamed(axis)), 5*time.Second
		p.Postgres, p.Gateway = must[*pgtest.Server](t)(server()), must[string](t)(gateway.Program(t.Context()))
	}
	res := must[*Result](t)(Run(t.Context(), p))
	if v := res.Report.Violations; len(v) == 1 && v[0].Rule == history.Void { // the machine had other work
		t.Log(v[0], "; once more, for longer")
		p.Load *= 4
		res = must[*Result](t)(Run(t.Context(), p))
	}
	for _, v := range res.Report.Violations {
		t.Errorf("%v; see %s", v, res.Kept)
	}
	for _, said := range res.Said {
		if strings.Contains(said, "done to 0 commits") {
			t.Errorf("a fault met nothing: %s", said)
		}
	}
	r := res.Report
	t.Logf("%d acknowledged, %d refused, %d unknown, %d losses", r.Acknowledged, r.Refused, r.Unknown, r.Losses)
	return res
}

// underFaults has every fault of PostgreSQL's axis but the wrong clock, which needs a gateway of its own, and the crash, which has a test
// of its own; a loss beside an owner that knows nothing of it, and moves between the engines while answers of Redis are lost; nodes of a
// chain that fail beside a gateway that dies.
var underFaults = [][2]string{
	{"postgres", "kill late-commit move-shards"}, {"postgres", "pause cut-reply dump"}, {"postgres", "partition cut-websocket basic-again"},
	{"postgres", "silent-node drain join-leave"}, {"postgres", "backend store-clock row-lock"},
	{"engine", "parted-for-long"}, {"engine", "redis-cut-reply switch"}, {"chain", "nodes-away kill"},
	{"postgres", "postgres-slow"},
}

func TestLongHistoriesUnderFaultsKeepEveryRule(t *testing.T) {
	t.Parallel()
	for seed, of := range underFaults {
		t.Run(of[1], func(t *testing.T) {
			t.Parallel()
			p := Plan{Seed: uint64(seed)}
			if of[0] == "engine" {
				p.Clients = 15
			}
			if res := judged(t, of[0], p, of[1]); res.Report.Losses == 0 && of[1] == "parted-for-long" {
				t.Error("no signer was lost")
			}
		})
	}
}

// All clusters share the PostgreSQL, so it is not parallel to any other.
func TestLongAHistoryInWhichPostgreSQLCrashesKeepsEveryRule(t *testing.T) {
	judged(t, "postgres", Plan{Seed: 5}, "postgres-crash")
}

// The leader of a synchronous cluster dies. It needs Patroni and etcd, which make test-long installs where it may.
func TestLongAHistoryInWhichTheLeaderDiesKeepsEveryRule(t *testing.T) {
	ha := must[*patroni.Cluster](t)(patroni.Start(t.Context()))
	t.Cleanup(func() { expect.Check(t, ha.Close()) })
	judged(t, "patroni", Plan{Seed: 6, Options: Options{Patroni: ha}}, "leader-kill")
}

// A gateway on a file: its disk is full, fails, and forgets what was not synced.
func TestLongWhatAGatewayOnAFileAnsweredSurvivesCrashes(t *testing.T) {
	t.Parallel()
	var o Options
	expect.Must(t, o.Prepare(t.Context(), "sqlite", t.TempDir()))
	judged(t, "sqlite", Plan{Seed: 1, Options: o}, "file-kill-power-loss file-kill-torn-tail file-stop-power-loss file-kill")
	judged(t, "sqlite", Plan{Seed: 2, Options: o}, "full-disk-power-loss failed-sync-and-power-loss failed-sync")
}

// Those that show at once; the others take a campaign.
func TestLongAGatewayThatIsWrongIsCaught(t *testing.T) {
	t.Parallel()
	// Which rule shows it first, and so ends the runs, is chance.
	for _, name := range []string{
		"version not compared", "request id taken as new", "blind retry after an unknown commit",
		"SQLite with synchronous=OFF", "SQLite with synchronous=NORMAL",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := PlantConfig{Options: Options{Postgres: must[*pgtest.Server](t)(server())}, Dir: t.TempDir(), Runs: 4, Load: 3 * time.Second}
			runs, rules, err := plantNamed(name).try(t.Context(), cfg)
			if err != nil || !slices.ContainsFunc(rules, func(r history.Rule) bool { return r != history.Stuck && r != history.Alarm }) {
				t.Errorf("not caught in %d runs, %v, %v", runs, rules, err)
			}
		})
	}
}

// Also the text by which faults know a commit is there once.
func TestEveryPlantFitsTheSources(t *testing.T) {
	commit := gateway.Patch{File: "nonce/postgres/commit.sql", Old: shardCommit, New: shardCommit}
	for _, p := range append(plants(), plant{Name: "commit", Patches: []gateway.Patch{commit}}) {
		if len(p.Patches) == 0 {
			t.Errorf("%s changes nothing", p.Name)
		}
		if _, err := FaultsNamed(p.Faults...); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if _, err := gateway.Overlay(t.Context(), t.TempDir(), p.patches()); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestLongEveryPlantCompiles(t *testing.T) {
	for _, p := range plants() {
		if p.Name == "forgetful disk" { // needs another file, and is compiled with each plant of SQLite
			continue
		}
		if err := gateway.Compile(t.Context(), t.TempDir(), p.patches()); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestAPassBreaksEachFaultAloneAndBesideEachOther(t *testing.T) {
	for _, a := range Axes {
		seen, last := make(map[string]bool), make(map[string]bool)
		all := a.Combinations()
		for seed := range uint64(len(all)) {
			var names []string
			for _, f := range (Options{Axis: a}).ForSeed(seed).Faults {
				names, last[f.Name] = append(names, f.Name), true
				if f.Directed {
					t.Errorf("%s: a campaign draws %s", a.Name, f.Name)
				}
			}
			seen[strings.Join(names, "+")] = true
		}
		if len(seen) != len(all) || seen[""] {
			t.Errorf("%s: %d of %d combinations differ", a.Name, len(seen), len(all))
		}
		own, _ := a.drawn()
		for _, f := range own {
			if !last[f.Name] || !a.File && !seen[f.Name] {
				t.Errorf("%s: %s never comes, or never alone", a.Name, f.Name)
			}
		}
	}
	if own, _ := Axes[0].drawn(); len(Axes[0].Combinations()) != len(own)*(len(own)+1)/2 {
		t.Errorf("%d combinations of %d faults", len(Axes[0].Combinations()), len(own))
	}
}

func TestTheLongHistoriesHaveEveryFaultOfPostgreSQL(t *testing.T) {
	own, _ := Axes[0].drawn()
	for _, f := range own {
		among := func(of [2]string) bool {
			return of[0] == Axes[0].Name && slices.Contains(strings.Fields(of[1]), f.Name)
		}
		if !f.Offsets && f.Name != "postgres-crash" && !slices.ContainsFunc(underFaults, among) {
			t.Errorf("%s is in no line of underFaults", f.Name)
		}
	}
}

func TestARunIsRefusedAFaultThatItsAxisCannotHave(t *testing.T) {
	for _, of := range [][2]string{
		{"postgres", "redis-kill"}, {"engine", "store-clock"}, {"chain", "switch"}, {"sqlite", "kill"}, {"patroni", "kill"},
	} {
		p := Plan{Faults: must[[]Fault](t)(FaultsNamed(of[1]))}
		p.Axis, p.Patroni = must[Axis](t)(AxisNamed(of[0])), new(patroni.Cluster)
		if _, err := Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), of[1]) {
			t.Errorf("%s beside the axis %s: %v", of[1], of[0], err)
		}
	}
}

func TestACampaignGoesOnWhereItWasStopped(t *testing.T) {
	dir := t.TempDir()
	state := `{"Seed":0,"Faults":"kill","Report":{"Acknowledged":3000}}
{"Seed":2,"Faults":"drain","Report":{"Acknowledged":70,"Violations":[{"rule":"void","text":"x"}]}}
{"Seed":1,"Faults":"pause+kill","Report":{"Acknowledged":2000,"Violations":[{"rule":"hole","signer":"s","text":"x"}]}}
`
	expect.Must(t, os.WriteFile(filepath.Join(dir, "state.jsonl"), []byte(state), 0o644))
	var said strings.Builder
	failed, err := Campaign(t.Context(), CampaignConfig{Passes: 0, Dir: dir, Out: &said}) // there is nothing left to do
	if err != nil || failed != 1 {
		t.Fatalf("%d failed, %v, want 1", failed, err)
	}
	for _, want := range []string{"2 histories, 5000 acknowledged", "FAILED seed 1 (pause+kill): [hole: s: x]"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &said)
		}
	}
}
