//go:build unix

// Package bench measures the gateway beside its reference servers on one machine.
//
// It promises: a ratio is of two measurements of the same round, which follow one
// another; every second round goes backwards, so that what drifts favours nobody;
// each measurement begins on a fresh store (or on the filled one it asks for) with
// nothing of the one before left to be written back; a measurement in which
// nothing was acknowledged, or anything failed, makes its rows void and is never a
// figure; no process and no file is left, however the bench ends.
//
// It does not promise that figures of two machines, or of two times of one shared
// machine, can be compared; ratios can, with care.
//
// A [Report] holds scenes and rows. A scene is a set of sides that are measured in
// alternation: a server, a load and what its store holds. A row is a figure of one
// side over that of another, or a figure alone, with its target if it has one.
//
// Everything runs in the caller's goroutine; the load and the private servers own
// goroutines while they run.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/rounds"
)

// Config says what to measure and how long.
type Config struct {
	// Only names the rows (of Run) or the scenes (of Scale and Nodes) to measure; empty
	// means the default ones.
	Only []string
	// Rounds is how often each side is measured, at least 1.
	Rounds int
	// Warmup passes after the last connection is open and before measuring.
	Warmup time.Duration
	// Duration is the measured time of one side, above 0. A scene may take a
	// multiple of it, and says so.
	Duration time.Duration
	// Idle is how long connections are left alone before their memory is read.
	Idle time.Duration
	// Soak is how long a soak lasts, without its peak.
	Soak time.Duration
	// Progress gets a line for each measurement; nil: nobody is told.
	Progress io.Writer
}

// The most that a measurement costs beside its load, and that the rest does.
const (
	sideTimeout  = time.Minute
	fillTimeout  = 20 * time.Minute
	setUpTimeout = 10 * time.Minute
	// maxMeasured keeps a hold, of 60 s, from expiring during a measurement.
	maxMeasured = 50 * time.Second
	// maxIdle keeps the gateway from closing connections that answer no ping,
	// which it does after 75 s.
	maxIdle = time.Minute
	maxSoak = time.Hour
)

// ConfigError says which flag breaks which rule.
type ConfigError struct{ Flag, Rule string }

func (e *ConfigError) Error() string { return e.Flag + " " + e.Rule }

// known returns a *ConfigError when one of the names is none of the words.
func known(flag string, names, words []string) error {
	for _, name := range names {
		if !slices.Contains(words, name) {
			return &ConfigError{flag, fmt.Sprintf("knows no %q, only %s", name, strings.Join(words, ", "))}
		}
	}
	return nil
}

var errTooLong = errors.New("the bench took longer than it may")

// validate returns a *ConfigError for the first flag that breaks its rule.
func (c *Config) validate(scenes []Scene) error {
	longest := 1
	for _, s := range scenes {
		longest = max(longest, s.times())
	}
	switch {
	case c.Rounds < 1 || c.Rounds > 1000:
		return &ConfigError{"--rounds", "must be 1 to 1000"}
	case c.Warmup < 0 || c.Idle < 0:
		return &ConfigError{"--warmup and --idle", "must not be negative"}
	case c.Idle > maxIdle:
		return &ConfigError{"--idle", fmt.Sprintf("must be at most %v: nobody answers pings meanwhile", maxIdle)}
	case c.Soak < 0 || c.Soak > maxSoak:
		return &ConfigError{"--soak", fmt.Sprintf("must not be negative, and at most %v", maxSoak)}
	case c.Duration <= 0:
		return &ConfigError{"--duration", "must be above 0"}
	case c.Warmup+time.Duration(longest)*c.Duration > maxMeasured:
		rule := fmt.Sprintf("and %d times --duration must be at most %v together, so that no hold expires", longest, maxMeasured)
		return &ConfigError{"--warmup", rule}
	}
	return nil
}

// Run measures the rows of the table and compares them. A measurement
// that is void makes its rows so and is no error; neither is the end of ctx, after
// which the report is what was measured until then, Interrupted.
func Run(ctx context.Context, c Config) (*Report, error) {
	chosen, err := chooseRows(c.Only)
	if err != nil {
		return nil, err
	}
	return run(ctx, c, scenesOf(chosen, scenes(c)), chosen)
}

// Scale measures how throughput, latency and memory grow with the number of
// connections and with what is stored. It is Run without rows.
func Scale(ctx context.Context, c Config) (*Report, error) {
	chosen, err := chooseScenes(c.Only, scaleScenes())
	if err != nil {
		return nil, err
	}
	return run(ctx, c, chosen, nil)
}

// Nodes measures many nodes over one PostgreSQL: what they answer together beside
// one node, what they ask of the database while nobody asks them, and how often
// they take leases and get into one another's way. It is as Run in all else.
func Nodes(ctx context.Context, c Config) (*Report, error) {
	size := nodesSizes{calls: 1_000, fewIdle: 1_000, manyIdle: 200_000, rest: 3 * time.Second}
	chosen, err := chooseScenes(c.Only, nodesScenes(c, size))
	if err != nil {
		return nil, err
	}
	return run(ctx, c, chosen, nodesRows(chosen))
}

// run sets everything up, measures, and leaves nothing behind.
func run(ctx context.Context, c Config, scenes []Scene, rows []Row) (r *Report, err error) {
	if err := c.validate(scenes); err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	begin := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, c.limit(scenes), errTooLong)
	defer cancel()
	a, err := openArena(limited, c.Progress, scenes)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	host, err := describeHost(limited, a)
	if err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	r = &Report{Host: host, Settings: c.settings(a)}
	for _, s := range scenes {
		r.Scenes = append(r.Scenes, a.measureScene(limited, c, s))
		if limited.Err() != nil {
			break
		}
	}
	if errors.Is(context.Cause(limited), errTooLong) {
		return nil, fmt.Errorf("%w: %v", errTooLong, c.limit(scenes))
	}
	r.Interrupted = ctx.Err() != nil
	r.Seconds = time.Since(begin).Seconds()
	r.Rows = judge(rows, r.Scenes)
	return r, nil
}

// limit bounds the whole run.
func (c *Config) limit(scenes []Scene) time.Duration {
	total := setUpTimeout
	for _, s := range scenes {
		if s.once {
			total += time.Duration(len(s.Sides)) * c.Soak
		}
		for _, side := range s.Sides {
			servers := time.Duration(max(1, len(side.nodes)))
			one := servers*sideTimeout + c.Warmup + time.Duration(s.times())*c.Duration + c.Idle
			total += time.Duration(s.rounds(*c)) * one
			if onRedis(side.server) {
				total += time.Duration(s.rounds(*c)) * (enterTimeout + shipTimeout)
			}
			if side.stored != (stored{}) {
				total += fillTimeout
			}
		}
	}
	return total
}

// measureScene measures every side once a round. What is void is noted, and the
// other sides go on: the rows they belong to may be of use.
func (a *arena) measureScene(ctx context.Context, c Config, s Scene) Scene {
	s.Sides = slices.Clone(s.Sides)
	all := s.rounds(c)
	for round, i := range rounds.Alternate(all, len(s.Sides), rounds.BackAndForth) {
		sample := a.measure(ctx, c, s, s.Sides[i])
		if ctx.Err() != nil {
			return s
		}
		s.Sides[i].Samples = append(s.Sides[i].Samples, sample)
		fmt.Fprintf(c.Progress, "%s, round %d/%d, %s: %s\n", s.Name, round+1, all, s.Sides[i].Name, sample)
	}
	a.forgetFilled(ctx)
	return s
}
