package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"noncegate/scripts/loadtest/result"
)

// Criteria are what a run must meet. The zero value is strict: it tolerates no refusal, no failure and no lost connection.
type Criteria struct {
	MinAcknowledged int64         // below 1 counts as 1: an empty run has failed
	MaxFailedShare  float64       // 0 to 1, of requests refused, failed or never sent, all together; below 0: not judged
	MaxE2EP99       time.Duration // of the events where the run had subscribers, else of the replies; 0: not judged
	MaxLost         int64         // connections that may end before they were told to; below 0: not judged
	Growth          bool          // no stage of any gateway may grow
}

// Judge sets run.Verdicts, one for each criterion and those given, run.Passed and run.Notes. Verify is judged wherever the run has it.
func Judge(run *result.Run, c Criteria, further ...result.Verdict) {
	run.Notes, run.Verdicts = notes(run), nil
	add := func(name, want, got string, passed bool) {
		run.Verdicts = append(run.Verdicts, result.Verdict{Name: name, Want: want, Got: got, Passed: passed})
	}
	least := max(c.MinAcknowledged, 1)
	add("acknowledged requests", "at least "+count(least), count(run.Acknowledged), run.Acknowledged >= least)
	if c.MaxFailedShare >= 0 {
		all, bad := run.Acknowledged+run.Unserved(), run.Unserved()
		add("refused and failed together", fmt.Sprintf("at most %s of all requests", percent(c.MaxFailedShare)),
			fmt.Sprintf("%s (%s of %s)", percent(share(bad, all)), count(bad), count(all)), all > 0 && share(bad, all) <= c.MaxFailedShare)
	}
	if most := float64(c.MaxE2EP99) / float64(time.Millisecond); most > 0 {
		name, got, latency := "E2E p99 (request due to its reply)", "nothing was acknowledged", run.LatencyMs
		if run.Events != nil {
			name, got, latency = "E2E p99 (request due to its event at a subscriber)", "no event reached a subscriber", run.Events.LatencyMs
		}
		if latency.Count > 0 {
			got = number(latency.P99) + " ms"
		}
		add(name, "at most "+number(most)+" ms", got, latency.Count > 0 && latency.P99 <= most)
	}
	if lost := result.Sum(run.Lost); c.MaxLost >= 0 {
		add("connections lost", "at most "+count(c.MaxLost), fmt.Sprintf("%s of %s", count(lost), count(run.Opened)), lost <= c.MaxLost)
	}
	if v := run.Verify; v != nil {
		got := fmt.Sprintf("%s in %s calls about %s signers", count(v.ViolationCount), count(v.Calls), count(v.Signers))
		if v.Incomplete != "" {
			got += "; not everything could be looked at: " + v.Incomplete
		}
		add("answers against the rules", "no violation", got, v.ViolationCount == 0 && v.Incomplete == "" && v.Calls > 0)
	}
	if c.Growth {
		run.Verdicts = append(run.Verdicts, judgeGrowth(run.Nodes)...)
	}
	run.Verdicts = append(run.Verdicts, further...)
	run.Passed = result.Pass(run.Verdicts)
}

// judgeGrowth has a verdict for each stage of each gateway. Where nothing is known, as after a short run, it says so. A gateway without
// figures fails: it was not seen whether its queues grew.
func judgeGrowth(nodes []result.Node) (verdicts []result.Verdict) {
	if len(nodes) == 0 {
		nodes = []result.Node{{Metrics: "no /metrics was asked", Missing: "(--metrics)"}}
	}
	for _, n := range nodes {
		if len(n.Stages) == 0 {
			got := "not known: " + n.Metrics + " " + cmp.Or(n.Missing, "says nothing of its stages") + "; --no-growth-check leaves this out"
			verdicts = append(verdicts, result.Verdict{Name: "growth of the queues", Want: "none grows", Got: got})
		}
		for _, s := range n.Stages {
			v := result.Verdict{Name: "growth of " + s.Name, Want: "does not grow steadily", Got: s.Growth.Why}
			v.Passed, v.Unknown = !s.Growth.Grows, s.Growth.Unknown
			if len(nodes) > 1 {
				v.Name += " at " + n.Metrics
			}
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// expiredShare is how many holds, as a share of the acknowledged requests, may expire in a run before that is worth a note.
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
