//go:build unix

package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/scripts/loadtest/traffic"
	"noncegate/test/lab/guarded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// short measures next to nothing.
var short = Config{Rounds: 2, Duration: 100 * time.Millisecond, Idle: 10 * time.Millisecond}

// lines collects progress, and may call a function when a line has come.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	seen func()
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen != nil {
		l.seen()
	}
	return l.text.Write(p)
}

func few(signers int) traffic.Load { return closed(8, 4, signers) }

// testScenes has every server and every way to drive it, with little of each.
func testScenes() []Scene {
	small := stored{signers: 100, each: 20}
	status := few(10)
	status.Mix = traffic.Mix{Allocate: 1, Status: 1}
	return []Scene{
		{Name: "servers", Sides: sides(few(10), echoCoalesce, echo, gatewayPostgres, gatewayChain, naive, redisIncr, gatewaySQLite)},
		{Name: "drives", factor: 2, Sides: []Side{
			{Name: "open", server: echo, load: open(20, 1000)},
			{Name: "idle", server: gatewaySQLite, load: closed(50, 1, 10), drive: idle(short.Idle)},
			{Name: "slow", server: gatewaySQLite, load: open(20, 500), drive: slow(0.2, true)},
			{Name: "not slow", server: gatewaySQLite, load: open(20, 500), drive: slow(0.2, false)},
			{Name: "overload", server: echo, load: status, drive: overload},
			{Name: "allocations", server: echo, load: allocations(few(10))},
			{Name: "filled", server: gatewayPostgres, load: few(small.signers), stored: small},
		}},
		{Name: "void", Sides: []Side{
			{Name: "refuses", server: echo, load: status},
			{Name: "does not start", server: "fast", load: few(1)},
		}},
	}
}

func TestLongEveryServerAndEveryDriveIsMeasuredInAlternation(t *testing.T) {
	progress := new(lines)
	c := short
	c.Progress = progress
	table := []Row{
		{Name: "r", Scene: "servers", Over: gatewayPostgres, Under: echo, figure: perSecond, Target: atLeast(1e-6)},
		{Name: "i", Scene: "drives", Over: "idle", figure: perConnection, Target: atMost(1 << 30)},
		{Name: "v", Scene: "void", Over: "refuses", Under: "does not start", figure: perSecond},
	}
	r, err := run(t.Context(), c, testScenes(), table)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Scenes[:2] {
		for _, side := range s.Sides {
			if len(side.Samples) != 2 || side.void() != "" || side.Samples[0].Acknowledged == 0 {
				t.Errorf("%s, %s: %+v, want two samples that count", s.Name, side.Name, side.Samples)
			}
		}
	}
	for i, verdict := range []string{Met, Met, Void} {
		if got := r.Rows[i]; got.Verdict != verdict {
			t.Errorf("row %+v, want it %s", got, verdict)
		}
	}
	void := r.Scenes[2].Sides
	if why := void[0].void(); !strings.Contains(why, "refused: method_not_found") {
		t.Errorf("a run with refusals is void because of %q", why)
	}
	if why := void[1].void(); !strings.Contains(why, `unknown kind "fast"`) {
		t.Errorf("a server that ends at once is void because of %q, want its words", why)
	}
	if r.Host.PostgreSQL == "" || r.Host.Redis == "" || r.Host.FsyncMs <= 0 || r.Host.Cores == 0 || r.Interrupted {
		t.Errorf("host is %+v", r.Host)
	}
	inOrder(t, progress.text.String())
}

// inOrder looks at the order of the first scene's measurements.
func inOrder(t *testing.T, progress string) {
	t.Helper()
	kinds := []string{echoCoalesce, echo, gatewayPostgres, gatewayChain, naive, redisIncr, gatewaySQLite}
	var want []string
	for _, kind := range kinds {
		want = append(want, "servers, round 1/2, "+kind+":")
	}
	slices.Reverse(kinds)
	for _, kind := range kinds {
		want = append(want, "servers, round 2/2, "+kind+":")
	}
	got := strings.Split(progress, "\n")
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("line %d is %q, want %s: every second round goes backwards", i, got[i], want[i])
		}
	}
}

func TestLongAnInterruptedBenchReportsWhatItHasAndLeavesNothing(t *testing.T) {
	before := leftovers(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := short
	c.Rounds, c.Progress = 100, &lines{seen: cancel}
	only := []Scene{{Name: "s", Sides: sides(few(10), gatewaySQLite, echo)}}
	r, err := run(ctx, c, only, []Row{{Name: "r", Scene: "s", Over: gatewaySQLite, Under: echo, figure: perSecond}})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Scenes[0].Sides; !r.Interrupted || len(got[0].Samples) != 1 || len(got[1].Samples) != 0 {
		t.Errorf("report %+v, want one sample of the first side, interrupted", r)
	}
	if after := leftovers(t); !slices.Equal(after, before) {
		t.Errorf("directories for temporary files hold %v, before %v", after, before)
	}
}

func leftovers(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "bench") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestAFilledDatabaseIsMadeOnce(t *testing.T) {
	k := stored{signers: 100, each: 5}
	a, err := openArena(t.Context(), new(lines), []Scene{{Sides: []Side{{server: gatewayPostgres}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.close(); err != nil {
			t.Error(err)
		}
	}()
	name, err := a.filledDatabase(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := a.filledDatabase(t.Context(), k); again != name || err != nil {
		t.Errorf("asked for again: %s, %v; want the same", again, err)
	}
	a.forgetFilled(t.Context())
	if len(a.filled) != 0 {
		t.Errorf("remembered: %v", a.filled)
	}
}

func TestServersAreStartedAsTheReportSays(t *testing.T) {
	t.Setenv("NONCEGATE_MAX_HOLDS", "1")
	if slices.ContainsFunc(cleanEnvironment(), func(s string) bool { return strings.HasPrefix(s, "NONCEGATE_") }) {
		t.Error("settings of the environment reach the gateway")
	}
	room, err := guarded.Open("benchtest", nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{room: room}
	defer a.close()
	dir := room.Dir()
	for kind, want := range map[string]string{
		gatewayPostgres: "/gateway serve --store S --listen L --admin-listen A --max-holds 4096",
		gatewaySQLite:   "/gateway serve --store S --listen L --admin-listen A --max-holds 4096",
		naive:           "/refserver naive -listen L -database S",
		redisIncr:       "/refserver redis-incr -listen L -redis S",
		echo:            "/refserver echo -listen L",
	} {
		args := a.command(kind, "L", "A", store{url: "S"})
		if got := strings.Join(args, " "); got != dir+want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	args := a.command(gatewayEngine, "L", "A", store{url: "S", redis: "R"})
	if !slices.Contains(args, "--redis") {
		t.Errorf("a gateway that Redis serves: %s", args)
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

func TestResidentMemoryIsReadFromProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		if got := residentBytes(os.Getpid()); got != 0 {
			t.Errorf("without /proc: %v bytes, want 0", got)
		}
		return
	}
	if got := residentBytes(os.Getpid()); got < 1<<20 || got > 1<<33 {
		t.Errorf("this process has %v bytes", got)
	}
	if got := residentBytes(-1); got != 0 {
		t.Errorf("a process that is not there has %s", fmt.Sprint(got))
	}
}
