// Package result is what a load test found out: plain data that the load fills
// in, that criteria are judged on, and that the text, JSON and HTML reports show.
// Its JSON form is what machines read, so a field keeps its name.
package result

import (
	"slices"
	"time"
)

// Run is one load on one set of targets.
type Run struct {
	Command string    `json:"command"` // sub-command that made it: run, slow, churn, restart
	Name    string    `json:"name,omitempty"`
	Started time.Time `json:"started"`
	Targets []string  `json:"targets"`
	Load    Load      `json:"load"`

	// Interrupted says that the load was ended from outside before its time;
	// what is here is what was measured until then.
	Interrupted bool    `json:"interrupted,omitempty"`
	Seconds     float64 `json:"seconds"` // measured, without ramp-up and warm-up

	// Every request of the measured time is in exactly one of the three:
	// acknowledged by a result, refused by an error reply, or failed without an
	// answer (the connection was lost: unknown).
	Acknowledged int64            `json:"acknowledged"`
	Refused      map[string]int64 `json:"refused,omitempty"` // by reason
	Failed       int64            `json:"failed,omitempty"`
	// Unsent are requests of an open loop that became due in the measured time
	// and never left, because their connection had too many unanswered already.
	// They are in none of the three, and as bad as failed.
	Unsent int64 `json:"unsent,omitempty"`

	PerSecond float64           `json:"perSecond"` // acknowledged
	LatencyMs Latency           `json:"latencyMs"` // of the acknowledged
	Methods   map[string]Method `json:"methods,omitempty"`

	// Phases are the parts of the time of a drill that has some, in their order.
	Phases []Phase `json:"phases,omitempty"`

	// Events is the time from when the request that caused an event was due to
	// the event's arrival at a subscriber; nil without subscribers.
	Events *Events `json:"events,omitempty"`

	Opened int64            `json:"opened"`         // connections opened over the whole run
	Lost   map[string]int64 `json:"lost,omitempty"` // connections that ended before they were told to, by why

	Slow *Slow `json:"slow,omitempty"` // the clients that misbehave on purpose, which nothing above counts

	Timeline []Second `json:"timeline,omitempty"`
	Nodes    []Node   `json:"nodes,omitempty"` // the gateways' own figures
	Verify   *Verify  `json:"verify,omitempty"`

	Verdicts []Verdict `json:"verdicts,omitempty"`
	// Notes are what to know before the figures are believed; they fail nothing.
	Notes []string `json:"notes,omitempty"`
}

// Load repeats what was asked for.
type Load struct {
	Connections  int                `json:"connections"`
	MaxOpen      int                `json:"maxOpen,omitempty"` // of clients that come and go, for which Connections is 0
	Inflight     int                `json:"inflight"`
	Rate         float64            `json:"rate,omitempty"` // requests a second, 0: closed loop
	Mix          map[string]float64 `json:"mix,omitempty"`  // share of each method
	Signers      int                `json:"signers"`
	SignerBase   int64              `json:"signerBase"`
	Distribution string             `json:"distribution,omitempty"` // uniform, zipf
	Subscribers  int                `json:"subscribers,omitempty"`
	RampUp       float64            `json:"rampUpSeconds,omitempty"`
	Warmup       float64            `json:"warmupSeconds"`
	Duration     float64            `json:"durationSeconds"`
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
	Acknowledged int64            `json:"acknowledged"`
	Refused      map[string]int64 `json:"refused,omitempty"`
	LatencyMs    Latency          `json:"latencyMs"`
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
	// Unmatched are the received ones whose request was not found: somebody
	// else's, one whose answer was lost, or one that came too late to be looked
	// for. They are not in LatencyMs.
	Unmatched int64   `json:"unmatched,omitempty"`
	LatencyMs Latency `json:"latencyMs"`
}

// Slow is what became of the clients that misbehave on purpose.
type Slow struct {
	Clients    int              `json:"clients"`
	Behaviour  string           `json:"behaviour"` // stop, trickle, vanish
	Kicked     int64            `json:"kicked"`    // closed by the gateway with slow_consumer
	Ended      map[string]int64 `json:"ended,omitempty"`
	Reconnects int64            `json:"reconnects,omitempty"`
}

// Second is one second of the measured time; At counts from its begin.
type Second struct {
	At           float64 `json:"at"`
	Seconds      float64 `json:"seconds"` // how long it was; less than 1 only for the last one
	Acknowledged int64   `json:"acknowledged"`
	Marks        int64   `json:"marks,omitempty"` // of the acknowledged
	Refused      int64   `json:"refused"`
	Failed       int64   `json:"failed"`
	P50          float64 `json:"p50"` // ms, of what was acknowledged in it
	P95          float64 `json:"p95"`
	P99          float64 `json:"p99"`
	Max          float64 `json:"max"`
}

// Node is what one gateway said of itself at its /metrics over the measured time.
type Node struct {
	Metrics string `json:"metrics"`           // URL
	Missing string `json:"missing,omitempty"` // why there are no figures, or not for all of the time
	// Restarts is how often its process was another than before. What a process
	// counted between its last reading and its end is not in these figures.
	Restarts int     `json:"restarts,omitempty"`
	Stages   []Stage `json:"stages,omitempty"`
	// Counters are the increases of the counters that moved, by name and labels
	// as Prometheus writes them, such as noncegate_rejected_total{stage="worker"}.
	Counters map[string]float64 `json:"counters,omitempty"`
	Memory   []Point            `json:"memory,omitempty"` // resident bytes
}

// Point is a value at a time, in seconds from the begin of the measured time.
type Point struct {
	At    float64 `json:"at"`
	Value float64 `json:"value"`
}

// Stage is one stage of a gateway under its millisecond name: encodeQueueMs,
// postDbQueueMs, writeQueueMs, workerQueueMs, commitMs. Percentiles come from
// Prometheus' buckets, interpolated within one.
type Stage struct {
	Name   string  `json:"name"`
	Count  int64   `json:"count"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	Second []Point `json:"perSecond,omitempty"` // p95 of each interval in which something passed
	Growth Growth  `json:"growth"`
}

// Growth tells whether a series grows steadily: its Theil–Sen slope (the median
// of the slopes of all pairs) is above zero by more than a stated margin, and so
// is its last third against its first.
type Growth struct {
	SlopePerMinute float64 `json:"slopePerMinute"` // ms a minute
	FirstThird     float64 `json:"firstThird"`     // median, ms
	LastThird      float64 `json:"lastThird"`
	Grows          bool    `json:"grows"`
	// Unknown says that there is too little to tell, which is not "grows".
	Unknown bool   `json:"unknown,omitempty"`
	Why     string `json:"why"` // the statistic in a sentence
}

// Verify is the outcome of checking every answer against the rules.
type Verify struct {
	Allocations int64 `json:"allocations"` // hand-outs looked at
	Signers     int64 `json:"signers"`
	Repeats     int64 `json:"repeats"` // request ids asked again
	// Violations has one sentence each, at most 100; ViolationCount has them all.
	Violations     []string `json:"violations,omitempty"`
	ViolationCount int64    `json:"violationCount"`
	// Unanswered are requests whose outcome stayed unknown and that were left
	// out of account.
	Unanswered int64 `json:"unanswered,omitempty"`
	// Incomplete says why not everything could be read; empty: it was.
	Incomplete string `json:"incomplete,omitempty"`
}

// Verdict is one criterion and how the run met it.
type Verdict struct {
	Name   string `json:"name"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Passed bool   `json:"passed"`
	// Unknown says that there was nothing to judge on. It counts as passed, and
	// is shown as what it is.
	Unknown bool `json:"unknown,omitempty"`
}

// Passed reports whether no verdict failed. A run without verdicts has not
// passed: nobody has looked at it.
func (r *Run) Passed() bool {
	return len(r.Verdicts) > 0 && !slices.ContainsFunc(r.Verdicts, func(v Verdict) bool { return !v.Passed })
}

// Refusals is how many requests were refused.
func (r *Run) Refusals() int64 { return Sum(r.Refused) }

// Sum adds up a count by reason.
func Sum(counts map[string]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// Fold joins neighbours until there are at most most, and says how many it
// joined to one: their largest, where the worst is wanted, or their mean.
func Fold(points []Point, most int, worst bool) ([]Point, int) {
	group := (len(points) + most - 1) / most
	if group <= 1 {
		return points, 1
	}
	var out []Point
	for part := range slices.Chunk(points, group) {
		joined := Point{At: part[0].At, Value: part[0].Value}
		var sum float64
		for _, p := range part {
			sum += p.Value
			joined.Value = max(joined.Value, p.Value)
		}
		if !worst {
			joined.Value = sum / float64(len(part))
		}
		out = append(out, joined)
	}
	return out, group
}
