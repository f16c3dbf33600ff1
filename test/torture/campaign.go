//go:build unix

package torture

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CampaignConfig says how many runs, and where what they leave goes.
type CampaignConfig struct {
	Options
	// Passes is how often each combination of the axis is broken: that many runs there are.
	Passes int
	// Dir gets state.jsonl, one line a run that was done, which are not done again, and a folder for each that failed.
	Dir string
	// Limit ends the campaign early; what was not done is done by the next. 0: none.
	Limit time.Duration
	Out   io.Writer // a line a run, and the report
}

// done is one line of state.jsonl.
type done struct {
	Seed         uint64         `json:"seed"`
	Faults       string         `json:"faults"`
	Acknowledged int            `json:"acknowledged"`
	Refused      int            `json:"refused"`
	Unknown      int            `json:"unknown"`
	Reasons      map[string]int `json:"reasons"`
	Violations   []string       `json:"violations,omitempty"`
}

// Campaign does the runs that state.jsonl does not list yet, and reports on all it lists. It returns how many failed.
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
		runs = append(runs, d)
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

// one does the run of a seed. A third of the seeds do not forward: in three passes over the combinations each has been
// without forwarding once, and a part of a pass has both.
func (cfg *CampaignConfig) one(ctx context.Context, seed uint64) (done, error) {
	p := Plan{Options: cfg.Options, Seed: seed, Faults: cfg.ForSeed(seed), Dir: cfg.Dir}
	combinations := uint64(len(cfg.Combinations()))
	p.Forward = []string{"on", "on", "off"}[(seed/combinations+seed%combinations)%3]
	res, err := Run(ctx, p)
	if err != nil {
		return done{}, err
	}
	r := res.Report
	d := done{Seed: seed, Faults: names(p.Faults), Acknowledged: r.Acknowledged, Refused: r.Refused, Unknown: r.Unknown, Reasons: r.Reasons}
	for _, v := range r.Violations {
		d.Violations = append(d.Violations, v.String())
	}
	verdict := "ok"
	if !r.OK() {
		verdict = fmt.Sprintf("FAILED %v, see %s", r.Rules(), res.Kept)
	}
	fmt.Fprintf(cfg.Out, "seed %3d %-32s %5d acknowledged %5d refused %4d unknown %5.1fs %s\n",
		seed, d.Faults, r.Acknowledged, r.Refused, r.Unknown, res.Took.Seconds(), verdict)
	return d, nil
}

// report sums up and returns the number of runs that failed.
func report(w io.Writer, runs []done) (failed int) {
	var all done
	perFault, reasons := make(map[string]int), make(map[string]int)
	for _, d := range runs {
		all.Acknowledged, all.Refused, all.Unknown = all.Acknowledged+d.Acknowledged, all.Refused+d.Refused, all.Unknown+d.Unknown
		for f := range strings.SplitSeq(d.Faults, "+") {
			perFault[f]++
		}
		for reason, n := range d.Reasons {
			reasons[reason] += n
		}
		if len(d.Violations) > 0 {
			failed++
			fmt.Fprintf(w, "FAILED seed %d (%s): %s\n", d.Seed, d.Faults, strings.Join(d.Violations, "\n    "))
		}
	}
	fmt.Fprintf(w, "\n%d histories, %d acknowledged calls, %d refused, %d of unknown outcome\n", len(runs), all.Acknowledged, all.Refused, all.Unknown)
	fmt.Fprintf(w, "histories with each fault: %s\nrefusals and unknown outcomes: %s\n", counts(perFault), counts(reasons))
	if failed == 0 && all.Acknowledged > 0 {
		// No event in n trials: with 95 % confidence its rate is below 3/n.
		fmt.Fprintf(w, "no violation: with 95 %% confidence fewer than %.2g of acknowledged calls have one\n", 3/float64(all.Acknowledged))
	}
	return failed
}

// counts lists a tally, the most frequent first.
func counts(of map[string]int) string {
	names := slices.Collect(maps.Keys(of))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, of[name])
	}
	return strings.Join(names, ", ")
}
