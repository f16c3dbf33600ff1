// Package result is what a load test found out: plain data that the load fills in, that criteria are judged on, and that the reports show.
// Its JSON form is what machines read, so a field keeps its name. No figure in it is infinite or no number.
package result

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Run is one load on one set of targets.
type Run struct {
	Command string    `json:"command"` // sub-command that made it: run, slow, restart
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	Targets []string  `json:"targets"`
	Load    Load      `json:"load"`

	// Interrupted says that the load was ended from outside before its time; what is here is what was measured until then.
	Interrupted bool    `json:"interrupted,omitempty"`
	Seconds     float64 `json:"seconds"` // measured, without ramp-up and warm-up

	// Every request of the measured time is in exactly one of the four: acknowledged by a result, refused by an error reply, failed without
	// an answer (unknown), or unsent: due in an open loop while its connection had too many unanswered already.
	Acknowledged int64            `json:"acknowledged"`
	Refused      map[string]int64 `json:"refused,omitempty"` // by reason
	Failed       int64            `json:"failed,omitempty"`
	Unsent       int64            `json:"unsent,omitempty"`

	PerSecond float64           `json:"perSecond"` // acknowledged
	LatencyMs Latency           `json:"latencyMs"` // of the acknowledged
	Methods   map[string]Method `json:"methods,omitempty"`
	Phases    []Phase           `json:"phases,omitempty"` // parts of the time of a drill that has some, in their order

	// Events is the time from when a request was due to the arrival of its event at a subscriber; nil without subscribers.
	Events *Events `json:"events,omitempty"`

	Opened int64            `json:"opened"`         // connections opened over the whole run
	Lost   map[string]int64 `json:"lost,omitempty"` // connections that ended before they were told to, by why

	Slow    *Slow    `json:"slow,omitempty"`    // the clients that misbehave on purpose, which nothing above counts
	Restart *Restart `json:"restart,omitempty"` // of the gateways under load

	Timeline []Second `json:"timeline,omitempty"`
	Nodes    []Node   `json:"nodes,omitempty"` // the gateways' own figures
	Verify   *Verify  `json:"verify,omitempty"`

	Verdicts []Verdict `json:"verdicts"`
	Notes    []string  `json:"notes,omitempty"` // what to know before the figures are believed; they fail nothing
	Passed   bool      `json:"passed"`          // no verdict failed, and there was one; set with them

	// Of the bench: what an idle connection costs, and why the figures count for nothing; "": they do.
	BytesPerConnection float64 `json:"bytesPerConnection,omitempty"`
	Void               string  `json:"void,omitempty"`
}

// Load repeats what was asked for.
type Load struct {
	Connections int                `json:"connections"`
	Inflight    int                `json:"inflight"`
	Rate        float64            `json:"rate,omitempty"` // requests a second, 0: closed loop
	Mix         map[string]float64 `json:"mix,omitempty"`  // share of each method
	Signers     int                `json:"signers"`
	SignerBase  int64              `json:"signerBase"`
	Subscribers int                `json:"subscribers,omitempty"`
	RampUp      float64            `json:"rampUpSeconds,omitempty"`
	Warmup      float64            `json:"warmupSeconds"`
	Duration    float64            `json:"durationSeconds"`
}

// Latency sums up a distribution, in milliseconds. All are 0 when Count is.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

// Method is the part of one method.
type Method struct {
	Refused   map[string]int64 `json:"refused,omitempty"`
	LatencyMs Latency          `json:"latencyMs"` // of the acknowledged, with their number
}

// Phase is what was acknowledged of that which became due in a part of the time.
type Phase struct {
	Name      string  `json:"name"`
	LatencyMs Latency `json:"latencyMs"`
}

// Events is what the subscribers got.
type Events struct {
	Received int64 `json:"received"`
	Missed   int64 `json:"missed"` // notifications the gateway says it dropped
	// Unmatched are those whose request was not found (another load's, one without an answer, one too late). They are not in LatencyMs.
	Unmatched int64   `json:"unmatched,omitempty"`
	LatencyMs Latency `json:"latencyMs"`
}

// Slow is what became of the clients that misbehave on purpose.
type Slow struct {
	Clients    int              `json:"clients"`
	Behaviour  string           `json:"behaviour"` // stop, trickle
	Kicked     int64            `json:"kicked"`    // closed by the gateway with slow_consumer
	Missed     int64            `json:"missed"`    // events that the gateway told them they missed
	Ended      map[string]int64 `json:"ended,omitempty"`
	Reconnects int64            `json:"reconnects,omitempty"`
}

// Restart is what became of gateways that were restarted, and what their clients noticed.
type Restart struct {
	Gateways []Restarted `json:"gateways"`
	Closed   int64       `json:"closed"`   // connections closed in order because their gateway went away (1012)
	Drained  int64       `json:"drained"`  // connections whose gateway answered that it is draining
	Opened   int64       `json:"opened"`   // connections opened to come back
	Failures int64       `json:"failures"` // attempts to come back that failed
	// Repeated are tries that were not the last of their call, by a gateway's reason, "no answer", or "not sent"; no other figure has them.
	Repeated map[string]int64 `json:"repeated,omitempty"`
}

// Restarted is one restart of one gateway.
type Restarted struct {
	Gateway      string  `json:"gateway"`
	At           float64 `json:"at"`           // seconds since the load began
	EndSeconds   float64 `json:"endSeconds"`   // from when it was asked to end to when it had
	StartSeconds float64 `json:"startSeconds"` // from then to when it was ready again
	Wrong        string  `json:"wrong,omitempty"`
}

// Second is one second of the measured time; At counts from its begin.
type Second struct {
	At           float64 `json:"at"`
	Seconds      float64 `json:"seconds"` // how long it was; less than 1 only for the last one
	Acknowledged int64   `json:"acknowledged"`
	Refused      int64   `json:"refused"`
	Failed       int64   `json:"failed"`
	P50          float64 `json:"p50"` // ms, of what was acknowledged in it
	P99          float64 `json:"p99"`
}

// Node is what one gateway said of itself at its /metrics over the measured time.
type Node struct {
	Metrics string `json:"metrics"`           // URL
	Missing string `json:"missing,omitempty"` // why there are no figures, or not for all of the time
	// Restarts is how often its process was another than before. What it counted after its last reading is lost.
	Restarts int     `json:"restarts,omitempty"`
	Stages   []Stage `json:"stages,omitempty"`
	// Counters are the increases of counters by name and labels, such as noncegate_rejected_total{stage="worker"}.
	Counters map[string]float64 `json:"counters,omitempty"`
	Memory   []Point            `json:"memory,omitempty"` // resident bytes
}

// Point is a value at a time, in seconds from the begin of the measured time.
type Point struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// Stage is one stage of a gateway, such as commitMs. Percentiles come from Prometheus' buckets, interpolated within one.
type Stage struct {
	Name   string  `json:"name"`
	Count  int64   `json:"count"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Second []Point `json:"perSecond,omitempty"` // p95 of each interval in which something passed
	Growth Growth  `json:"growth"`
}

// Growth tells whether a series grows steadily: its Theil–Sen slope and its last third less its first are both above a margin.
type Growth struct {
	SlopePerMinute float64 `json:"slopePerMinute"` // ms a minute
	FirstThird     float64 `json:"firstThird"`     // median, ms
	LastThird      float64 `json:"lastThird"`
	Grows          bool    `json:"grows"`
	Unknown        bool    `json:"unknown,omitempty"` // there is too little to tell, which is not "grows"
	Why            string  `json:"why"`               // the statistic in a sentence
}

// Verify is the outcome of checking answers against the rules.
type Verify struct {
	Calls   int64 `json:"calls"`   // looked at
	Signers int64 `json:"signers"` // they are about
	Unknown int64 `json:"unknown,omitempty"`
	// Violations has one sentence each, at most 100; ViolationCount has them all.
	Violations     []string `json:"violations,omitempty"`
	ViolationCount int64    `json:"violationCount"`
	Incomplete     string   `json:"incomplete,omitempty"` // why not everything could be looked at; empty: it was
}

// Verdict is one criterion and how the run met it.
type Verdict struct {
	Name   string `json:"name"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Passed bool   `json:"passed"`
	// Unknown says that there was nothing to judge on. It counts as passed, and is shown as what it is.
	Unknown bool `json:"unknown,omitempty"`
}

// Pass reports whether there are verdicts and none failed. What nobody has looked at has not passed.
func Pass(verdicts []Verdict) bool {
	return len(verdicts) > 0 && !slices.ContainsFunc(verdicts, func(v Verdict) bool { return !v.Passed })
}

// Refusals is how many requests were refused.
func (r *Run) Refusals() int64 { return Sum(r.Refused) }

// Unserved is how many requests were not acknowledged, for whatever reason.
func (r *Run) Unserved() int64 { return r.Refusals() + r.Failed + r.Unsent }

// Sum adds up a count by reason.
func Sum(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Comparison is runs of two sides in alternation.
type Comparison struct {
	Title    string    `json:"title"`
	Runs     []*Run    `json:"runs"`
	Ratios   []Ratio   `json:"ratios"`
	Verdicts []Verdict `json:"verdicts"` // of the ratios, and of what cut it short; each run has its own besides
	Outcome  string    `json:"outcome"`
	Passed   bool      `json:"passed"` // judged, and nothing was missed
}

// Figure is one number of a run.
type Figure struct {
	Name string // in JSON
	Of   func(*Run) float64
}

// The usual figures.
var (
	PerSecond = Figure{"perSecond", func(r *Run) float64 { return r.PerSecond }}
	P50       = Figure{"p50Ms", func(r *Run) float64 { return r.LatencyMs.P50 }}
	P99       = Figure{"p99Ms", func(r *Run) float64 { return r.LatencyMs.P99 }}
)

// Ratio is a figure of one side over that of another, or alone, round by round, and what its median must be; a bound of 0 is none.
type Ratio struct {
	Name    string    `json:"name"`
	Figure  Figure    `json:"-"`
	AtLeast float64   `json:"atLeast,omitempty"`
	AtMost  float64   `json:"atMost,omitempty"`
	Rounds  []float64 `json:"rounds"`
	Median  float64   `json:"median"`         // 0 when there is no round
	Void    string    `json:"void,omitempty"` // why a round says nothing, or there is none
}

// Compare fills in the rounds of the figure of over, or of over divided by under. A round in which a run is void says nothing.
func (r *Ratio) Compare(over, under []*Run, divided bool) {
	if divided { // interrupted amid a round
		over = over[:min(len(over), len(under))]
	}
	for i, run := range over {
		value, void := r.Figure.Of(run), run.Void
		if divided {
			void = cmp.Or(void, under[i].Void)
			if divisor := r.Figure.Of(under[i]); divisor > 0 {
				value /= divisor
			} else {
				void = cmp.Or(void, "nothing to divide by")
			}
		}
		if void == "" {
			r.Rounds = append(r.Rounds, value)
		}
		r.Void = cmp.Or(r.Void, void)
	}
	r.Median = Median(r.Rounds)
	if len(r.Rounds) == 0 {
		r.Void = cmp.Or(r.Void, "there is no round to tell by")
	}
}

// Kept reports whether all rounds say something and their median is within the bounds.
func (r *Ratio) Kept() bool {
	return r.Void == "" && r.Median >= r.AtLeast && (r.AtMost == 0 || r.Median <= r.AtMost)
}

// Bound is what the median must be, "" when there is no bound.
func (r *Ratio) Bound(write func(float64) string) string {
	switch {
	case r.AtMost > 0:
		return "at most " + write(r.AtMost)
	case r.AtLeast > 0:
		return "at least " + write(r.AtLeast)
	}
	return ""
}

// Span is the median beside the least and the greatest round, of which there must be one.
func (r *Ratio) Span(write func(float64) string) string {
	return fmt.Sprintf("%s (%s … %s)", write(r.Median), write(slices.Min(r.Rounds)), write(slices.Max(r.Rounds)))
}

// Alternate goes through the sides in each round; back and forth, so that what drifts on a machine favours none of them.
func Alternate(rounds, sides int, backAndForth bool) iter.Seq2[int, int] {
	return func(yield func(round, side int) bool) {
		for i := range rounds * sides {
			round, side := i/sides, i%sides
			if backAndForth && round%2 == 1 {
				side = sides - 1 - side
			}
			if !yield(round, side) {
				return
			}
		}
	}
}

// Median is the middle of values, the mean of the middle two, or 0 of none.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
