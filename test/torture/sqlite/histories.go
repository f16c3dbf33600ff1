//go:build unix

package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"noncegate/test/lab/history"
)

// config is how histories are run. The zero value but for Dir is good for a
// campaign.
type config struct {
	// Dir takes the built gateways and everything about a history. What belongs to
	// one without a violation is removed.
	Dir string
	// Rounds is how many faults a history has; 0: 4.
	Rounds int
	// Points is how many moments of each round are judged at which nobody was
	// killed; 0: 8. Each costs about the reading of the whole file.
	Points int
	// Log, when not nil, gets a line for each history.
	Log io.Writer
}

// violation is a breach of a rule, and where it was seen.
type violation struct {
	history.Violation
	Where string `json:"where"`
}

// String is a line for people.
func (v violation) String() string { return v.Where + ": " + v.Violation.String() }

// result is what came of one history.
type result struct {
	Seed                           uint64
	Build                          string
	Mode                           string
	Faults                         []string
	Acknowledged, Refused, Unknown int // calls; 0 when it ended at a violation
	Images                         int // crash images that were judged
	Violations                     []violation
	Dir                            string // what is kept of a failure; "" otherwise
}

// builds are the gateways of the campaign.
type builds struct{ paths map[string]string }

// buildProduct builds them into cfg.Dir. The working directory must be within the module.
func buildProduct(ctx context.Context, cfg config) (*builds, error) {
	return buildAll(ctx, cfg, asItIs, checkpointing)
}

func buildAll(ctx context.Context, cfg config, variants ...variant) (*builds, error) {
	b := &builds{paths: map[string]string{}}
	for _, v := range variants {
		path, err := v.build(ctx, cfg.Dir)
		if err != nil {
			return nil, err
		}
		b.paths[v.name] = path
	}
	return b, nil
}

// runOne runs the history of a seed. Its error is one of the harness: whether the
// gateway is right, the violations tell.
func runOne(ctx context.Context, cfg config, b *builds, seed uint64) (*result, error) {
	chance := rand.New(rand.NewPCG(seed, 1))
	build := checkpointing.name
	if chance.IntN(4) == 0 && b.paths[asItIs.name] != "" {
		build = asItIs.name
	}
	faults := make([]fault, cmp.Or(cfg.Rounds, 4))
	for i := range faults {
		faults[i] = anyFault(chance)
	}
	return runHistory(ctx, cfg, b, build, seed, faults)
}

func runHistory(ctx context.Context, cfg config, b *builds, build string, seed uint64, faults []fault) (*result, error) {
	if cfg.Points == 0 {
		cfg.Points = 8
	}
	dir := filepath.Join(cfg.Dir, fmt.Sprintf("%s-%d", build, seed))
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("history %d: %w", seed, err)
	}
	r := newRun(cfg, b.paths[build], seed, dir)
	r.result.Build, r.result.Mode = build, r.launch.mode
	err := r.history(ctx, faults)
	if err == nil && len(r.result.Violations) == 0 {
		err = os.RemoveAll(dir)
	} else {
		r.result.Dir = dir
	}
	if err != nil {
		return r.result, fmt.Errorf("history %d: %w", seed, err)
	}
	if cfg.Log != nil {
		fmt.Fprintln(cfg.Log, r.result)
	}
	return r.result, nil
}

// String is a line for people, and one for each violation.
func (r *result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sqlite seed %d %s %s: %d acknowledged, %d refused, %d unknown, %d images; %s", r.Seed, r.Build, r.Mode,
		r.Acknowledged, r.Refused, r.Unknown, r.Images, strings.Join(r.Faults, " · "))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n  VIOLATION %v", v)
	}
	if r.Dir != "" {
		fmt.Fprintf(&b, "\n  kept in %s", r.Dir)
	}
	return b.String()
}

// report is the sum of many histories.
type report struct {
	Histories, Acknowledged, Refused, Unknown, Images int
	Faults                                            map[string]int // rounds
	Failed                                            []*result
}

// Add counts a history.
func (s *report) Add(r *result) {
	s.Histories++
	s.Acknowledged += r.Acknowledged
	s.Refused += r.Refused
	s.Unknown += r.Unknown
	s.Images += r.Images
	if s.Faults == nil {
		s.Faults = map[string]int{}
	}
	for _, f := range r.Faults {
		s.Faults[f]++
	}
	if len(r.Violations) > 0 {
		s.Failed = append(s.Failed, r)
	}
}

// String is the report for people.
func (s *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d histories, %d calls acknowledged, %d refused, %d unknown, %d crash images judged, %d histories with a violation",
		s.Histories, s.Acknowledged, s.Refused, s.Unknown, s.Images, len(s.Failed))
	for _, f := range slices.Sorted(maps.Keys(s.Faults)) {
		fmt.Fprintf(&b, "\n  %5d  %s", s.Faults[f], f)
	}
	if n := s.Acknowledged; n > 0 && len(s.Failed) == 0 {
		fmt.Fprintf(&b, "\nno violation: with 95 %% confidence fewer than %.1g of acknowledged calls have one (rule of three)", 3/float64(n))
	}
	return b.String()
}

// stateFile lists in config.Dir the histories that are finished, a line each.
const stateFile = "sqlite.jsonl"

// runAll runs the histories of some seeds, one after the other, until ctx ends.
// Those that an earlier call has finished in the same folder are not run again. The
// report is of all that are finished, also with an error.
func runAll(ctx context.Context, cfg config, seeds ...uint64) (*report, error) {
	report := &report{}
	journal := filepath.Join(cfg.Dir, stateFile)
	finished, err := history.Finished[*result](journal)
	if err != nil {
		return report, err
	}
	b, err := buildProduct(ctx, cfg)
	if err != nil {
		return report, err
	}
	for _, seed := range seeds {
		if i := slices.IndexFunc(finished, func(r *result) bool { return r.Seed == seed }); i >= 0 {
			report.Add(finished[i])
			continue
		}
		r, err := runOne(ctx, cfg, b, seed)
		if ctx.Err() != nil {
			return report, nil
		}
		if err != nil {
			return report, errors.Join(err, fmt.Errorf("what there is of it is in %s", r.Dir))
		}
		report.Add(r)
		if err := history.Finish(journal, r); err != nil {
			return report, err
		}
	}
	return report, nil
}
