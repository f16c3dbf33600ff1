//go:build unix

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"noncegate/test/lab/history"
)

// CampaignConfig says how many runs, and where what they leave goes.
type CampaignConfig struct {
	Options
	// Passes is how often each combination of the axis is broken: that many runs there are.
	Passes int
	// Dir gets state.jsonl, one line a run that was done, which are not done again unless they were void, and a folder for each that failed.
	Dir string
	// Limit ends the campaign early; what was not done is done by the next. 0: none.
	Limit time.Duration
	Out   io.Writer // a line a run, and the report
}

// done is one line of state.jsonl.
type done struct {
	Seed   uint64
	Faults string
	Report *history.Report
}

// Campaign does the runs that state.jsonl does not list yet or lists as void, and reports on all. It returns how many failed.
func Campaign(ctx context.Context, cfg CampaignConfig) (failed int, err error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return 0, err
	}
	state := filepath.Join(cfg.Dir, "state.jsonl")
	journal, err := os.OpenFile(state, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return 0, err
	}
	defer journal.Close()
	var runs []done
	for lines := json.NewDecoder(journal); lines.More(); {
		var d done
		if err := lines.Decode(&d); err != nil {
			return 0, fmt.Errorf("%s: %w", state, err)
		}
		if !slices.Equal(d.Report.Rules(), []history.Rule{history.Void}) { // else the machine had other work, and the run is done again
			runs = append(runs, d)
		}
	}
	began := time.Now()
	for seed := range uint64(cfg.Passes * len(cfg.Combinations())) {
		if slices.ContainsFunc(runs, func(d done) bool { return d.Seed == seed }) {
			continue
		}
		if ctx.Err() != nil || cfg.Limit > 0 && time.Since(began) > cfg.Limit {
			fmt.Fprintf(cfg.Out, "not all runs were done; the same command goes on from here\n")
			break
		}
		d, err := cfg.one(ctx, seed)
		if err != nil {
			return 0, errors.Join(fmt.Errorf("seed %d: %w", seed, err), ctx.Err())
		}
		runs = append(runs, d)
		if err := json.NewEncoder(journal).Encode(d); err != nil {
			return 0, err
		}
	}
	return report(cfg.Out, runs), nil
}

func (cfg *CampaignConfig) one(ctx context.Context, seed uint64) (done, error) {
	p := cfg.ForSeed(seed)
	p.Dir = cfg.Dir
	res, err := Run(ctx, p)
	if err != nil {
		return done{}, err
	}
	r, verdict := res.Report, "ok"
	if !r.OK() {
		verdict = fmt.Sprintf("FAILED %v, see %s", r.Rules(), res.Kept)
	}
	fmt.Fprintf(cfg.Out, "seed %3d %-32s %5d acknowledged %5d refused %4d unknown %5.1fs %s\n",
		seed, names(p.Faults), r.Acknowledged, r.Refused, r.Unknown, res.Took.Seconds(), verdict)
	for _, said := range res.Said {
		if strings.HasPrefix(said, "stall: ") {
			fmt.Fprintf(cfg.Out, "         %s\n", said)
		}
	}
	return done{seed, names(p.Faults), r}, nil
}

func report(w io.Writer, runs []done) (failed int) {
	var all history.Report
	for _, d := range runs {
		r := d.Report
		all.Acknowledged, all.Refused, all.Unknown = all.Acknowledged+r.Acknowledged, all.Refused+r.Refused, all.Unknown+r.Unknown
		if !r.OK() {
			failed++
			fmt.Fprintf(w, "FAILED seed %d (%s): %v\n", d.Seed, d.Faults, r.Violations)
		}
	}
	fmt.Fprintf(w, "\n%d histories, %d acknowledged calls, %d refused, %d of unknown outcome\n", len(runs), all.Acknowledged, all.Refused, all.Unknown)
	if failed == 0 && all.Acknowledged > 0 {
		// No event in n trials: with 95 % confidence its rate is below 3/n.
		fmt.Fprintf(w, "no violation: with 95 %% confidence fewer than %.2g of acknowledged calls have one\n", 3/float64(all.Acknowledged))
	}
	return failed
}
