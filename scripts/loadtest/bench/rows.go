//go:build unix

package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/traffic"
)

// scene is a set of sides that are measured in alternation.
type scene struct {
	name  string
	about string
	sides []side // what is compared stands together
	// factor times the bench's duration is measured; 0 is 1. More where what is
	// measured takes time to show.
	factor int
	once   bool // one round is enough
}

// rounds is how often its sides are measured.
func (s *scene) rounds(c Config) int {
	if s.once {
		return 1
	}
	return c.Rounds
}

func (s *scene) times() int { return max(s.factor, 1) }

// side is one server under one load.
type side struct {
	name   string
	server string // one of the kinds of servers
	load   traffic.Load
	stored stored // what the store holds before; only gateway-postgres has any
	drive  drive  // nil: allocate
}

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

// rows is the table of the design, and a few lines without a target.
var rows = []row{
	{name: "echo", what: "durable allocate ÷ echo, 64 × 16", scene: "64x16", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(1)},
	{name: "echo-coalesce", what: "durable allocate ÷ echo that coalesces, 64 × 16", scene: "64x16", over: gatewayPostgres, under: echoCoalesce, figure: perSecond},
	{name: "echo-sqlite", what: "durable allocate on SQLite ÷ echo, 64 × 16", scene: "64x16", over: gatewaySQLite, under: echo, figure: perSecond},
	{name: "echo-1000", what: "durable allocate ÷ echo, 1,000 × 1", scene: "1000x1", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.7)},
	{name: "echo-5000", what: "durable allocate ÷ echo, 5,000 × 1", scene: "5000x1", over: gatewayPostgres, under: echo, figure: perSecond, target: atLeast(0.7)},
	{name: "naive", what: "durable allocate ÷ naive, 64 × 16, 1,000 signers", scene: "64x16", over: gatewayPostgres, under: naive, figure: perSecond, target: atLeast(15)},
	{name: "naive-hot", what: "durable allocate ÷ naive, 64 × 16, one hot signer", scene: "hot 64x16", over: gatewayPostgres, under: naive, figure: perSecond, target: atLeast(40)},
	{name: "redis-incr", what: "durable allocate ÷ one INCR a request, 64 × 16", scene: "64x16", over: gatewayPostgres, under: redisIncr, figure: perSecond},
	{name: "hot", what: "one hot signer ÷ many, 256 × 4", scene: "256x4", over: "one hot signer", under: "1,000 signers", figure: perSecond, target: atLeast(0.95)},
	{name: "open", what: "p99 ÷ echo's p99, open loop, 5,000 connections, 10,000/s", scene: "open 5000", over: gatewayPostgres, under: echo, figure: p99, target: atMost(3)},
	{name: "idle", what: "resident memory per idle connection", scene: "idle", over: gatewayPostgres, figure: perConnection, target: atMost(8 << 10)},
	{name: "slow", what: "healthy clients' p99 with 20 % that do not read ÷ without", scene: "slow", over: "20 % do not read", under: "all read", figure: p99, target: atMost(1.2)},
	{name: "filled", what: "throughput with 1 M signers and 20 M allocations stored ÷ empty, load on 1,000 of them", scene: "filled", over: "filled", under: "empty", figure: perSecond, target: atLeast(0.8), long: true},
	{name: "filled-all", what: "the same, load on all 1 M", scene: "filled", over: "filled, all signers", under: "empty, all signers", figure: perSecond, long: true},
	{name: "sqlite", what: "SQLite ÷ PostgreSQL, 64 × 16", scene: "64x16", over: gatewaySQLite, under: gatewayPostgres, figure: perSecond, target: atLeast(0.5)},

	{name: "keys", what: "clients with API keys, rights and who holds what ÷ without, 64 × 16", scene: "64x16", over: gatewayKeys, under: gatewayPostgres, figure: perSecond, target: atLeast(0.97)},
	{name: "chain", what: "signers whose chain is asked ÷ without a chain, 64 × 16", scene: "64x16", over: gatewayChain, under: gatewayPostgres, figure: perSecond, target: atLeast(0.95)},

	{name: "engine-peak", what: "performance engine ÷ reliable, 64 × 16", scene: "64x16", over: gatewayEngine, under: gatewayPostgres, figure: perSecond, target: atLeast(0.5), group: engineRows},
	{name: "engine-incr", what: "performance engine ÷ one INCR a request, 64 × 16", scene: "64x16", over: gatewayEngine, under: redisIncr, figure: perSecond, target: atLeast(1), group: engineRows},
	{name: "engine-p50", what: "p50 of the performance engine ÷ reliable's, open loop, 10,000/s", scene: "open 5000", over: gatewayEngine, under: gatewayPostgres, figure: p50, group: engineRows},
	{name: "engine-p99", what: "p99, the same load", scene: "open 5000", over: gatewayEngine, under: gatewayPostgres, figure: p99, group: engineRows},
	{name: "engine-far-peak", what: "with PostgreSQL 5 ms away: performance engine ÷ reliable, 64 × 16", scene: "far 64x16", over: engineFar, under: gatewayFar, figure: perSecond, target: atLeast(1), group: engineRows},
	{name: "engine-far-p50", what: "with PostgreSQL 5 ms away: p50 of the performance engine ÷ reliable's, open loop, 10,000/s", scene: "far open 5000", over: engineFar, under: gatewayFar, figure: p50, group: engineRows},
	{name: "engine-far-p99", what: "with PostgreSQL 5 ms away: p99, the same load", scene: "far open 5000", over: engineFar, under: gatewayFar, figure: p99, target: atMost(0.4), group: engineRows},
	{name: "engine-lag", what: "how far PostgreSQL was behind at most, at peak", scene: "soak", over: gatewayEngine, figure: notedIn(noteLagMost, "ms"), target: atMost(soakLag), long: true, group: engineRows},
	{name: "engine-memory", what: "memory of Redis, median of the last third ÷ of the first, at peak", scene: "soak", over: gatewayEngine, figure: noted(noteGrown), target: atMost(1.1), long: true, group: engineRows},
}

// soakLag bounds the lag of a soak, in milliseconds: hand-outs wait for the flush from
// the gateway's --flush-sla on, of 1 s, which is looked at twice a second.
const soakLag = 2500

// notedIn is a figure among the notes that stands alone, with a unit.
func notedIn(name, unit string) figure {
	f := noted(name)
	f.unit = unit
	return f
}

// RowNames lists the rows that Run knows; long ones are measured only when they
// are asked for.
func RowNames() (usual, long []string) {
	for _, r := range rows {
		if r.long {
			long = append(long, r.name)
		} else {
			usual = append(usual, r.name)
		}
	}
	return usual, long
}

// chooseRows finds rows by name, in the table's order. "all" names every one, the name
// of a group those of it that are not long.
func chooseRows(names []string) ([]row, error) {
	usual, long := RowNames()
	for _, name := range names {
		if name != "all" && name != engineRows && !slices.Contains(usual, name) && !slices.Contains(long, name) {
			rule := fmt.Sprintf("knows no %q, only %s, and %s and all", name, strings.Join(append(usual, long...), ", "), engineRows)
			return nil, &ConfigError{"--rows", rule}
		}
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

// scenesOf picks the scenes that rows need, with only the sides they need.
func scenesOf(rows []row, scenes []scene) []scene {
	var needed []scene
	for _, s := range scenes {
		var sides []side
		for _, side := range s.sides {
			if slices.ContainsFunc(rows, func(r row) bool {
				return r.scene == s.name && (r.over == side.name || r.under == side.name)
			}) {
				sides = append(sides, side)
			}
		}
		if s.sides = sides; len(sides) > 0 {
			needed = append(needed, s)
		}
	}
	return needed
}

// closed is the load of the design: allocate only, every connection sends a burst
// and waits for its replies.
func closed(connections, inflight, signers int) traffic.Load {
	return traffic.Load{Connections: connections, Inflight: inflight, Signers: traffic.Signers{Count: signers}}
}

// open is the same at a rate of requests a second, whatever was answered.
func open(connections int, rate float64) traffic.Load {
	l := closed(connections, 1, 1000)
	l.Rate = rate
	return l
}

// sides are servers under one load, named by the server.
func sides(l traffic.Load, servers ...string) (out []side) {
	for _, server := range servers {
		out = append(out, side{name: server, server: server, load: l})
	}
	return out
}

// What the filled scene stores: as many signers and allocations of each.
var fullStore = stored{signers: 1_000_000, each: 20}

// scenes are those that rows name.
func scenes(c Config) []scene {
	gateway := func(name string, l traffic.Load, st stored, d drive) side {
		return side{name: name, server: gatewayPostgres, load: l, stored: st, drive: d}
	}
	return []scene{
		{name: "64x16", about: "64 connections, bursts of 16, 1,000 signers",
			sides: sides(closed(64, 16, 1000), echoCoalesce, echo, gatewayPostgres, gatewayKeys, gatewayChain, naive, redisIncr, gatewayEngine, gatewaySQLite)},
		{name: "1000x1", about: "1,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(1000, 1, 1000), echo, gatewayPostgres)},
		{name: "5000x1", about: "5,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(5000, 1, 1000), echo, gatewayPostgres)},
		{name: "hot 64x16", about: "64 connections, bursts of 16, one hot signer", sides: sides(closed(64, 16, 1), gatewayPostgres, naive)},
		{name: "256x4", about: "256 connections, bursts of 4", sides: []side{
			gateway("1,000 signers", closed(256, 4, 1000), stored{}, nil),
			gateway("one hot signer", closed(256, 4, 1), stored{}, nil)}},
		{name: "open 5000", about: "open loop, 5,000 connections, 10,000 requests/s, 1,000 signers", factor: 2,
			sides: sides(open(5000, 10_000), echo, gatewayPostgres, gatewayEngine)},
		{name: "idle", about: "8,000 connections, one request each, memory " + c.Idle.String() + " later less the start's",
			sides: []side{gateway(gatewayPostgres, closed(8000, 1, 1000), stored{}, idle(c.Idle))}},
		{name: "slow", about: "open loop, 1,000 clients, 2,000 requests/s, 1,000 signers; 20 % subscribed to all, sending, and not reading from the begin on, or idle", factor: 5,
			sides: []side{
				gateway("all read", open(1000, 2000), stored{}, slow(0.2, false)),
				gateway("20 % do not read", open(1000, 2000), stored{}, slow(0.2, true))}},
		{name: "filled", about: fmt.Sprintf("64 connections, bursts of 16; %v", fullStore), sides: []side{
			gateway("empty", closed(64, 16, 1000), stored{}, nil),
			gateway("filled", closed(64, 16, 1000), fullStore, nil),
			gateway("empty, all signers", closed(64, 16, fullStore.signers), stored{}, nil),
			gateway("filled, all signers", closed(64, 16, fullStore.signers), fullStore, nil)}},
		{name: "far 64x16", about: "64 connections, bursts of 16, 1,000 signers; " + farAbout, sides: sides(closed(64, 16, 1000), gatewayFar, engineFar)},
		{name: "far open 5000", about: "open loop, 5,000 connections, 10,000 requests/s, 1,000 signers; " + farAbout, factor: 2,
			sides: sides(open(5000, 10_000), gatewayFar, engineFar)},
		{name: "soak", about: "64 connections, bursts of 16, 1,000 signers, half allocate and half markUsed, for " + c.Soak.String(), once: true,
			sides: []side{{name: gatewayEngine, server: gatewayEngine, load: halfMarks(), drive: soak(c.Soak)}}},
	}
}

var farAbout = "every reply of PostgreSQL " + farAway.String() + " later"

// halfMarks is the load of a soak: what is handed out is used.
func halfMarks() traffic.Load {
	l := closed(64, 16, 1000)
	l.Mix = traffic.Mix{Allocate: 1, MarkUsed: 1}
	return l
}

// scaleScenes are those of Scale.
func scaleScenes() []scene {
	connections := scene{name: "connections", about: "gateway on PostgreSQL, 1 in flight, 1,000 signers"}
	for _, n := range []int{100, 1000, 5000, 9000} {
		connections.sides = append(connections.sides, side{
			name: whole(float64(n)) + " connections", server: gatewayPostgres, load: closed(n, 1, 1000), drive: overload})
	}
	signers := scene{name: "signers", about: "gateway on PostgreSQL, 64 connections, bursts of 16, load on all signers"}
	for _, st := range []stored{{1000, 20}, {100_000, 20}, {1_000_000, 20}, {1000, 20_000}} {
		signers.sides = append(signers.sides, side{
			name: st.String(), server: gatewayPostgres, load: closed(64, 16, st.signers), stored: st, drive: overload})
	}
	return []scene{connections, signers}
}

// SceneNames lists the scenes that Scale knows.
func SceneNames() (names []string) {
	for _, s := range scaleScenes() {
		names = append(names, s.name)
	}
	return names
}

// chooseScenes finds scenes by name; no name means all.
func chooseScenes(names []string, scenes []scene) ([]scene, error) {
	for _, name := range names {
		if !slices.Contains(SceneNames(), name) {
			return nil, &ConfigError{"--only", fmt.Sprintf("knows no %q, only %s", name, strings.Join(SceneNames(), ", "))}
		}
	}
	return slices.DeleteFunc(scenes, func(s scene) bool {
		return len(names) > 0 && !slices.Contains(names, s.name)
	}), nil
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
	if a.usesRedis() {
		out["redis"] = strings.Join(redisSettings, ", ")
		out["gateway with Redis"] = strings.Join(engineFlags, " ")
	}
	return out
}

// loadFor is the load of a side, timed as the bench is told.
func (s *side) loadFor(c Config, times int, url string) traffic.Load {
	l := s.load
	l.URLs = []string{url}
	l.Warmup, l.Duration = c.Warmup, time.Duration(times)*c.Duration
	return l
}
