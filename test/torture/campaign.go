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

	"noncegate/test/lab/history"
)

// CampaignConfig says how many runs, and where what they leave goes.
type CampaignConfig struct {
	// Passes is how often each combination of the axis is broken: that many runs there are.
	Passes int
	// Dir gets state.jsonl, one line a run that was done, which are not done again, and a folder for each that failed.
	Dir string
	// Limit ends the campaign early; what was not done is done by the next. 0: none.
	Limit time.Duration
	Options
	Out io.Writer // a line a run, and the report
}

// done is one line of state.jsonl.
type done struct {
	Seed         uint64         `json:"seed"`
	Faults       []string       `json:"faults"`
	Acknowledged int            `json:"acknowledged"`
	Refused      int            `json:"refused"`
	Unknown      int            `json:"unknown"`
	Reasons      map[string]int `json:"reasons"`
	Violations   []string       `json:"violations,omitempty"`
	Rules        []history.Rule `json:"rules,omitempty"`
	Seconds      float64        `json:"seconds"`
	QuietSeconds float64        `json:"quietSeconds,omitempty"`
	LateSeconds  float64        `json:"lateSeconds,omitempty"`
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

// forwardOf is off for a third of the seeds: in three passes over the combinations each has been without
// forwarding once, and a part of a pass has both.
func forwardOf(seed, combinations uint64) string {
	if pass, at := seed/combinations, seed%combinations; (pass+at)%3 == 2 {
		return "off"
	}
	return "on"
}

func (cfg *CampaignConfig) one(ctx context.Context, seed uint64) (done, error) {
	o := cfg.Options
	if o.Forward == "both" {
		o.Forward = forwardOf(seed, uint64(len(o.Combinations())))
	}
	faults := o.ForSeed(seed)
	if !o.Clock {
		faults = slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Offsets })
	}
	res, err := Run(ctx, Plan{Seed: seed, Faults: faults, Options: o, Dir: cfg.Dir})
	if err != nil {
		return done{}, err
	}
	r := res.Report
	d := done{
		Seed: seed, Faults: res.Faults, Acknowledged: r.Acknowledged, Refused: r.Refused, Unknown: r.Unknown, Reasons: r.Reasons,
		Rules: r.Rules(), Seconds: res.Took.Seconds(), QuietSeconds: res.Quiet.Seconds(), LateSeconds: res.Overdue.Seconds(),
	}
	for _, v := range r.Violations {
		d.Violations = append(d.Violations, v.String())
	}
	verdict := "ok"
	if !res.OK() {
		verdict = fmt.Sprintf("FAILED %v, see %s", r.Rules(), res.Kept)
	}
	fmt.Fprintf(cfg.Out, "seed %3d %-32s %5d acknowledged %5d refused %4d unknown %5.1fs %s\n",
		seed, strings.Join(res.Faults, "+"), r.Acknowledged, r.Refused, r.Unknown, d.Seconds, verdict)
	return d, nil
}

// report sums up and returns the number of runs that failed.
func report(w io.Writer, runs []done) int {
	var acknowledged, refused, unknown, failed int
	perFault := make(map[string]int)
	reasons := make(map[string]int)
	var slowest, late float64
	for _, d := range runs {
		acknowledged, refused, unknown = acknowledged+d.Acknowledged, refused+d.Refused, unknown+d.Unknown
		for _, f := range d.Faults {
			perFault[f]++
		}
		for reason, n := range d.Reasons {
			reasons[reason] += n
		}
		if len(d.Rules) > 0 {
			failed++
		}
		slowest, late = max(slowest, d.QuietSeconds), max(late, d.LateSeconds)
	}
	fmt.Fprintf(w, "\n%d histories, %d acknowledged calls, %d refused, %d of unknown outcome\n", len(runs), acknowledged, refused, unknown)
	fmt.Fprintf(w, "histories with each fault: %s\n", counts(perFault))
	fmt.Fprintf(w, "refusals and unknown outcomes: %s\n", counts(reasons))
	if slowest > 0 {
		fmt.Fprintf(w, "the last hold was ended at most %.1f s after the clients had gone, and at most %.1f s late\n", slowest, late)
	}
	for _, d := range runs {
		if len(d.Rules) > 0 {
			fmt.Fprintf(w, "FAILED seed %d (%s): %s\n", d.Seed, strings.Join(d.Faults, "+"), strings.Join(d.Violations, "\n    "))
		}
	}
	if failed == 0 && len(runs) > 0 && acknowledged > 0 {
		// No event in n trials: with 95 % confidence its rate is below 3/n.
		fmt.Fprintf(w, "no violation: with 95 %% confidence fewer than %.2g of acknowledged calls have one\n", 3/float64(acknowledged))
	}
	return failed
}

// counts lists a tally, the most frequent first.
func counts(of map[string]int) string {
	names := slices.Collect(maps.Keys(of))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %d", name, of[name])
	}
	return strings.Join(parts, ", ")
}
