//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"noncegate/internal/pgtest"
)

// setUpTimeout bounds building and starting, and what each measurement costs
// beside its load.
const setUpTimeout = 5 * time.Minute

// bench is one side-by-side comparison.
type bench struct {
	load    load
	rounds  int
	servers []string
	out     io.Writer
}

// result is what a bench found out.
type result struct {
	Host        host                `json:"host"`
	Rounds      int                 `json:"rounds"`
	Runs        map[string][]report `json:"runs"` // by server, one a round
	Comparisons []comparison        `json:"comparisons,omitempty"`
}

// comparison is one server's acknowledged requests per second over another's,
// of the same round.
type comparison struct {
	Server    string    `json:"server"`
	Reference string    `json:"reference"`
	Ratios    []float64 `json:"ratios"`
	Median    float64   `json:"median"`
}

// benchCommand parses flags, runs the bench and reports it.
func benchCommand(ctx context.Context, args []string, out io.Writer) error {
	b := bench{load: defaultLoad, out: out}
	flags := flag.NewFlagSet("loadtest bench", flag.ContinueOnError)
	flags.IntVar(&b.rounds, "rounds", 5, "`times` every server is measured")
	servers := flags.String("servers", strings.Join(contestants, ","), "`names` of the servers, in the order of a round")
	file := flags.String("json", "", "`file` to write everything to as JSON")
	b.load.register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if b.servers, err = parseContestants(*servers); err != nil {
		return err
	}
	if b.rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	if err := b.load.validate(); err != nil {
		return err
	}
	r, err := b.run(ctx)
	if err != nil {
		return err
	}
	r.print(out)
	if *file == "" {
		return nil
	}
	return writeFile(*file, r)
}

// run sets everything up, measures, and leaves nothing behind.
func (b *bench) run(ctx context.Context) (r result, err error) {
	runs := time.Duration(b.rounds * len(b.servers))
	limit := setUpTimeout + runs*(b.load.warmup+b.load.duration+readyTimeout+stopTimeout+drainGrace)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dir, err := os.MkdirTemp("", "loadtest")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	if err := b.build(ctx, dir); err != nil {
		return result{}, err
	}
	pg, err := pgtest.Start("shared_buffers = 256MB", "max_wal_size = 4GB")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	r = result{Rounds: b.rounds, Runs: make(map[string][]report)}
	if r.Host, err = describeHost(ctx, pg); err != nil {
		return result{}, err
	}
	if err := b.measure(ctx, &arena{dir: dir, pg: pg}, r.Runs); err != nil {
		return result{}, err
	}
	r.compare()
	return r, nil
}

// build compiles what the chosen servers need into dir.
func (b *bench) build(ctx context.Context, dir string) error {
	var packages []string
	for _, name := range b.servers {
		pkg := "noncegate/refserver"
		if strings.HasPrefix(name, "gateway") {
			pkg = "noncegate/cmd/gateway"
		}
		if !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", dir + "/"}, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// measure runs the rounds. Every second one goes backwards, so that what drifts
// while the bench runs favours nobody.
func (b *bench) measure(ctx context.Context, a *arena, runs map[string][]report) error {
	order := slices.Clone(b.servers)
	for round := range b.rounds {
		for _, name := range order {
			r, err := a.measure(ctx, name, b.load)
			if err != nil {
				return err
			}
			runs[name] = append(runs[name], r)
			fmt.Fprintf(b.out, "round %d/%d %s: %.0f/s, p99 %.2f ms, %.0f errors\n",
				round+1, b.rounds, name, r.PerSecond, r.LatencyMs.P99, r.failures())
		}
		slices.Reverse(order)
	}
	return nil
}

// compare fills in the ratios of the servers that took part.
func (r *result) compare() {
	for _, pair := range comparisons {
		server, reference := r.Runs[pair[0]], r.Runs[pair[1]]
		if len(server) == 0 || len(reference) == 0 {
			continue
		}
		c := comparison{Server: pair[0], Reference: pair[1]}
		for i := range server {
			c.Ratios = append(c.Ratios, server[i].PerSecond/reference[i].PerSecond)
		}
		c.Median = median(c.Ratios)
		r.Comparisons = append(r.Comparisons, c)
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// print is the result for people.
func (r result) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s\n", r.Host)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nmedians of %d\tacknowledged/s\tp50 ms\tp99 ms\terrors\n", r.Rounds)
	for _, name := range contestants {
		if runs := r.Runs[name]; len(runs) > 0 {
			fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t%.0f\n", name,
				medianOf(runs, func(r report) float64 { return r.PerSecond }),
				medianOf(runs, func(r report) float64 { return r.LatencyMs.P50 }),
				medianOf(runs, func(r report) float64 { return r.LatencyMs.P99 }),
				medianOf(runs, report.failures))
		}
	}
	for i, c := range r.Comparisons {
		if i == 0 {
			fmt.Fprintln(w, "\nratio\tmedian\tof the rounds")
		}
		fmt.Fprintf(w, "%s ÷ %s\t%.2f\t%.2f\n", c.Server, c.Reference, c.Median, c.Ratios)
	}
}

// medianOf is the median of one figure of the reports.
func medianOf(runs []report, figure func(report) float64) float64 {
	values := make([]float64, len(runs))
	for i := range runs {
		values[i] = figure(runs[i])
	}
	return median(values)
}

// failures is how many replies were errors and how many connections were lost.
func (r report) failures() float64 {
	n := int64(len(r.Lost))
	for _, count := range r.Errors {
		n += count
	}
	return float64(n)
}

func writeFile(path string, r result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, r), f.Close())
}
