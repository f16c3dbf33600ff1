//go:build unix

// Package bench measures the gateway beside its reference servers on one machine: the rows of rows.go, which are data.
//
// It promises: a ratio is of two measurements of the same round, which follow one another; every second round goes backwards, so that what
// drifts favours nobody; each measurement begins on a fresh store (or on the filled one it asks for) with nothing of the one before left to
// be written back; a measurement in which nothing was acknowledged, or anything failed, makes its rows void and is never a figure; no
// process and no file is left, however the bench ends.
//
// Figures of two machines, or of two times of one shared machine, cannot be compared; ratios can, with care. Everything runs in the
// caller's goroutine; the load and the private servers own goroutines while they run.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/scripts/loadtest/result"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// Config says what to measure and how long. Its tags are those of the command line.
type Config struct {
	Rows     []string      `placeholder:"NAME,…" help:"Rows to measure, or all (docs/bench.md). Default: all but soak and million."`
	Rounds   int           `default:"5" help:"How often each side is measured; every second round goes backwards."`
	Warmup   time.Duration `default:"1s" help:"Time before measuring, once all connections are open."`
	Duration time.Duration `default:"5s" help:"Time measured; some rows take a multiple of it."`
	Idle     time.Duration `default:"15s" help:"How long connections are left alone before their memory is read."`
	Soak     time.Duration `default:"10m" help:"How long the soak lasts. Its peak is found before, in three tenths of the time."`
	Progress io.Writer     `kong:"-"` // gets a line for each measurement
}

const (
	// maxMeasured keeps a hold, of 60 s, from expiring during a measurement.
	maxMeasured = 50 * time.Second
	// maxIdle keeps the gateway from closing connections that answer no ping, after 75 s.
	maxIdle = time.Minute
	// cleanTimeout bounds what is put in order after a measurement.
	cleanTimeout = time.Minute
)

// Validate is called by the parser of the command line.
func (c *Config) Validate() error {
	chosen, err := chooseRows(c.Rows)
	longest := 1
	for _, r := range chosen {
		longest = max(longest, r.times)
	}
	switch {
	case err != nil:
		return err
	case c.Rounds < 1 || c.Rounds > 1000:
		return errors.New("--rounds must be 1 to 1000")
	case c.Warmup < 0 || c.Idle < 0 || c.Idle > maxIdle:
		return fmt.Errorf("--warmup and --idle must not be negative, and --idle at most %v: no ping is answered meanwhile", maxIdle)
	case c.Duration <= 0 || c.Soak <= 0:
		return errors.New("--duration and --soak must be above 0")
	case c.Warmup+time.Duration(longest)*c.Duration > maxMeasured:
		return fmt.Errorf("--warmup and %d times --duration must be at most %v together, so that no hold expires", longest, maxMeasured)
	}
	return nil
}

// Run measures rows and compares them. A void measurement makes its rows void; the end of ctx the report Interrupted. Neither is an error.
func Run(ctx context.Context, c Config) (r *Report, err error) {
	chosen, err := chooseRows(c.Rows)
	if err != nil {
		return nil, err
	}
	scenes, begin := scenesOf(chosen), time.Now()
	a, err := openArena(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	r = &Report{Settings: c.settings(), Scenes: scenes}
	if r.Host, err = describeHost(ctx, a); err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	for _, s := range scenes {
		a.measureScene(ctx, s)
	}
	r.Interrupted, r.Seconds = ctx.Err() != nil, time.Since(begin).Seconds()
	for _, row := range chosen {
		r.Rows = append(r.Rows, row.judge())
	}
	return r, nil
}

// arena is where servers are measured: the programs, the private PostgreSQL, and a folder for all they leave. One goroutine has it.
type arena struct {
	Config
	room  *guarded.Room
	pg    *pgtest.Server
	admin *pgx.Conn // to PostgreSQL, for checkpoints
	full  string    // database with a million signers; "": not made yet
	runs  int       // servers so far, for names of files
}

// openArena builds the programs and starts the PostgreSQL. The caller must close it.
func openArena(ctx context.Context, c Config) (*arena, error) {
	room, err := guarded.Open("bench", nil)
	if err != nil {
		return nil, err
	}
	a := &arena{Config: c, room: room}
	build := exec.CommandContext(ctx, "go", "build", "-o", room.Dir()+"/", "noncegate/cmd/gateway", "noncegate/test/refserver")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build: %w\n%s", err, out), a.close())
	}
	if a.pg, err = pgtest.Start(postgresSettings...); err == nil {
		a.admin, err = pgx.Connect(ctx, a.pg.URL("postgres"))
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *arena) close() error {
	var err error
	if a.admin != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		defer cancel()
		a.admin.Close(ctx) // the server goes away too
	}
	if a.pg != nil {
		err = a.pg.Close()
	}
	return errors.Join(err, a.room.Close())
}

// measureScene measures every side once a round, until ctx ends. What is void is noted, and the other sides go on.
func (a *arena) measureScene(ctx context.Context, s *Scene) {
	all := a.Rounds
	if s.once {
		all = 1
	}
	for round, i := range result.Alternate(all, len(s.Sides), true) {
		side := s.Sides[i]
		run, err := a.measure(ctx, s.times, &side.side)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			run = &result.Run{Void: err.Error()}
		}
		side.Runs = append(side.Runs, run)
		fmt.Fprintf(a.Progress, "%s, round %d/%d, %s: %s\n", s.Name, round+1, all, side.Name, told(run))
	}
}

// measure starts a side's servers on a fresh store, loads them, and stops them.
func (a *arena) measure(ctx context.Context, times int, side *side) (run *result.Run, err error) {
	a.runs++
	st := &stand{arena: a, side: side}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.open(ctx); err != nil {
		return nil, err
	}
	// What earlier measurements wrote is brought to disk before this one begins.
	if _, err := a.admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if err := st.start(ctx); err != nil {
		return nil, err
	}
	load, drive := side.load, side.drive
	for _, s := range st.servers {
		load.URLs = append(load.URLs, s.url)
	}
	load.Warmup, load.Duration = a.Warmup, time.Duration(times)*a.Duration
	if drive == nil {
		drive = plain
	}
	if run, err = drive(ctx, st, load); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, st.servers[0].LogTail(logBytes))
	}
	return run, nil
}

// Host is what figures depend on.
type Host struct {
	Date       string  `json:"date"`
	CPU        string  `json:"cpu"` // "": the system does not tell
	Cores      int     `json:"cores"`
	Go         string  `json:"go"`
	PostgreSQL string  `json:"postgresql"`
	Commit     string  `json:"commit"`  // "": git cannot tell; with a plus: the tree was changed since
	FsyncMs    float64 `json:"fsyncMs"` // median, on the database's disk
}

var cpuModel = regexp.MustCompile(`model name\t: (.*)`)

func describeHost(ctx context.Context, a *arena) (h Host, err error) {
	h = Host{Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(), Go: runtime.Version()}
	info, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if model := cpuModel.FindSubmatch(info); model != nil {
		h.CPU = string(model[1])
	}
	if head, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty=+", "--exclude=*").Output(); err == nil {
		h.Commit = strings.TrimSpace(string(head))
	}
	if err := a.admin.QueryRow(ctx, "SHOW server_version").Scan(&h.PostgreSQL); err != nil {
		return h, err
	}
	h.FsyncMs, err = fsyncMs(a.pg.Dir())
	return h, err
}

// String is the host for people.
func (h Host) String() string {
	return fmt.Sprintf("%s, %d cores %s, %s, PostgreSQL %s, commit %s, an fsync takes %.2f ms (median)",
		h.Date, h.Cores, h.CPU, h.Go, h.PostgreSQL, h.Commit, h.FsyncMs)
}

// fsyncMs is the median time of writing a page of a log and syncing it, as a commit does.
func fsyncMs(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "fsync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8<<10)
	var took []float64
	for range 100 {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	return result.Median(took), nil
}
