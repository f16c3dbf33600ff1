//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"noncegate/scripts/loadtest/traffic"
)

// nodesCount is how many gateways make a cluster here.
const nodesCount = 3

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

// The names of the scenes of Nodes.
const (
	nodesThroughput = "throughput"
	nodesIdle       = "idle"
	nodesCalls      = "calls"
)

// nodesSizes are the numbers of signers: of the calls, and of the idle ones on the
// two sides that are compared. rest is how long is waited before those are watched:
// sessions of PostgreSQL tell what they have counted once a second.
type nodesSizes struct {
	calls, fewIdle, manyIdle int
	rest                     time.Duration
}

// nodesScenes are those of Nodes.
func nodesScenes(c Config, size nodesSizes) []scene {
	idleSide := func(signers int) side {
		return side{name: whole(float64(signers)) + " idle signers", nodes: three(nodeKind{}), driveNodes: idleSigners(signers, size.rest)}
	}
	calls := func(name string, nodes ...nodeKind) side {
		return side{name: name, nodes: nodes, driveNodes: randomCalls(traffic.Signers{Count: size.calls})}
	}
	queue, basic, off := nodeKind{}, nodeKind{basic: true}, nodeKind{forwardOff: true}
	return []scene{
		{name: nodesThroughput, about: "64 connections, bursts of 16, 1,000 signers",
			sides: []side{
				{name: "one node", nodes: []nodeKind{queue}, driveNodes: randomNodes},
				{name: "three nodes, clients at the owners", nodes: three(queue), driveNodes: atOwners},
				{name: "three nodes, clients anywhere", nodes: three(queue), driveNodes: randomNodes}}},
		{name: nodesIdle, layout: (*Scene).idleTable,
			about: fmt.Sprintf("three nodes, each signer handed out one nonce for %v, and then %v in which nobody asks", idleHold, c.Idle), once: true,
			sides: []side{idleSide(size.fewIdle), idleSide(size.manyIdle)}},
		{name: nodesCalls, layout: (*Scene).callsTable,
			about: fmt.Sprintf("three nodes, %d Go clients at random nodes with %d calls under way each, %s signers; at first each client asks for each signer once, then at random for %v",
				callClients, callsInflight, whole(float64(size.calls)), c.Duration),
			sides: []side{
				calls("basic", three(basic)...),
				calls("worker-queue, forwarding", three(queue)...),
				calls("worker-queue, clients follow not_owner", three(off)...),
				calls("two worker-queue, one basic", queue, queue, basic)}},
	}
}

// nodesRows are the ratios of Nodes.
func nodesRows(scenes []scene) []row {
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

// measureCluster starts a cluster on a fresh database, drives it, and stops it.
func (a *arena) measureCluster(ctx context.Context, c Config, _ scene, side side) (sample Sample, err error) {
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
	if sample, err = side.driveNodes(ctx, cl, c); err != nil {
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
