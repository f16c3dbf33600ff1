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

func atLeast(v float64) *Target { return &Target{AtLeast: v} }
func atMost(v float64) *Target  { return &Target{AtMost: v} }

// engineRows is the group of the rows about the performance engine.
const engineRows = "engine"

// rows is the table of the design, and a few lines beside it.
var rows = []Row{
	{Name: "echo", What: "durable ÷ echo, 64 × 16", Scene: "64x16", Over: gatewayPostgres, Under: echo, figure: perSecond, Target: atLeast(0.8)},
	{Name: "echo-coalesce", What: "durable ÷ echo that coalesces, 64 × 16", Scene: "64x16", Over: gatewayPostgres, Under: echoCoalesce, figure: perSecond},
	{Name: "echo-sqlite", What: "SQLite ÷ echo, 64 × 16", Scene: "64x16", Over: gatewaySQLite, Under: echo, figure: perSecond, Target: atLeast(0.45)},
	{Name: "echo-allocate", What: "durable ÷ echo, 64 × 16, allocations only", Scene: "64x16 allocations", Over: gatewayPostgres, Under: echo, figure: perSecond, Target: atLeast(0.8)},
	{Name: "echo-1000", What: "durable ÷ echo, 1,000 × 1", Scene: "1000x1", Over: gatewayPostgres, Under: echo, figure: perSecond, Target: atLeast(0.7)},
	{Name: "echo-5000", What: "durable ÷ echo, 5,000 × 1", Scene: "5000x1", Over: gatewayPostgres, Under: echo, figure: perSecond, Target: atLeast(0.7)},
	{Name: "naive", What: "durable ÷ naive, 64 × 16, 1,000 signers", Scene: "64x16", Over: gatewayPostgres, Under: naive, figure: perSecond, Target: atLeast(20)},
	{Name: "naive-hot", What: "durable ÷ naive, 64 × 16, one hot signer", Scene: "hot 64x16", Over: gatewayPostgres, Under: naive, figure: perSecond, Target: atLeast(100)},
	{Name: "redis-incr", What: "durable ÷ one command of a Redis a request, 64 × 16", Scene: "64x16", Over: gatewayPostgres, Under: redisIncr, figure: perSecond},
	{Name: "hot", What: "one hot signer ÷ many, 256 × 4", Scene: "256x4", Over: "one hot signer", Under: "1,000 signers", figure: perSecond, Target: atLeast(1)},
	{Name: "million", What: "a million signers at random, 20 M rows of history ÷ a thousand signers, 64 × 16", Scene: "million", Over: aMillion, Under: "1,000 signers", figure: perSecond, Target: atLeast(0.5), long: true},
	{Name: "open", What: "p99 ÷ echo's p99, open loop, 5,000 connections, 10,000/s", Scene: "open 5000", Over: gatewayPostgres, Under: echo, figure: p99, Target: atMost(3)},
	{Name: "idle", What: "resident memory per idle connection", Scene: "idle", Over: gatewayPostgres, figure: perConnection, Target: atMost(8 << 10)},
	{Name: "slow", What: "healthy clients' p99 with 20 % that do not read ÷ without", Scene: "slow", Over: "20 % do not read", Under: "all read", figure: p99, Target: atMost(1.2)},
	{Name: "soak", What: "soak at half of the lasting peak: all is answered, no queue grows, no dead rows pile up", Scene: "soak", Over: halfOfPeak, figure: passed, Target: atLeast(1), long: true},
	{Name: "soak-wal", What: "WAL of the soak", Scene: "soak", Over: halfOfPeak, figure: notedIn(noteWAL, "bytes a pair"), long: true},
	{Name: "expiry", What: "p99 while 300,000 holds of others end ÷ with nothing left behind, open loop, 2,000/s", Scene: "expiry", Over: holdsLeft, Under: nothingLeft, figure: p99, Target: atMost(1.5), long: true},
	{Name: "greed", What: "a modest client's p99 beside a greedy one at its gateway ÷ beside the same at another gateway of the machine", Scene: "greed", Over: sameGateway, Under: anotherGateway, figure: p99, Target: atMost(1), long: true},
	{Name: "greed-p50", What: "p50, the same load", Scene: "greed", Over: sameGateway, Under: anotherGateway, figure: p50, long: true},

	{Name: "keys", What: "clients with API keys, rights and who holds what ÷ without, 64 × 16", Scene: "64x16", Over: gatewayKeys, Under: gatewayPostgres, figure: perSecond, Target: atLeast(0.97)},
	{Name: "chain", What: "signers whose chain is asked ÷ without a chain, 64 × 16", Scene: "64x16", Over: gatewayChain, Under: gatewayPostgres, figure: perSecond, Target: atLeast(0.95)},

	{Name: "engine-peak", What: "performance engine ÷ reliable, 64 × 16", Scene: "64x16", Over: gatewayEngine, Under: gatewayPostgres, figure: perSecond, Target: atLeast(1.2), group: engineRows},
	{Name: "engine-allocate", What: "the same, allocations only", Scene: "64x16 allocations", Over: gatewayEngine, Under: gatewayPostgres, figure: perSecond, Target: atLeast(1.2), group: engineRows},
	{Name: "engine-incr", What: "performance engine ÷ one command of a Redis a request, 64 × 16", Scene: "64x16", Over: gatewayEngine, Under: redisIncr, figure: perSecond, Target: atLeast(2.5), group: engineRows},
	{Name: "engine-incr-allocate", What: "the same, allocations only", Scene: "64x16 allocations", Over: gatewayEngine, Under: redisIncr, figure: perSecond, Target: atLeast(2.5), group: engineRows},
	{Name: "engine-far-peak", What: "with PostgreSQL 5 ms away: performance engine ÷ reliable, 64 × 16", Scene: "far 64x16", Over: engineFar, Under: gatewayFar, figure: perSecond, Target: atLeast(2), group: engineRows},
	{Name: "engine-far-allocate", What: "the same, allocations only", Scene: "far 64x16 allocations", Over: engineFar, Under: gatewayFar, figure: perSecond, Target: atLeast(2), group: engineRows},
	{Name: "engine-far-p50", What: "with PostgreSQL 5 ms away: p50 of hand-outs of the performance engine ÷ reliable's, open loop, 10,000/s", Scene: "far open 5000", Over: engineFar, Under: gatewayFar, figure: p50, Target: atMost(0.15), group: engineRows},
	{Name: "engine-far-p99", What: "with PostgreSQL 5 ms away: p99, the same load", Scene: "far open 5000", Over: engineFar, Under: gatewayFar, figure: p99, Target: atMost(0.3), group: engineRows},
	{Name: "engine-lag", What: "how far PostgreSQL was behind at most, at peak", Scene: "engine soak", Over: gatewayEngine, figure: notedIn(noteLagMost, "ms"), Target: atMost(soakLag), long: true, group: engineRows},
	{Name: "engine-memory", What: "memory of Redis, median of the last third ÷ of the first, at peak", Scene: "engine soak", Over: gatewayEngine, figure: noted(noteGrown), Target: atMost(1.1), long: true, group: engineRows},
	{Name: "engine-outage", What: "PostgreSQL refuses connections for 20 s: hand-outs go on, marks wait and are all answered afterwards", Scene: "engine-outage",
		Over: refusing, figure: passed, Target: atLeast(1), long: true, group: engineRows},
	{Name: "engine-outage-longest", What: "the longest that a hand-out took", Scene: "engine-outage",
		Over: refusing, figure: notedIn(noteLongestHandOut, "ms"), long: true, group: engineRows},
	{Name: "engine-silence", What: "PostgreSQL is a black hole for 20 s: the same", Scene: "engine-outage",
		Over: silent, figure: passed, Target: atLeast(1), long: true, group: engineRows},
	{Name: "engine-silence-longest", What: "the longest that a hand-out took", Scene: "engine-outage",
		Over: silent, figure: notedIn(noteLongestHandOut, "ms"), long: true, group: engineRows},
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
func chooseRows(names []string) ([]Row, error) {
	words := []string{"all"}
	for _, r := range rows {
		words = append(words, r.Name)
		if r.group != "" && !slices.Contains(words, r.group) {
			words = append(words, r.group)
		}
	}
	if err := known("--rows", names, words); err != nil {
		return nil, err
	}
	var chosen []Row
	for _, r := range rows {
		grouped := r.group != "" && slices.Contains(names, r.group)
		if slices.Contains(names, r.Name) || slices.Contains(names, "all") || (len(names) == 0 || grouped) && !r.long {
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
