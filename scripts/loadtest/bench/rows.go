//go:build unix

package bench

import (
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

// rows are the targets of the design.
var rows = []Row{
	{Name: "floor", What: "÷ floor, 64 × 16", Scene: "64x16", Over: gateway, Under: floor, Figure: perSecond, AtLeast: 0.9},
	{Name: "echo", What: "÷ echo, 64 × 16", Scene: "64x16", Over: gateway, Under: echo, Figure: perSecond, AtLeast: 0.8},
	{Name: "echo-1000", What: "÷ echo, 1,000 × 1", Scene: "1000x1", Over: gateway, Under: echo, Figure: perSecond, AtLeast: 0.6},
	{Name: "echo-5000", What: "÷ echo, 5,000 × 1", Scene: "5000x1", Over: gateway, Under: echo, Figure: perSecond, AtLeast: 0.7},
	{Name: "open-p50", What: "p50 ÷ floor's, open loop, 500 connections, 2,000/s", Scene: "open 500", Over: gateway, Under: floor, Figure: p50, AtMost: 1.5},
	{Name: "open-p99", What: "p99 ÷ floor's, the same load", Scene: "open 500", Over: gateway, Under: floor, Figure: p99, AtMost: 2},
	{Name: "open-5000", What: "p99 ÷ floor's, open loop, 5,000 connections, 10,000/s", Scene: "open 5000", Over: gateway, Under: floor, Figure: p99, AtMost: 3},
	{Name: "naive", What: "÷ naive, 64 × 16, 1,000 signers", Scene: "64x16", Over: gateway, Under: naive, Figure: perSecond, AtLeast: 20},
	{Name: "naive-hot", What: "÷ naive, 64 × 16, one hot signer", Scene: "hot 64x16", Over: gateway, Under: naive, Figure: perSecond, AtLeast: 100},
	{Name: "hot", What: "one hot signer ÷ 1,000 signers, 256 × 4", Scene: "256x4", Over: "one hot signer", Under: "1,000 signers", Figure: perSecond, AtLeast: 1},
	{Name: "million", What: "a million signers at random, 20 M rows of history ÷ a thousand signers, 64 × 16", Scene: "million", Over: "a million signers", Under: "1,000 signers", Figure: perSecond, AtLeast: 0.5, long: true},
	{Name: "nodes-owners", What: "three nodes ÷ one, clients at the owners", Scene: "nodes", Over: "three nodes, clients at the owners", Under: "one node", Figure: perSecond, AtLeast: 0.9},
	{Name: "nodes-anywhere", What: "three nodes ÷ one, clients anywhere", Scene: "nodes", Over: "three nodes, clients anywhere", Under: "one node", Figure: perSecond, AtLeast: 0.6},
	{Name: "idle", What: "resident memory per idle connection, 8,000 connections", Scene: "idle", Over: gateway, Figure: perConnection, AtMost: 8 << 10},
	{Name: "slow", What: "healthy clients' p99 with 20 % that do not read ÷ without", Scene: "slow", Over: "20 % do not read", Under: "all read", Figure: p99, AtMost: 1.2},
	{Name: "sqlite", What: "SQLite ÷ PostgreSQL, 64 × 16", Scene: "64x16", Over: sqlite, Under: gateway, Figure: perSecond, AtLeast: 0.8},
	{Name: "chain", What: "signers of a configured chain ÷ without a chain, 64 × 16", Scene: "64x16", Over: chained, Under: gateway, Figure: perSecond, AtLeast: 0.95},
	{Name: "engine-p50", What: "performance engine ÷ reliable, PostgreSQL 5 ms away, p50 of hand-outs", Scene: "far", Over: engineFar, Under: far, Figure: handOutP50, AtMost: 0.15},
	{Name: "engine-p99", What: "the same, p99 of hand-outs", Scene: "far", Over: engineFar, Under: far, Figure: handOutP99, AtMost: 0.3},
	{Name: "soak", What: "soak at half of the lasting peak: all is answered, no queue grows, no dead rows pile up", Scene: "soak", Over: gateway, Figure: passed, AtLeast: 1, long: true},
}

// scene is sides that are measured in alternation.
type scene struct {
	name, about string
	times       int  // of the bench's duration is measured, where what is measured takes time to show; 0: 1
	once        bool // one round is enough
	sides       []side
}

// side is servers under a load.
type side struct {
	name   string
	server string // its kind
	nodes  int    // gateways over one database; 0: 1
	full   bool   // the database has a million signers before
	load   traffic.Load
	drive  drive
}

// scenes are those that rows name.
var scenes = []scene{
	{name: "64x16", about: "64 connections, bursts of 16, 1,000 signers", sides: sides(closed(64, 16, 1000), floor, echo, gateway, chained, naive, sqlite)},
	{name: "1000x1", about: "1,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(1000, 1, 1000), echo, gateway)},
	{name: "5000x1", about: "5,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(5000, 1, 1000), echo, gateway)},
	{name: "open 500", about: "open loop, 500 connections, 2,000 requests/s, 1,000 signers", times: 2, sides: sides(open(500, 2000), floor, gateway)},
	{name: "open 5000", about: "open loop, 5,000 connections, 10,000 requests/s, 1,000 signers", times: 2, sides: sides(open(5000, 10_000), floor, gateway)},
	{name: "hot 64x16", about: "64 connections, bursts of 16, one hot signer", sides: sides(closed(64, 16, 1), gateway, naive)},
	{name: "256x4", about: "256 connections, bursts of 4", sides: []side{
		{name: "1,000 signers", server: gateway, load: closed(256, 4, 1000), drive: plain},
		{name: "one hot signer", server: gateway, load: closed(256, 4, 1), drive: plain}}},
	{name: "million", about: "64 connections, bursts of 16; 1,000 signers of an empty database, or a million with 20 million rows of history", sides: []side{
		{name: "1,000 signers", server: gateway, load: closed(64, 16, 1000), drive: plain},
		{name: "a million signers", server: gateway, load: closed(64, 16, fullSigners), full: true, drive: plain}}},
	{name: "nodes", about: "64 connections, bursts of 16, 1,000 signers, gateways over one PostgreSQL", sides: []side{
		{name: "one node", server: gateway, load: closed(64, 16, 1000), drive: plain},
		{name: "three nodes, clients at the owners", server: gateway, nodes: 3, load: closed(64, 16, 1000), drive: atOwners},
		{name: "three nodes, clients anywhere", server: gateway, nodes: 3, load: closed(64, 16, 1000), drive: plain}}},
	{name: "idle", about: "8,000 connections, one request each, memory --idle later less the start's",
		sides: []side{{name: gateway, server: gateway, load: closed(8000, 1, 1000), drive: idle}}},
	{name: "slow", about: "open loop, 1,000 clients, 2,000 requests/s, 1,000 signers; 20 % subscribed to all, sending, and not reading, or idle", times: 5, sides: []side{
		{name: "all read", server: gateway, load: open(1000, 2000), drive: slow(false)},
		{name: "20 % do not read", server: gateway, load: open(1000, 2000), drive: slow(true)}}},
	{name: "far", about: "open loop, 500 connections, 2,000 requests/s, 1,000 signers; every reply of PostgreSQL 5 ms later", times: 2,
		sides: sides(open(500, 2000), far, engineFar)},
	{name: "soak", about: "200 connections, 1,000 signers, 2 subscribers to everything: a closed loop for three tenths of --soak, and then half of its rate for --soak", once: true,
		sides: []side{{name: gateway, server: gateway, load: closed(200, 4, 1000), drive: soak}}},
}

// closed is the load of the design: every connection sends a burst of allocations, waits for the replies, sends the
// burst of their marks, and waits again.
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

// sides are servers under one load, named by the server.
func sides(l traffic.Load, servers ...string) (out []side) {
	for _, server := range servers {
		out = append(out, side{name: server, server: server, load: l, drive: plain})
	}
	return out
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
			return nil, fmt.Errorf("%w--rows knows no %q, only %s", ErrConfig, name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// scenesOf picks the scenes that rows need, with only the sides they need.
func scenesOf(rows []Row) (needed []*scene) {
	for _, s := range scenes {
		s.sides = slices.DeleteFunc(slices.Clone(s.sides), func(side side) bool {
			return !slices.ContainsFunc(rows, func(r Row) bool { return r.Scene == s.name && (r.Over == side.name || r.Under == side.name) })
		})
		if len(s.sides) > 0 {
			needed = append(needed, &s)
		}
	}
	return needed
}

// settings tells what the figures depend on beside the machine.
func (c *Config) settings() string {
	return fmt.Sprintf("%d rounds, warm-up %v, measured %v, soak %v; gateway %s; Redis %s; PostgreSQL %s, fsync = on, synchronous_commit = on",
		c.Rounds, c.Warmup, c.Duration, c.Soak, strings.Join(gatewayFlags, " "), strings.Join(redisSettings, ", "), strings.Join(postgresSettings, ", "))
}
