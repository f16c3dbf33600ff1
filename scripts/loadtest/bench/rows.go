//go:build unix

package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/traffic"
)

// The kinds of servers. A far one has a PostgreSQL whose every reply takes farAway longer.
const (
	gateway   = "gateway"
	sqlite    = "gateway-sqlite"
	far       = "gateway-far"
	engineFar = "gateway-engine-far"
	chained   = "gateway-chain" // asks a node about all signers of the load
	floor     = "floor"
	echo      = "echo"
	naive     = "naive"
)

const farAway = 5 * time.Millisecond

// Row is a figure of one side over that of another, or alone, and its target: one of the two bounds.
type Row struct {
	Name, What, Scene string
	figure            figure
	AtLeast, AtMost   float64
	sides             []side // over the second, if there is one
	times             int    // of the bench's duration is measured, where what is measured takes time to show; 0: 1
	once              bool   // one round is enough
	long              bool   // measured only when it is asked for
	measured          []*Side
}

// rows are the targets of the design.
var rows = []Row{
	{Name: "floor", What: "÷ floor, 64 × 16", Scene: "64x16", figure: perSecond, AtLeast: 0.9, sides: on(burst, gateway, floor)},
	{Name: "echo", What: "÷ echo, 64 × 16", Scene: "64x16", figure: perSecond, AtLeast: 0.8, sides: on(burst, gateway, echo)},
	{Name: "echo-1000", What: "÷ echo, 1,000 × 1", Scene: "1000x1", figure: perSecond, AtLeast: 0.6,
		sides: on(closed(1000, 1, 1000), gateway, echo)},
	{Name: "echo-5000", What: "÷ echo, 5,000 × 1", Scene: "5000x1", figure: perSecond, AtLeast: 0.7,
		sides: on(closed(5000, 1, 1000), gateway, echo)},
	{Name: "open-p50", What: "p50 ÷ floor's, open loop, 500 connections, 2,000/s", Scene: "open 500", times: 2, figure: p50, AtMost: 1.5,
		sides: on(open500, gateway, floor)},
	{Name: "open-p99", What: "p99 ÷ floor's, the same load", Scene: "open 500", times: 2, figure: p99, AtMost: 2,
		sides: on(open500, gateway, floor)},
	{Name: "open-5000", What: "p99 ÷ floor's, open loop, 5,000 connections, 10,000/s", Scene: "open 5000", times: 2, figure: p99, AtMost: 3,
		sides: on(open(5000, 10_000), gateway, floor)},
	{Name: "naive", What: "÷ naive, 64 × 16, 1,000 signers", Scene: "64x16", figure: perSecond, AtLeast: 20, sides: on(burst, gateway, naive)},
	{Name: "naive-hot", What: "÷ naive, 64 × 16, one hot signer", Scene: "hot 64x16", figure: perSecond, AtLeast: 100,
		sides: on(closed(64, 16, 1), gateway, naive)},
	{Name: "hot", What: "one hot signer ÷ 1,000 signers, 256 × 4", Scene: "256x4", figure: perSecond, AtLeast: 1,
		sides: []side{{name: "one hot signer", server: gateway, load: closed(256, 4, 1)}, {server: gateway, load: closed(256, 4, 1000)}}},
	{Name: "million", What: "a million signers at random, 20 M rows of history ÷ a thousand signers, 64 × 16", Scene: "million",
		long: true, figure: perSecond, AtLeast: 0.5,
		sides: []side{{name: "a million signers", server: gateway, load: closed(64, 16, fullSigners), full: true},
			{server: gateway, load: burst}}},
	{Name: "nodes-owners", What: "three nodes ÷ one, clients at the owners", Scene: "nodes", figure: perSecond, AtLeast: 0.9,
		sides: []side{{name: "clients at the owners", server: gateway, nodes: 3, load: burst, drive: atOwners}, {server: gateway, load: burst}}},
	{Name: "nodes-anywhere", What: "three nodes ÷ one, clients anywhere", Scene: "nodes", figure: perSecond, AtLeast: 0.6,
		sides: []side{{name: "clients anywhere", server: gateway, nodes: 3, load: burst}, {server: gateway, load: burst}}},
	{Name: "idle", What: "resident memory per idle connection, 8,000 connections", Scene: "idle", figure: perConnection, AtMost: 8 << 10,
		sides: []side{{server: gateway, load: closed(8000, 1, 1000), drive: idle}}},
	{Name: "slow", What: "healthy clients' p99 with 20 % that do not read ÷ without", Scene: "slow", times: 5, figure: p99, AtMost: 1.2,
		sides: []side{{name: "20 % do not read", server: gateway, load: open(1000, 2000), drive: slow(true)},
			{name: "all read", server: gateway, load: open(1000, 2000), drive: slow(false)}}},
	{Name: "sqlite", What: "SQLite ÷ PostgreSQL, 64 × 16", Scene: "64x16", figure: perSecond, AtLeast: 0.8, sides: on(burst, sqlite, gateway)},
	{Name: "chain", What: "signers of a configured chain ÷ without a chain, 64 × 16", Scene: "64x16", figure: perSecond, AtLeast: 0.95,
		sides: on(burst, chained, gateway)},
	{Name: "engine-p50", What: "performance engine ÷ reliable, PostgreSQL 5 ms away, p50 of hand-outs", Scene: "far",
		times: 2, figure: handOutP50, AtMost: 0.15, sides: on(open500, engineFar, far)},
	{Name: "engine-p99", What: "the same, p99 of hand-outs", Scene: "far", times: 2, figure: handOutP99, AtMost: 0.3,
		sides: on(open500, engineFar, far)},
	{Name: "soak", What: "soak at half of the lasting peak: all is answered, no queue grows, no dead rows pile up", Scene: "soak",
		long: true, once: true, figure: passed, AtLeast: 1, sides: []side{{server: gateway, load: closed(200, 4, 1000), drive: soak}}},
}

var burst, open500 = closed(64, 16, 1000), open(500, 2000)

// side is servers under a load.
type side struct {
	name   string // "": that of server
	server string // its kind
	nodes  int    // gateways over one database; 0: 1
	full   bool   // the database has a million signers before
	load   traffic.Load
	drive  drive // nil: plain
}

// on are servers under a load as it is.
func on(l traffic.Load, over, under string) []side {
	return []side{{server: over, load: l}, {server: under, load: l}}
}

// closed is the load of the design: every connection sends a burst of allocations, waits, sends the burst of their marks, and waits.
func closed(connections, inflight, signers int) traffic.Load {
	return traffic.Load{
		Connections: connections, Inflight: inflight, Mix: traffic.Mix{Pairs: true}, Signers: traffic.Signers{Count: signers},
	}
}

// open is the same at a rate of requests a second, whatever was answered.
func open(connections int, rate float64) traffic.Load {
	l := closed(connections, 1, 1000)
	l.Rate = rate
	return l
}

// chooseRows finds rows by name, in the table's order; "all" names every one.
func chooseRows(names []string) (chosen []Row, err error) {
	known := []string{"all"}
	for _, r := range rows {
		known = append(known, r.Name)
		if slices.Contains(names, r.Name) || slices.Contains(names, "all") || len(names) == 0 && !r.long {
			chosen = append(chosen, r)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--rows knows no %q, only %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// scenesOf are the scenes that rows need, with their sides, which each row is told, too.
func scenesOf(rows []Row) (needed []*Scene) {
	scenes, sides := make(map[string]*Scene), make(map[string]*Side)
	for i := range rows {
		r := &rows[i]
		scene := scenes[r.Scene]
		if scene == nil {
			scene = &Scene{Name: r.Scene, times: max(r.times, 1), once: r.once}
			scenes[r.Scene], needed = scene, append(needed, scene)
		}
		for _, s := range r.sides {
			name := cmp.Or(s.name, s.server)
			key := r.Scene + "\n" + name
			if sides[key] == nil {
				sides[key] = &Side{Name: name, side: s}
				scene.Sides = append(scene.Sides, sides[key])
			}
			r.measured = append(r.measured, sides[key])
		}
	}
	return needed
}

// settings tells what the figures depend on beside the machine.
func (c *Config) settings() string {
	return fmt.Sprintf("%d rounds, warm-up %v, measured %v, soak %v; gateway %s; Redis %s; PostgreSQL %s, fsync = on, synchronous_commit = on",
		c.Rounds, c.Warmup, c.Duration, c.Soak, strings.Join(gatewayFlags, " "),
		strings.Join(redisSettings, ", "), strings.Join(postgresSettings, ", "))
}
