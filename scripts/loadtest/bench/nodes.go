//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/traffic"
)

// nodesCount is how many gateways make a cluster here.
const nodesCount = 3

// nodesScene is a set of clusters that are measured in alternation.
type nodesScene struct {
	name, about string
	once        bool // one round is enough: what is counted does not depend on how busy the machine is
	sides       []nodesSide
}

// nodesSide is one cluster over one PostgreSQL, and what is done with it.
type nodesSide struct {
	name  string
	nodes []nodeKind
	drive func(ctx context.Context, cl *cluster, c Config) (Sample, error)
}

// nodeKind is how one gateway of a cluster is started.
type nodeKind struct {
	basic      bool
	forwardOff bool
}

// flags are its settings beside those that all have.
func (k nodeKind) flags() (flags []string) {
	if k.basic {
		flags = append(flags, "--mode", "basic")
	}
	if k.forwardOff {
		flags = append(flags, "--forward", "off")
	}
	return flags
}

// forwards reports whether the node sends requests to others.
func (k nodeKind) forwards() bool { return !k.basic && !k.forwardOff }

// three is a cluster of equal nodes.
func three(k nodeKind) []nodeKind { return slices.Repeat([]nodeKind{k}, nodesCount) }

// The scenes of Nodes, by which they are chosen.
const (
	nodesThroughput = "throughput"
	nodesIdle       = "idle"
	nodesCalls      = "calls"
)

// NodesSceneNames lists the scenes that Nodes knows.
func NodesSceneNames() []string { return []string{nodesThroughput, nodesIdle, nodesCalls} }

// nodesSizes are the numbers of signers: of the calls, and of the idle ones on the
// two sides that are compared. rest is how long is waited before those are watched:
// sessions of PostgreSQL tell what they have counted once a second.
type nodesSizes struct {
	calls, fewIdle, manyIdle int
	rest                     time.Duration
}

// nodesScenes are those of Nodes.
func nodesScenes(c Config, size nodesSizes) []nodesScene {
	idleSide := func(signers int) nodesSide {
		return nodesSide{name: whole(float64(signers)) + " idle signers", nodes: three(nodeKind{}), drive: idleSigners(signers, size.rest)}
	}
	calls := func(name string, nodes ...nodeKind) nodesSide {
		return nodesSide{name: name, nodes: nodes, drive: randomCalls(traffic.Signers{Count: size.calls})}
	}
	queue, basic, off := nodeKind{}, nodeKind{basic: true}, nodeKind{forwardOff: true}
	return []nodesScene{
		{name: nodesThroughput, about: "64 connections, bursts of 16, 1,000 signers",
			sides: []nodesSide{
				{name: "one node", nodes: []nodeKind{queue}, drive: randomNodes},
				{name: "three nodes, clients at the owners", nodes: three(queue), drive: atOwners},
				{name: "three nodes, clients anywhere", nodes: three(queue), drive: randomNodes}}},
		{name: nodesIdle, about: fmt.Sprintf("three nodes, each signer handed out one nonce for %v, and then %v in which nobody asks", idleHold, c.Idle), once: true,
			sides: []nodesSide{idleSide(size.fewIdle), idleSide(size.manyIdle)}},
		{name: nodesCalls, about: fmt.Sprintf("three nodes, %d Go clients at random nodes with %d calls under way each, %s signers; at first each client asks for each signer once, then at random for %v",
			callClients, callsInflight, whole(float64(size.calls)), c.Duration),
			sides: []nodesSide{
				calls("basic", three(basic)...),
				calls("worker-queue, forwarding", three(queue)...),
				calls("worker-queue, clients follow not_owner", three(off)...),
				calls("two worker-queue, one basic", queue, queue, basic)}},
	}
}

// nodesRows are the ratios of Nodes.
func nodesRows(scenes []nodesScene) []row {
	var rows []row
	for _, s := range scenes {
		last := len(s.sides) - 1
		switch s.name {
		case nodesThroughput:
			rows = append(rows,
				row{name: "owners", what: "three nodes ÷ one, clients at the owners", scene: s.name, over: s.sides[1].name, under: s.sides[0].name, figure: perSecond, target: atLeast(0.9)},
				row{name: "anywhere", what: "three nodes ÷ one, clients anywhere", scene: s.name, over: s.sides[2].name, under: s.sides[0].name, figure: perSecond, target: atLeast(0.55)})
		case nodesIdle:
			rows = append(rows, row{name: "idle", what: "rows that three nodes write with " + s.sides[last].name + " ÷ with " + strings.TrimSuffix(s.sides[0].name, " idle signers"),
				scene: s.name, over: s.sides[last].name, under: s.sides[0].name, figure: noted(noteWritten), target: atMost(1.2)})
		}
	}
	return rows
}

// noted is a figure that a sample has among its notes.
func noted(name string) figure {
	return figure{name: name, of: func(s Sample) float64 { return s.Notes[name] }}
}

// Nodes measures many nodes over one PostgreSQL: what they answer together beside
// one node, what they ask of the database while nobody asks them, and how often
// they take leases and get into one another's way. It is as Run in all else.
func Nodes(ctx context.Context, c Config) (*NodesReport, error) {
	scenes := nodesScenes(c, nodesSizes{calls: 1_000, fewIdle: 1_000, manyIdle: 200_000, rest: 3 * time.Second})
	for _, name := range c.Only {
		if !slices.Contains(NodesSceneNames(), name) {
			return nil, &ConfigError{"--only", fmt.Sprintf("knows no %q, only %s", name, strings.Join(NodesSceneNames(), ", "))}
		}
	}
	scenes = slices.DeleteFunc(scenes, func(s nodesScene) bool {
		return len(c.Only) > 0 && !slices.Contains(c.Only, s.name)
	})
	return runNodes(ctx, c, scenes)
}

// runNodes sets everything up, measures, and leaves nothing behind.
func runNodes(ctx context.Context, c Config, scenes []nodesScene) (r *NodesReport, err error) {
	if err := c.validate(nil); err != nil {
		return nil, err
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	begin, limit := time.Now(), c.nodesLimit(scenes)
	limited, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	a, err := openArena(limited, c.Progress, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	r = new(NodesReport)
	if r.Host, err = describeHost(limited, a); err != nil {
		return nil, fmt.Errorf("describe the machine: %w", err)
	}
	r.Settings = c.settings(a)
	for _, s := range scenes {
		r.Scenes = append(r.Scenes, a.measureNodes(limited, c, s))
		if limited.Err() != nil {
			break
		}
	}
	if errors.Is(context.Cause(limited), errTooLong) {
		return nil, fmt.Errorf("%w: %v", errTooLong, limit)
	}
	r.Interrupted = ctx.Err() != nil
	r.Seconds = time.Since(begin).Seconds()
	r.Rows = judge(nodesRows(scenes), r.Scenes)
	return r, nil
}

// nodesLimit bounds the whole run.
func (c *Config) nodesLimit(scenes []nodesScene) time.Duration {
	total := setUpTimeout
	for _, s := range scenes {
		one := nodesCount*sideTimeout + c.Warmup + c.Duration + c.Idle
		total += time.Duration(c.Rounds*len(s.sides)) * one
	}
	return total
}

// measureNodes measures every side once a round, every second round backwards.
// What is void is noted, and the other sides go on.
func (a *arena) measureNodes(ctx context.Context, c Config, s nodesScene) Scene {
	out := Scene{Name: s.name, About: s.about}
	order := make([]int, len(s.sides))
	for i, side := range s.sides {
		out.Sides = append(out.Sides, Side{Name: side.name})
		order[i] = i
	}
	rounds := c.Rounds
	if s.once {
		rounds = 1
	}
	for round := range rounds {
		for _, i := range order {
			sample, err := a.measureCluster(ctx, c, s.sides[i])
			if ctx.Err() != nil {
				return out
			}
			if err != nil {
				sample.Void = err.Error()
			}
			out.Sides[i].Samples = append(out.Sides[i].Samples, sample)
			fmt.Fprintf(c.Progress, "%s, round %d/%d, %s: %s\n", s.name, round+1, rounds, s.sides[i].name, told(sample))
		}
		slices.Reverse(order)
	}
	return out
}

// told is the sample in a line.
func told(s Sample) string {
	if s.Void != "" || s.PerSecond != 0 {
		return s.String()
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Notes)) {
		if v := s.Notes[name]; v != 0 {
			parts = append(parts, name+" "+rate(v))
		}
	}
	return strings.Join(parts, "; ")
}

// measureCluster starts a cluster on a fresh database, drives it, and stops it.
func (a *arena) measureCluster(ctx context.Context, c Config, side nodesSide) (sample Sample, err error) {
	a.runs++
	st, err := a.emptyDatabase(ctx)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, st.release()) }()
	if err := a.settle(ctx); err != nil {
		return Sample{}, err
	}
	cl, err := a.startCluster(ctx, st.url, side.nodes)
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, cl.stop()) }()
	if sample, err = side.drive(ctx, cl, c); err != nil {
		return sample, fmt.Errorf("%w\n%s", err, cl.logTails())
	}
	return sample, nil
}

// nodesLoad is the load of the throughput scene.
func nodesLoad(c Config, urls []string) traffic.Load {
	l := closed(64, 16, 1000)
	l.URLs, l.Warmup, l.Duration = urls, c.Warmup, c.Duration
	return l
}
