package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/result"
)

// Criteria are what a run must meet. The zero value is strict: it tolerates no refusal, no
// failure and no lost connection.
type Criteria struct {
	// MinAcknowledged is the fewest acknowledged requests that make a run one that says
	// something. Below 1 counts as 1: an empty run has failed.
	MinAcknowledged int64
	// MaxFailedShare is the largest share, 0 to 1, of requests refused, failed or never sent,
	// all together. Below 0: not judged.
	MaxFailedShare float64
	// MaxE2EP99 is the largest end-to-end p99: of the events where the run had subscribers,
	// for the event is then the end, else of the replies. 0: not judged.
	MaxE2EP99 time.Duration
	// MaxLost is how many connections may end before they were told to. Below 0: not judged.
	MaxLost int64
	// Growth asks that no stage of any gateway grows.
	Growth bool
}

// Judge sets run.Verdicts, one for each criterion and those given, run.Passed and run.Notes.
// Verify is judged wherever the run has it.
func Judge(run *result.Run, c Criteria, further ...result.Verdict) {
	run.Notes = notes(run)
	run.Verdicts = []result.Verdict{{
		Name: "acknowledged requests", Want: "at least " + count(max(c.MinAcknowledged, 1)),
		Got: count(run.Acknowledged), Passed: run.Acknowledged >= max(c.MinAcknowledged, 1),
	}}
	add := func(v ...result.Verdict) { run.Verdicts = append(run.Verdicts, v...) }
	if c.MaxFailedShare >= 0 {
		all, bad := run.Acknowledged+run.Unserved(), run.Unserved()
		add(result.Verdict{
			Name: "refused and failed together", Want: fmt.Sprintf("at most %s of all requests", percent(c.MaxFailedShare)),
			Got:    fmt.Sprintf("%s (%s of %s)", percent(share(bad, all)), count(bad), count(all)),
			Passed: all > 0 && share(bad, all) <= c.MaxFailedShare,
		})
	}
	if c.MaxE2EP99 > 0 {
		add(judgeE2E(run, float64(c.MaxE2EP99)/float64(time.Millisecond)))
	}
	if lost := result.Sum(run.Lost); c.MaxLost >= 0 {
		add(result.Verdict{
			Name: "connections lost", Want: "at most " + count(c.MaxLost),
			Got: fmt.Sprintf("%s of %s", count(lost), count(run.Opened)), Passed: lost <= c.MaxLost,
		})
	}
	if v := run.Verify; v != nil {
		found := result.Verdict{
			Name: "answers against the rules", Want: "no violation",
			Got:    fmt.Sprintf("%s in %s calls about %s signers", count(v.ViolationCount), count(v.Calls), count(v.Signers)),
			Passed: v.ViolationCount == 0 && v.Incomplete == "" && v.Calls > 0,
		}
		if v.Incomplete != "" {
			found.Got += "; not everything could be looked at: " + v.Incomplete
		}
		add(found)
	}
	if c.Growth {
		add(judgeGrowth(run.Nodes)...)
	}
	add(further...)
	run.Passed = result.Pass(run.Verdicts)
}

func judgeE2E(run *result.Run, most float64) result.Verdict {
	v := result.Verdict{Name: "E2E p99 (request due to its reply)", Want: "at most " + number(most) + " ms", Got: "nothing was acknowledged"}
	latency := run.LatencyMs
	if run.Load.Subscribers > 0 || run.Events != nil {
		v.Name, v.Got = "E2E p99 (request due to its event at a subscriber)", "no event reached a subscriber"
		latency = result.Latency{}
		if run.Events != nil {
			latency = run.Events.LatencyMs
		}
	}
	if latency.Count > 0 {
		v.Got, v.Passed = number(latency.P99)+" ms", latency.P99 <= most
	}
	return v
}

// judgeGrowth has one verdict for each stage over all gateways. Where nothing is known, as
// after a short run, it says so. A gateway without figures fails: it was not seen whether its
// queues grew.
func judgeGrowth(nodes []result.Node) (verdicts []result.Verdict) {
	var silent []string
	if len(nodes) == 0 {
		silent = []string{"no /metrics was asked (--metrics)"}
	}
	for _, n := range nodes {
		if len(n.Stages) == 0 && n.Missing == "" {
			n.Missing = "says nothing of its stages"
		}
		if len(n.Stages) == 0 {
			silent = append(silent, n.Metrics+" "+n.Missing)
		}
		for _, s := range n.Stages {
			name := "growth of " + s.Name
			i := slices.IndexFunc(verdicts, func(v result.Verdict) bool { return v.Name == name })
			if i < 0 {
				i = len(verdicts)
				verdicts = append(verdicts, result.Verdict{Name: name, Want: "does not grow steadily", Passed: true})
			}
			addGrowth(&verdicts[i], s.Growth)
		}
	}
	if len(silent) > 0 {
		got := "not known: " + strings.Join(silent, "; ") + "; --no-growth-check leaves this out"
		verdicts = append(verdicts, result.Verdict{Name: "growth of the queues", Want: "none grows", Got: got})
	}
	return verdicts
}

// addGrowth takes one gateway's growth into the verdict on a stage.
func addGrowth(v *result.Verdict, g result.Growth) {
	switch {
	case g.Grows && v.Passed:
		*v = result.Verdict{Name: v.Name, Want: v.Want, Got: "grows: " + g.Why}
	case g.Grows:
		v.Got += "; " + g.Why
	case g.Unknown && v.Passed:
		v.Unknown, v.Got = true, g.Why
	case v.Got == "":
		v.Got = "does not grow: " + g.Why
	}
}

// expiredShare is how many holds, as a share of the acknowledged requests, may expire in a run
// before that is worth a note.
const expiredShare = 0.01

// notes are what to know of a run before its figures are believed.
func notes(run *result.Run) []string {
	expired := Moved(run, "noncegate_holds_expired_total")
	if expired == 0 || expired <= expiredShare*float64(run.Acknowledged) {
		return nil
	}
	return []string{fmt.Sprintf("%s holds expired meanwhile: of an earlier load, or of this one once it had lasted longer than a hold (60 s). "+
		"To end them is work that counts in these figures. Wait a minute between runs, or give each a fresh store.", number(expired))}
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

// share is part of whole, 0 where there is no whole.
func share(part, whole int64) float64 { return float64(part) / float64(max(whole, 1)) }
