//go:build unix

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"noncegate/scripts/loadtest/table"
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
	once   bool                     // one round is enough, and its sides are measured together or not at all
	layout func(*Scene) table.Table // of its table; nil: that of most
}

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
	drive  drive  // nil: plain

	// nodes are the gateways of a cluster over one fresh PostgreSQL, which is measured
	// in place of one server: then of the above there is only the name.
	nodes      []nodeKind
	driveNodes func(ctx context.Context, cl *cluster, c Config) (Sample, error)
}

// scenesOf picks the scenes that rows need, with only the sides they need.
func scenesOf(rows []Row, scenes []scene) []scene {
	var needed []scene
	for _, s := range scenes {
		var sides []side
		for _, side := range s.sides {
			if slices.ContainsFunc(rows, func(r Row) bool {
				return r.Scene == s.name && (s.once || r.Over == side.name || r.Under == side.name)
			}) {
				sides = append(sides, side)
			}
		}
		s.sides = sides
		if len(sides) > 0 {
			needed = append(needed, s)
		}
	}
	return needed
}

// closed is the load of the design: every connection sends a burst of allocations, waits
// for the replies, sends the burst of their marks, and waits again.
func closed(connections, inflight, signers int) traffic.Load {
	return traffic.Load{
		Connections: connections, Inflight: inflight, Mix: traffic.Mix{Pairs: true}, Signers: traffic.Signers{Count: signers},
	}
}

// allocations is the same without the marks.
func allocations(l traffic.Load) traffic.Load {
	l.Mix = traffic.Mix{}
	return l
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

// fullStore is what the signers of the scene with a million have behind them.
var fullStore = stored{signers: 1_000_000, each: 20}

// aMillion is the side with that many signers.
const aMillion = "a million signers"

// scenes are those that rows name.
func scenes(c Config) []scene {
	gateway := func(name string, l traffic.Load, st stored, d drive) side {
		return side{name: name, server: gatewayPostgres, load: l, stored: st, drive: d}
	}
	return []scene{
		{name: "64x16", about: "64 connections, bursts of 16, 1,000 signers",
			sides: sides(closed(64, 16, 1000), echoCoalesce, echo, gatewayPostgres, gatewayKeys, gatewayChain, naive, redisIncr, gatewayEngine, gatewaySQLite)},
		{name: "64x16 allocations", about: "64 connections, bursts of 16, 1,000 signers, allocations only",
			sides: sides(allocations(closed(64, 16, 1000)), echo, gatewayPostgres, gatewayEngine, redisIncr)},
		{name: "1000x1", about: "1,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(1000, 1, 1000), echo, gatewayPostgres)},
		{name: "5000x1", about: "5,000 connections, 1 in flight, 1,000 signers", sides: sides(closed(5000, 1, 1000), echo, gatewayPostgres)},
		{name: "hot 64x16", about: "64 connections, bursts of 16, one hot signer", sides: sides(closed(64, 16, 1), gatewayPostgres, naive)},
		{name: "256x4", about: "256 connections, bursts of 4", sides: []side{
			gateway("1,000 signers", closed(256, 4, 1000), stored{}, nil),
			gateway("one hot signer", closed(256, 4, 1), stored{}, nil)}},
		{name: "open 5000", about: "open loop, 5,000 connections, 10,000 requests/s, 1,000 signers", factor: 2,
			sides: sides(open(5000, 10_000), echo, gatewayPostgres)},
		{name: "idle", about: "8,000 connections, one request each, memory " + c.Idle.String() + " later less the start's",
			sides: []side{gateway(gatewayPostgres, closed(8000, 1, 1000), stored{}, idle(c.Idle))}},
		{name: "slow", about: "open loop, 1,000 clients, 2,000 requests/s, 1,000 signers; 20 % subscribed to all, sending, and not reading from the begin on, or idle", factor: 5,
			sides: []side{
				gateway("all read", open(1000, 2000), stored{}, slow(0.2, false)),
				gateway("20 % do not read", open(1000, 2000), stored{}, slow(0.2, true))}},
		{name: "million", about: fmt.Sprintf("64 connections, bursts of 16; 1,000 signers of an empty database, or %v and load on all of them", fullStore), sides: []side{
			gateway("1,000 signers", closed(64, 16, 1000), stored{}, nil),
			gateway(aMillion, closed(64, 16, fullStore.signers), fullStore, nil)}},
		soakScene(c.Soak),
		expiryScene(),
		greedScene(),
		{name: "far 64x16", about: "64 connections, bursts of 16, 1,000 signers; " + farAbout, sides: sides(closed(64, 16, 1000), gatewayFar, engineFar)},
		{name: "far 64x16 allocations", about: "64 connections, bursts of 16, 1,000 signers, allocations only; " + farAbout, sides: sides(allocations(closed(64, 16, 1000)), gatewayFar, engineFar)},
		{name: "far open 5000", about: "open loop, 5,000 connections, 10,000 allocations/s, 1,000 signers; " + farAbout, factor: 2,
			sides: sides(allocations(open(5000, 10_000)), gatewayFar, engineFar)},
		{name: "engine soak", about: "64 connections, bursts of 16, 1,000 signers, for " + c.Soak.String(), once: true,
			sides: []side{{name: gatewayEngine, server: gatewayEngine, load: closed(64, 16, 1000), drive: engineSoak(c.Soak)}}},
		outageScene(usualOutage, open(500, 3000)),
	}
}

var farAbout = "every reply of PostgreSQL " + farAway.String() + " later"

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

// chooseScenes finds scenes by name; no name means all.
func chooseScenes(names []string, scenes []scene) ([]scene, error) {
	var words []string
	for _, s := range scenes {
		words = append(words, s.name)
	}
	if err := known("--only", names, words); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(scenes, func(s scene) bool {
		return len(names) > 0 && !slices.Contains(names, s.name)
	}), nil
}

// loadFor is the load of a side, timed as the bench is told.
func (s *side) loadFor(c Config, times int, url string) traffic.Load {
	l := s.load
	l.URLs = []string{url}
	l.Warmup, l.Duration = c.Warmup, time.Duration(times)*c.Duration
	return l
}
