//go:build unix

package bench

import (
	"fmt"
	"slices"
	"strings"
)

// figure is one number of a sample.
type figure struct {
	name, unit string
	of         func(Sample) float64
}

var (
	perSecond     = figure{"perSecond", "/s", func(s Sample) float64 { return s.PerSecond }}
	p50           = figure{"p50Ms", "ms", func(s Sample) float64 { return s.P50Ms }}
	p99           = figure{"p99Ms", "ms", func(s Sample) float64 { return s.P99Ms }}
	resident      = figure{"residentBytes", "bytes", func(s Sample) float64 { return s.Resident }}
	perConnection = figure{"bytesPerConnection", "bytes", func(s Sample) float64 { return s.PerConnection }}
	// passed is 1 for PASS, and -1 for FAIL: a figure that is 0 was not measured.
	passed = figure{"verdict", unitVerdict, func(s Sample) float64 {
		if s.Verdict == pass {
			return 1
		}
		return -1
	}}
)

// row is one line of the table: a figure of a side over that of another, or alone.
type row struct {
	name, what  string
	scene       string
	over, under string // names of sides
	figure      figure
	target      *Target
	long        bool   // measured only when it is asked for
	group       string // a name by which it is asked for with others
}

func atLeast(v float64) *Target { return &Target{AtLeast: v} }
func atMost(v float64) *Target  { return &Target{AtMost: v} }

// engineRows is the group of the rows about the performance engine.
const engineRows = "engine"

// rows is the table of the design, and a few lines beside it.
var rows = []row{
	{name: "echo", what: "durable ÷ echo, 64 × 16", scene: "64x16", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.8)},
	{name: "echo-coalesce", what: "durable ÷ echo that coalesces, 64 × 16", scene: "64x16", over: gatewayPostgres, under: echoCoalesce, figure: perSecond},
	{name: "echo-sqlite", what: "SQLite ÷ echo, 64 × 16", scene: "64x16", over: gatewaySQLite, under: echo, figure: perSecond, target: atLeast(0.45)},
	{name: "echo-allocate", what: "durable ÷ echo, 64 × 16, allocations only", scene: "64x16 allocations", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.8)},
	{name: "echo-1000", what: "durable ÷ echo, 1,000 × 1", scene: "1000x1", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.7)},
	{name: "echo-5000", what: "durable ÷ echo, 5,000 × 1", scene: "5000x1", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.7)},
	{name: "naive", what: "durable ÷ naive, 64 × 16, 1,000 signers", scene: "64x16", over: gatewayPostgres, under: naive, figure: perSecond, target: atLeast(20)},
	{name: "naive-hot", what: "durable ÷ naive, 64 × 16, one hot signer", scene: "hot 64x16", over: gatewayPostgres, under: naive, figure: perSecond, target: atLeast(100)},
	{name: "redis-incr", what: "durable ÷ one command of a Redis a request, 64 × 16", scene: "64x16", over: gatewayPostgres, under: redisIncr, figure: perSecond},
	{name: "hot", what: "one hot signer ÷ many, 256 × 4", scene: "256x4", over: "one hot signer", under: "1,000 signers", figure: perSecond, target: atLeast(1)},
	{name: "million", what: "a million signers at random, 20 M rows of history ÷ a thousand signers, 64 × 16", scene: "million", over: aMillion, under: "1,000 signers", figure: perSecond, target: atLeast(0.5), long: true},
	{name: "open", what: "p99 ÷ echo's p99, open loop, 5,000 connections, 10,000/s", scene: "open 5000", over: gatewayPostgres, under: echo, figure: p99, target: atMost(3)},
	{name: "idle", what: "resident memory per idle connection", scene: "idle", over: gatewayPostgres, figure: perConnection, target: atMost(8 << 10)},
	{name: "slow", what: "healthy clients' p99 with 20 % that do not read ÷ without", scene: "slow", over: "20 % do not read", under: "all read", figure: p99, target: atMost(1.2)},
	{name: "soak", what: "soak at half of the lasting peak: all is answered, no queue grows, no dead rows pile up", scene: "soak", over: halfOfPeak, figure: passed, target: atLeast(1), long: true},
	{name: "soak-wal", what: "WAL of the soak", scene: "soak", over: halfOfPeak, figure: notedIn(noteWAL, "bytes a pair"), long: true},
	{name: "expiry", what: "p99 while 300,000 holds of others end ÷ with nothing left behind, open loop, 2,000/s", scene: "expiry", over: holdsLeft, under: nothingLeft, figure: p99, target: atMost(1.5), long: true},
	{name: "greed", what: "a modest client's p99 beside a greedy one at its gateway ÷ beside the same at another gateway of the machine", scene: "greed", over: sameGateway, under: anotherGateway, figure: p99, target: atMost(1), long: true},
	{name: "greed-p50", what: "p50, the same load", scene: "greed", over: sameGateway, under: anotherGateway, figure: p50, long: true},

	{name: "keys", what: "clients with API keys, rights and who holds what ÷ without, 64 × 16", scene: "64x16", over: gatewayKeys, under: gatewayPostgres, figure: perSecond, target: atLeast(0.97)},
	{name: "chain", what: "signers whose chain is asked ÷ without a chain, 64 × 16", scene: "64x16", over: gatewayChain, under: gatewayPostgres, figure: perSecond, target: atLeast(0.95)},

	{name: "engine-peak", what: "performance engine ÷ reliable, 64 × 16", scene: "64x16", over: gatewayEngine, under: gatewayPostgres, figure: perSecond, target: atLeast(1.2), group: engineRows},
	{name: "engine-allocate", what: "the same, allocations only", scene: "64x16 allocations", over: gatewayEngine, under: gatewayPostgres, figure: perSecond, target: atLeast(1.2), group: engineRows},
	{name: "engine-incr", what: "performance engine ÷ one command of a Redis a request, 64 × 16", scene: "64x16", over: gatewayEngine, under: redisIncr, figure: perSecond, target: atLeast(2.5), group: engineRows},
	{name: "engine-incr-allocate", what: "the same, allocations only", scene: "64x16 allocations", over: gatewayEngine, under: redisIncr, figure: perSecond, target: atLeast(2.5), group: engineRows},
	{name: "engine-far-peak", what: "with PostgreSQL 5 ms away: performance engine ÷ reliable, 64 × 16", scene: "far 64x16", over: engineFar, under: gatewayFar, figure: perSecond, target: atLeast(2), group: engineRows},
	{name: "engine-far-allocate", what: "the same, allocations only", scene: "far 64x16 allocations", over: engineFar, under: gatewayFar, figure: perSecond, target: atLeast(2), group: engineRows},
	{name: "engine-far-p50", what: "with PostgreSQL 5 ms away: p50 of hand-outs of the performance engine ÷ reliable's, open loop, 10,000/s", scene: "far open 5000", over: engineFar, under: gatewayFar, figure: p50, target: atMost(0.15), group: engineRows},
	{name: "engine-far-p99", what: "with PostgreSQL 5 ms away: p99, the same load", scene: "far open 5000", over: engineFar, under: gatewayFar, figure: p99, target: atMost(0.3), group: engineRows},
	{name: "engine-lag", what: "how far PostgreSQL was behind at most, at peak", scene: "engine soak", over: gatewayEngine, figure: notedIn(noteLagMost, "ms"), target: atMost(soakLag), long: true, group: engineRows},
	{name: "engine-memory", what: "memory of Redis, median of the last third ÷ of the first, at peak", scene: "engine soak", over: gatewayEngine, figure: noted(noteGrown), target: atMost(1.1), long: true, group: engineRows},
	{name: "engine-outage", what: "PostgreSQL refuses connections for 20 s: hand-outs go on, marks wait and are all answered afterwards", scene: "engine-outage",
		over: refusing, figure: passed, target: atLeast(1), long: true, group: engineRows},
	{name: "engine-outage-longest", what: "the longest that a hand-out took", scene: "engine-outage",
		over: refusing, figure: notedIn(noteLongestHandOut, "ms"), long: true, group: engineRows},
	{name: "engine-silence", what: "PostgreSQL is a black hole for 20 s: the same", scene: "engine-outage",
		over: silent, figure: passed, target: atLeast(1), long: true, group: engineRows},
	{name: "engine-silence-longest", what: "the longest that a hand-out took", scene: "engine-outage",
		over: silent, figure: notedIn(noteLongestHandOut, "ms"), long: true, group: engineRows},
}

// soakLag bounds how far the rows are behind in a soak, in milliseconds: the gateway's --ship-sla.
const soakLag = 1000

// notedIn is a figure among the notes that stands alone, with a unit.
func notedIn(name, unit string) figure {
	f := noted(name)
	f.unit = unit
	return f
}

// chooseRows finds rows by name, in the table's order. "all" names every one, the name
// of a group those of it that are not long.
func chooseRows(names []string) ([]row, error) {
	words := []string{"all"}
	for _, r := range rows {
		words = append(words, r.name)
		if r.group != "" && !slices.Contains(words, r.group) {
			words = append(words, r.group)
		}
	}
	if err := known("--rows", names, words); err != nil {
		return nil, err
	}
	var chosen []row
	for _, r := range rows {
		grouped := r.group != "" && slices.Contains(names, r.group)
		if slices.Contains(names, r.name) || slices.Contains(names, "all") || (len(names) == 0 || grouped) && !r.long {
			chosen = append(chosen, r)
		}
	}
	return chosen, nil
}

// settings tells what the figures depend on beside the machine.
func (c *Config) settings(a *arena) map[string]string {
	out := map[string]string{
		"rounds": fmt.Sprint(c.Rounds), "warm-up": c.Warmup.String(), "measured": c.Duration.String(),
		"gateway":    strings.Join(gatewayFlags, " "),
		"PostgreSQL": strings.Join(postgresSettings, ", ") + ", fsync = on, synchronous_commit = on",
	}
	if a.uses(gatewayChain) {
		out["gateway with a chain"] = strings.Join(chainFlags, " ")
	}
	if a.uses(engineOutage) {
		out["gateway whose PostgreSQL goes away"] = strings.Join(outageFlags, " ")
	}
	if a.usesRedis() {
		out["redis"] = strings.Join(redisSettings, ", ")
	}
	return out
}
