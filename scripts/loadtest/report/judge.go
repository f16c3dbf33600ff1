package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/result"
)

// Criteria are what a run must meet. The zero value is strict: it tolerates no
// refusal, no failure and no lost connection.
type Criteria struct {
	// MinAcknowledged is the fewest acknowledged requests that make a run one
	// that says something. Below 1 counts as 1: an empty run has failed.
	MinAcknowledged int64
	// MaxFailedShare is the largest share, 0 to 1, of requests refused, failed or
	// never sent, all together. Below 0: not judged.
	MaxFailedShare float64
	// MaxE2EP99 is the largest end-to-end p99: of the events where the run had
	// subscribers, for the event is then the end, else of the replies. 0: not
	// judged.
	MaxE2EP99 time.Duration
	// MaxLost is how many connections may end before they were told to. Below 0:
	// not judged.
	MaxLost int64
	// Growth asks that no stage of any gateway grows.
	Growth bool
}

// Judge sets run.Verdicts, one for each criterion, and run.Notes; a caller with
// further ones appends them afterwards. Verify is judged wherever the run has it.
func Judge(run *result.Run, c Criteria) {
	run.Notes = notes(run)
	run.Verdicts = []result.Verdict{judgeAcknowledged(run, c.MinAcknowledged)}
	add := func(v result.Verdict) { run.Verdicts = append(run.Verdicts, v) }
	if c.MaxFailedShare >= 0 {
		add(judgeFailed(run, c.MaxFailedShare))
	}
	if c.MaxE2EP99 > 0 {
		add(judgeE2E(run, c.MaxE2EP99))
	}
	if c.MaxLost >= 0 {
		add(judgeLost(run, c.MaxLost))
	}
	if run.Verify != nil {
		add(judgeVerify(run.Verify))
	}
	if c.Growth {
		run.Verdicts = append(run.Verdicts, judgeGrowth(run.Nodes)...)
	}
}

func judgeAcknowledged(run *result.Run, least int64) result.Verdict {
	least = max(least, 1)
	return result.Verdict{
		Name: "acknowledged requests", Want: "at least " + count(least),
		Got: count(run.Acknowledged), Passed: run.Acknowledged >= least,
	}
}

func judgeFailed(run *result.Run, most float64) result.Verdict {
	v := result.Verdict{Name: "refused and failed together", Want: fmt.Sprintf("at most %s of all requests", percent(most))}
	all := requests(run)
	if all <= 0 {
		v.Got = "there were no requests"
		return v
	}
	bad := unserved(run)
	v.Got = fmt.Sprintf("%s (%s of %s)", percent(share(bad, all)), count(bad), count(all))
	v.Passed = share(bad, all) <= most // false for what is no number
	return v
}

func judgeE2E(run *result.Run, most time.Duration) result.Verdict {
	v := result.Verdict{Name: "E2E p99 (request due to its reply)"}
	latency, nothing := run.LatencyMs, "nothing was acknowledged"
	if run.Load.Subscribers > 0 || run.Events != nil {
		v.Name = "E2E p99 (request due to its event at a subscriber)"
		latency, nothing = result.Latency{}, "no event reached a subscriber"
		if run.Events != nil {
			latency = run.Events.LatencyMs
		}
	}
	limit := float64(most) / float64(time.Millisecond)
	v.Want = "at most " + milli(limit) + " ms"
	if latency.Count <= 0 {
		v.Got = nothing
		return v
	}
	v.Got = milli(latency.P99) + " ms"
	v.Passed = latency.P99 <= limit
	return v
}

func judgeLost(run *result.Run, most int64) result.Verdict {
	lost := result.Sum(run.Lost)
	v := result.Verdict{
		Name: "connections lost", Want: "at most " + count(most),
		Got: fmt.Sprintf("%s of %s", count(lost), count(run.Opened)), Passed: lost <= most,
	}
	if most == 0 {
		v.Want = "none"
	}
	return v
}

func judgeVerify(v *result.Verify) result.Verdict {
	found := result.Verdict{
		Name: "answers against the rules", Want: "no violation",
		Got:    fmt.Sprintf("%s in %s hand-outs", count(v.ViolationCount), count(v.Allocations)),
		Passed: v.ViolationCount == 0 && len(v.Violations) == 0 && v.Incomplete == "",
	}
	if v.Incomplete != "" {
		found.Got += "; not everything could be read: " + v.Incomplete
	}
	return found
}

// judgeGrowth has one verdict for each stage over all gateways. Where nothing is
// known, as after a short run, it says so. A gateway without figures fails: it was not seen
// whether its queues grew.
func judgeGrowth(nodes []result.Node) []result.Verdict {
	var stages []string // in the order they are met
	growths := map[string][]growth{}
	for _, n := range nodes {
		for _, s := range n.Stages {
			if growths[s.Name] == nil {
				stages = append(stages, s.Name)
			}
			growths[s.Name] = append(growths[s.Name], growth{n.Metrics, s.Growth})
		}
	}
	if len(stages) == 0 {
		return []result.Verdict{withoutFigures(nodes)}
	}
	var verdicts []result.Verdict
	for _, name := range stages {
		verdicts = append(verdicts, judgeStage(name, growths[name], len(nodes)))
	}
	silent := slices.DeleteFunc(slices.Clone(nodes), func(n result.Node) bool { return len(n.Stages) > 0 })
	if len(silent) > 0 {
		verdicts = append(verdicts, withoutFigures(silent))
	}
	return verdicts
}

type growth struct {
	metrics string
	result.Growth
}

func judgeStage(name string, at []growth, nodes int) result.Verdict {
	v := result.Verdict{Name: "growth of " + name, Want: "does not grow steadily", Passed: true}
	var growing, unknown []string
	for _, g := range at {
		why := g.Why
		if nodes > 1 {
			why = g.metrics + ": " + why
		}
		switch {
		case g.Grows:
			growing = append(growing, why)
		case g.Unknown:
			unknown = append(unknown, why)
		}
	}
	switch {
	case len(growing) > 0:
		v.Passed, v.Got = false, "grows: "+strings.Join(growing, "; ")
	case len(unknown) > 0:
		v.Unknown, v.Got = true, strings.Join(unknown, "; ")
	case len(at) == 1:
		v.Got = "does not grow: " + at[0].Why
	default:
		v.Got = fmt.Sprintf("grows at none of %d gateways", len(at))
	}
	return v
}

// withoutFigures is the verdict on gateways that say nothing of their stages.
func withoutFigures(nodes []result.Node) result.Verdict {
	if len(nodes) == 0 {
		nodes = []result.Node{{Metrics: "no /metrics", Missing: "was asked (--metrics)"}}
	}
	got := "not known"
	for i, n := range nodes {
		missing := n.Missing
		if missing == "" {
			missing = "says nothing of its stages"
		}
		got += [2]string{": ", "; "}[min(i, 1)] + n.Metrics + " " + missing
	}
	return result.Verdict{Name: "growth of the queues", Want: "none grows", Got: got + "; --no-growth-check leaves this out"}
}

// expiredShare is how many holds, as a share of the acknowledged requests, may
// expire in a run before that is worth a note.
const expiredShare = 0.01

// notes are what to know of a run before its figures are believed.
func notes(run *result.Run) []string {
	expired := Moved(run, "noncegate_holds_expired_total")
	if expired == 0 || expired <= expiredShare*float64(run.Acknowledged) {
		return nil
	}
	told := number(expired) + " holds expired meanwhile"
	if run.Acknowledged > 0 {
		told += fmt.Sprintf(", %s of the acknowledged requests", percent(expired/float64(run.Acknowledged)))
	}
	return []string{told + ": holds of an earlier load, or of this one once it had lasted longer than a hold (60 s). " +
		"To end them is work that counts in these figures. Wait a minute between runs, or give each a fresh store."}
}

// Moved is by how much a counter moved, whatever its labels, at all gateways.
func Moved(run *result.Run, name string) (by float64) {
	for _, n := range run.Nodes {
		for counter, grown := range n.Counters {
			if counter == name || strings.HasPrefix(counter, name+"{") {
				by += grown
			}
		}
	}
	return by
}
