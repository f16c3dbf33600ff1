//go:build unix

package torture

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/history"
	"noncegate/test/lab/pgtest"
)

// What the histories share, made when the first of them asks.
var (
	folder  string
	program = sync.OnceValues(func() (exe string, err error) {
		exe = filepath.Join(folder, "gateway")
		return exe, gateway.Build(context.Background(), exe, nil, gateway.FlagsOfThis()...)
	})
	pgServer = sync.OnceValues(func() (*pgtest.Server, error) { return StartPostgres(context.Background()) })
	started  atomic.Bool // pgServer was asked for
)

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// parallel is how many tests run at a time: a history waits for most of its time.
const parallel = "3"

func runAll(m *testing.M) (code int, err error) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		return 1, err
	}
	if folder, err = os.MkdirTemp("", "torture"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	code = m.Run()
	if started.Load() {
		if pg, failed := pgServer(); failed == nil {
			err = pg.Close()
		}
	}
	if code == 0 && err == nil {
		err = goleak.Find(goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"), goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
	}
	return code, err
}

// server is the PostgreSQL of all histories.
func server(t *testing.T) *pgtest.Server {
	t.Helper()
	started.Store(true)
	pg, err := pgServer()
	if err != nil {
		t.Fatal(err)
	}
	return pg
}

// lookAtSources opens every folder of the module, so that go test, which takes note
// of what is opened while tests run, does not show an old result when the gateway
// has changed.
func lookAtSources(t *testing.T) {
	t.Helper()
	module, err := gateway.Module(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// artefacts is where a test that fails leaves what it has.
func artefacts(t *testing.T) string {
	dir := filepath.Join(os.TempDir(), "noncegate-torture")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("see %s", dir)
		}
	})
	return dir
}

// short is the campaign of make test: every fault but the wrong clock, which needs a
// gateway of its own, and the end of PostgreSQL, which all clusters share.
var short = []struct {
	seed    uint64
	forward string
	faults  []string
}{
	{1, "on", []string{"kill", "late-commit", "move-shards"}},
	{2, "on", []string{"pause", "cut-reply", "dump"}},
	{3, "off", []string{"partition", "cut-websocket", "basic-again"}},
	{4, "on", []string{"silent-node", "drain", "join-leave"}},
	{6, "on", []string{"backend", "store-clock", "row-lock"}},
}

func TestLongHistoriesUnderFaultsKeepEveryRule(t *testing.T) {
	lookAtSources(t)
	t.Parallel()
	for _, r := range short {
		t.Run(strings.Join(r.faults, "+"), func(t *testing.T) {
			t.Parallel()
			survives(t, Plan{Seed: r.seed, Options: Options{Forward: r.forward}}, r.faults)
		})
	}
}

// It is not parallel to any other.
func TestLongAHistoryInWhichPostgreSQLCrashesKeepsEveryRule(t *testing.T) {
	lookAtSources(t)
	survives(t, Plan{Seed: 5, Options: Options{Forward: "on"}}, []string{"postgres-crash"})
}

// shortEngine is its part with Redis: a loss beside an owner that knows nothing of it, and
// moves between the engines while answers of Redis are lost.
var shortEngine = []struct {
	seed   uint64
	lost   bool // signers must have been lost
	faults []string
}{
	{1, true, []string{"parted-for-long"}},
	{2, false, []string{"redis-cut-reply", "switch"}},
}

func TestLongHistoriesOfThePerformanceEngineKeepEveryRule(t *testing.T) {
	lookAtSources(t)
	t.Parallel()
	for _, tt := range shortEngine {
		t.Run(strings.Join(tt.faults, "+"), func(t *testing.T) {
			t.Parallel()
			res := judged(t, Plan{Seed: tt.seed, Clients: 15, Options: Options{Axis: axisOf(t, "engine"), Forward: "on"}}, tt.faults)
			if tt.lost && res.Report.Losses == 0 {
				t.Error("no signer was lost")
			}
		})
	}
}

// With a chain: its nodes fail beside a gateway that dies.
func TestLongHistoriesBesideAChainKeepEveryRule(t *testing.T) {
	lookAtSources(t)
	t.Parallel()
	judged(t, Plan{Seed: 1, Options: Options{Axis: axisOf(t, "chain"), Forward: "on"}}, []string{"nodes-away", "kill"})
}

func survives(t *testing.T, p Plan, names []string) {
	t.Helper()
	res := judged(t, p, names)
	for _, said := range res.Said {
		if strings.Contains(said, "done to 0 commits") {
			t.Errorf("a fault met nothing: %s", said)
		}
	}
}

// judged does a run with the tests' own gateway and fails for what the checker finds.
func judged(t *testing.T, p Plan, names []string) *Result {
	t.Helper()
	faults, err := FaultsNamed(names...)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := program()
	if err != nil {
		t.Fatal(err)
	}
	p.Faults, p.Load, p.Dir, p.Postgres, p.Gateway = faults, 5*time.Second, artefacts(t), server(t), exe
	res, err := Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if v := res.Report.Violations; len(v) == 1 && v[0].Rule == history.Void { // the machine had other work
		t.Log(v[0], "; once more, for longer")
		p.Load, p.Dir = 4*p.Load, artefacts(t)
		if res, err = Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range res.Report.Violations {
		t.Error(v)
	}
	t.Logf("%d acknowledged, %d refused, %d unknown, %d losses", res.Report.Acknowledged, res.Report.Refused, res.Report.Unknown, res.Report.Losses)
	return res
}

func TestLongAGatewayThatIsWrongIsCaught(t *testing.T) {
	lookAtSources(t)
	t.Parallel()
	// Those that show at once; the others take a campaign.
	for name, rule := range map[string]history.Rule{
		"version not compared":                history.OneHolder,
		"request id taken as new":             history.OneAnswer,
		"blind retry after an unknown commit": history.RefusedDone,
		"SQLite with synchronous=OFF":         history.HoldLost,
		"answered before the commit":          history.HoldLost,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isCaught(t, name, rule)
		})
	}
}

// isCaught tries a plant until the rule has noticed it.
func isCaught(t *testing.T, name string, rule history.Rule) {
	t.Helper()
	all := plants()
	i := slices.IndexFunc(all, func(p plant) bool { return p.Name == name })
	if i < 0 {
		t.Fatal("there is no such plant")
	}
	c, err := tryPlant(t.Context(), PlantConfig{Options: Options{Postgres: server(t)}, Dir: t.TempDir(), Runs: 4, UntilCaught: true, Load: 3 * time.Second}, all[i])
	if err != nil {
		t.Fatal(err)
	}
	if c.rules[string(rule)] == 0 {
		t.Errorf("found %v in %d runs, want %q", c.rules, c.runs, rule)
	}
}

// everyBuild are the plants with what each gateway of their axis has, and that alone.
func everyBuild() []plant {
	all := plants()
	for i := range all {
		if all[i].File {
			all[i].Patches = slices.Concat(all[i].axis().patches(), all[i].Patches)
		}
	}
	return append(all, plant{Name: "wrong clock", Patches: wrongClock()})
}

func axisOf(t *testing.T, name string) Axis {
	t.Helper()
	a, err := AxisNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A gateway on a file: its disk is full, fails, and forgets what was not synced.
func TestLongWhatAGatewayOnAFileAnsweredSurvivesCrashes(t *testing.T) {
	lookAtSources(t)
	t.Parallel()
	o := Options{Axis: axisOf(t, "sqlite"), Points: 3}
	if err := Build(t.Context(), &o, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for seed, names := range map[uint64][]string{
		1: {"file-kill", "power-loss", "file-kill", "torn-tail", "file-kill", "file-stop", "power-loss"},
		2: {"full-disk", "power-loss", "failed-sync", "power-loss", "failed-sync", "file-kill", "power-loss"},
	} {
		faults, err := FaultsNamed(names...)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(t.Context(), Plan{Seed: seed, Faults: faults, Exactly: true, Options: o, Dir: artefacts(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d acknowledged, %d images", res.Report.Acknowledged, res.Images)
		for _, v := range res.Report.Violations {
			t.Error(v)
		}
	}
}

func TestEveryPlantFitsTheSources(t *testing.T) {
	lookAtSources(t)
	for _, p := range everyBuild() {
		if len(p.Patches) == 0 {
			t.Errorf("%s changes nothing", p.Name)
		}
		if _, err := FaultsNamed(p.Faults...); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if _, err := gateway.Overlay(t.Context(), t.TempDir(), p.Patches); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestLongEveryPlantCompiles(t *testing.T) {
	lookAtSources(t)
	for _, p := range everyBuild() {
		if err := gateway.Compile(t.Context(), t.TempDir(), p.Patches); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestAPassBreaksEachFaultAloneAndBesideEachOther(t *testing.T) {
	for _, a := range Axes {
		seen := make(map[string]bool)
		all := a.Combinations()
		for seed := range uint64(len(all)) {
			var names []string
			for _, f := range a.ForSeed(seed) {
				if f.Directed {
					t.Errorf("%s: a campaign draws %s", a.Name, f.Name)
				}
				names = append(names, f.Name)
			}
			seen[strings.Join(names, "+")] = true
		}
		if len(seen) != len(all) || seen[""] {
			t.Errorf("%s: %d of %d combinations differ", a.Name, len(seen), len(all))
		}
		for _, f := range faults {
			mine := !f.Directed && f.Engine == a.Engine && f.Chain == a.Chain && f.File == a.File
			if alone := seen[f.Name]; mine && !a.File && !alone {
				t.Errorf("%s: %s never comes alone", a.Name, f.Name)
			}
			if in := slices.ContainsFunc(all, func(c []Fault) bool { return c[len(c)-1].Name == f.Name }); mine && !in {
				t.Errorf("%s: %s never comes", a.Name, f.Name)
			}
		}
	}
	if seen := len(Axes[0].Combinations()); seen != len(Axes[0].own())*(len(Axes[0].own())+1)/2 {
		t.Errorf("%d combinations of %d faults", seen, len(Axes[0].own()))
	}
}

func TestACampaignGoesOnWhereItWasStopped(t *testing.T) {
	dir := t.TempDir()
	state := `{"seed":0,"faults":["kill"],"acknowledged":3000}` + "\n" + `{"seed":1,"faults":["pause"],"acknowledged":2000,"rules":["hole"],"violations":["x"]}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "state.jsonl"), []byte(state), 0o644); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	failed, err := Campaign(t.Context(), CampaignConfig{Passes: 0, Dir: dir, Out: &said}) // there is nothing left to do
	if err != nil || failed != 1 {
		t.Fatalf("%d failed, %v, want 1", failed, err)
	}
	for _, want := range []string{"2 histories, 5000 acknowledged", "kill 1, pause 1", "FAILED seed 1 (pause): x"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &said)
		}
	}
}

// The faults of commits know one by its text.
func TestACommitOfShardsIsKnownByItsText(t *testing.T) {
	module, err := gateway.Module(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module, "nonce/postgres/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found += strings.Count(string(text), shardCommit)
	}
	if found != 1 {
		t.Errorf("%q occurs %d times, want once", shardCommit, found)
	}
}
