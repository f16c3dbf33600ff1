//go:build unix

package bench

import (
	"fmt"
	"slices"
	"time"

	"noncegate/scripts/loadtest/traffic"
)

func (s *Scene) rounds(c Config) int {
	if s.once {
		return 1
	}
	return c.Rounds
}

func (s *Scene) times() int { return max(s.factor, 1) }

// scenesOf picks the scenes that rows need, with only the sides they need.
func scenesOf(rows []Row, scenes []Scene) []Scene {
	var needed []Scene
	for _, s := range scenes {
		var sides []Side
		for _, side := range s.Sides {
			if slices.ContainsFunc(rows, func(r Row) bool {
				return r.Scene == s.Name && (s.once || r.Over == side.Name || r.Under == side.Name)
			}) {
				sides = append(sides, side)
			}
		}
		s.Sides = sides
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
func sides(l traffic.Load, servers ...string) (out []Side) {
	for _, server := range servers {
		out = append(out, Side{Name: server, server: server, load: l})
	}
	return out
}

// fullStore is what the signers of the scene with a million have behind them.
var fullStore = stored{signers: 1_000_000, each: 20}

// aMillion is the side with that many signers.
const aMillion = "a million signers"

// scenes are those that rows name.
func scenes(c Config) []Scene {
	gateway := func(name string, l traffic.Load, st stored, d drive) Side {
		return Side{Name: name, server: gatewayPostgres, load: l, stored: st, drive: d}
	}
	return []Scene{
		{Name: "64x16", About: "64 connections, bursts of 16, 1,000 signers",
			Sides: sides(closed(64, 16, 1000), echoCoalesce, echo, gatewayPostgres, gatewayKeys, gatewayChain, naive, redisIncr, gatewayEngine, gatewaySQLite)},
		{Name: "64x16 allocations", About: "64 connections, bursts of 16, 1,000 signers, allocations only",
			Sides: sides(allocations(closed(64, 16, 1000)), echo, gatewayPostgres, gatewayEngine, redisIncr)},
		{Name: "1000x1", About: "1,000 connections, 1 in flight, 1,000 signers", Sides: sides(closed(1000, 1, 1000), echo, gatewayPostgres)},
		{Name: "5000x1", About: "5,000 connections, 1 in flight, 1,000 signers", Sides: sides(closed(5000, 1, 1000), echo, gatewayPostgres)},
		{Name: "hot 64x16", About: "64 connections, bursts of 16, one hot signer", Sides: sides(closed(64, 16, 1), gatewayPostgres, naive)},
		{Name: "256x4", About: "256 connections, bursts of 4", Sides: []Side{
			gateway("1,000 signers", closed(256, 4, 1000), stored{}, nil),
			gateway("one hot signer", closed(256, 4, 1), stored{}, nil)}},
		{Name: "open 5000", About: "open loop, 5,000 connections, 10,000 requests/s, 1,000 signers", factor: 2,
			Sides: sides(open(5000, 10_000), echo, gatewayPostgres)},
		{Name: "idle", About: "8,000 connections, one request each, memory " + c.Idle.String() + " later less the start's",
			Sides: []Side{gateway(gatewayPostgres, closed(8000, 1, 1000), stored{}, idle(c.Idle))}},
		{Name: "slow", About: "open loop, 1,000 clients, 2,000 requests/s, 1,000 signers; 20 % subscribed to all, sending, and not reading from the begin on, or idle", factor: 5,
			Sides: []Side{
				gateway("all read", open(1000, 2000), stored{}, slow(0.2, false)),
				gateway("20 % do not read", open(1000, 2000), stored{}, slow(0.2, true))}},
		{Name: "million", About: fmt.Sprintf("64 connections, bursts of 16; 1,000 signers of an empty database, or %v and load on all of them", fullStore), Sides: []Side{
			gateway("1,000 signers", closed(64, 16, 1000), stored{}, nil),
			gateway(aMillion, closed(64, 16, fullStore.signers), fullStore, nil)}},
		soakScene(c.Soak),
		expiryScene(),
		greedScene(),
		{Name: "far 64x16", About: "64 connections, bursts of 16, 1,000 signers; " + farAbout, Sides: sides(closed(64, 16, 1000), gatewayFar, engineFar)},
		{Name: "far 64x16 allocations", About: "64 connections, bursts of 16, 1,000 signers, allocations only; " + farAbout, Sides: sides(allocations(closed(64, 16, 1000)), gatewayFar, engineFar)},
		{Name: "far open 5000", About: "open loop, 5,000 connections, 10,000 allocations/s, 1,000 signers; " + farAbout, factor: 2,
			Sides: sides(allocations(open(5000, 10_000)), gatewayFar, engineFar)},
		{Name: "engine soak", About: "64 connections, bursts of 16, 1,000 signers, for " + c.Soak.String(), once: true,
			Sides: []Side{{Name: gatewayEngine, server: gatewayEngine, load: closed(64, 16, 1000), drive: engineSoak(c.Soak)}}},
		outageScene(usualOutage, open(500, 3000)),
	}
}

var farAbout = "every reply of PostgreSQL " + farAway.String() + " later"

func scaleScenes() []Scene {
	connections := Scene{Name: "connections", About: "gateway on PostgreSQL, 1 in flight, 1,000 signers"}
	for _, n := range []int{100, 1000, 5000, 9000} {
		connections.Sides = append(connections.Sides, Side{
			Name: whole(float64(n)) + " connections", server: gatewayPostgres, load: closed(n, 1, 1000), drive: overload})
	}
	signers := Scene{Name: "signers", About: "gateway on PostgreSQL, 64 connections, bursts of 16, load on all signers"}
	for _, st := range []stored{{1000, 20}, {100_000, 20}, {1_000_000, 20}, {1000, 20_000}} {
		signers.Sides = append(signers.Sides, Side{
			Name: st.String(), server: gatewayPostgres, load: closed(64, 16, st.signers), stored: st, drive: overload})
	}
	return []Scene{connections, signers}
}

// chooseScenes finds scenes by name; no name means all.
func chooseScenes(names []string, scenes []Scene) ([]Scene, error) {
	var words []string
	for _, s := range scenes {
		words = append(words, s.Name)
	}
	if err := known("--only", names, words); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(scenes, func(s Scene) bool {
		return len(names) > 0 && !slices.Contains(names, s.Name)
	}), nil
}

// loadFor is the load of a side, timed as the bench is told.
func (s *Side) loadFor(c Config, times int, url string) traffic.Load {
	l := s.load
	l.URLs = []string{url}
	l.Warmup, l.Duration = c.Warmup, time.Duration(times)*c.Duration
	return l
}
