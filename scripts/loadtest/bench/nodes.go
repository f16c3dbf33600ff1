//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"noncegate/scripts/loadtest/result"
	"noncegate/scripts/loadtest/rounds"
	"noncegate/scripts/loadtest/table"
	"noncegate/scripts/loadtest/traffic"
)

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

func three(k nodeKind) []nodeKind { return slices.Repeat([]nodeKind{k}, nodesCount) }

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

func nodesScenes(c Config, size nodesSizes) []Scene {
	idleSide := func(signers int) Side {
		return Side{Name: whole(float64(signers)) + " idle signers", nodes: three(nodeKind{}), driveNodes: idleSigners(signers, size.rest)}
	}
	calls := func(name string, nodes ...nodeKind) Side {
		return Side{Name: name, nodes: nodes, driveNodes: randomCalls(traffic.Signers{Count: size.calls})}
	}
	queue, basic, off := nodeKind{}, nodeKind{basic: true}, nodeKind{forwardOff: true}
	return []Scene{
		{Name: nodesThroughput, About: "64 connections, bursts of 16, 1,000 signers",
			Sides: []Side{
				{Name: "one node", nodes: []nodeKind{queue}, driveNodes: randomNodes},
				{Name: "three nodes, clients at the owners", nodes: three(queue), driveNodes: atOwners},
				{Name: "three nodes, clients anywhere", nodes: three(queue), driveNodes: randomNodes}}},
		{Name: nodesIdle, layout: (*Scene).idleTable,
			About: fmt.Sprintf("three nodes, each signer handed out one nonce for %v, and then %v in which nobody asks", idleHold, c.Idle), once: true,
			Sides: []Side{idleSide(size.fewIdle), idleSide(size.manyIdle)}},
		{Name: nodesCalls, layout: (*Scene).callsTable,
			About: fmt.Sprintf("three nodes, %d Go clients at random nodes with %d calls under way each, %s signers; at first each client asks for each signer once, then at random for %v",
				callClients, callsInflight, whole(float64(size.calls)), c.Duration),
			Sides: []Side{
				calls("basic", three(basic)...),
				calls("worker-queue, forwarding", three(queue)...),
				calls("worker-queue, clients follow not_owner", three(off)...),
				calls("two worker-queue, one basic", queue, queue, basic)}},
	}
}

func nodesRows(scenes []Scene) []Row {
	var rows []Row
	for _, s := range scenes {
		last := len(s.Sides) - 1
		switch s.Name {
		case nodesThroughput:
			rows = append(rows,
				Row{Name: "owners", What: "three nodes ÷ one, clients at the owners", Scene: s.Name, Over: s.Sides[1].Name, Under: s.Sides[0].Name, figure: perSecond, Target: atLeast(0.9)},
				Row{Name: "anywhere", What: "three nodes ÷ one, clients anywhere", Scene: s.Name, Over: s.Sides[2].Name, Under: s.Sides[0].Name, figure: perSecond, Target: atLeast(0.55)})
		case nodesIdle:
			rows = append(rows, Row{Name: "idle", What: "rows that three nodes write with " + s.Sides[last].Name + " ÷ with " + strings.TrimSuffix(s.Sides[0].Name, " idle signers"),
				Scene: s.Name, Over: s.Sides[last].Name, Under: s.Sides[0].Name, figure: noted(noteWritten), Target: atMost(1.2)})
		}
	}
	return rows
}

// noted is a figure that a sample has among its notes.
func noted(name string) figure {
	return figure{name: name, of: func(s Sample) float64 { return s.Notes[name] }}
}

// measureCluster starts a cluster on a fresh database, drives it, and stops it.
func (a *arena) measureCluster(ctx context.Context, c Config, _ Scene, side Side) (sample Sample, err error) {
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

func nodesLoad(c Config, urls []string) traffic.Load {
	l := closed(64, 16, 1000)
	l.URLs, l.Warmup, l.Duration = urls, c.Warmup, c.Duration
	return l
}

// noteForwarded is how many of 1,000 requests were answered by another node than
// the one that was asked.
const noteForwarded = "forwarded of 1,000"

// randomNodes makes the load of all connections, which take the nodes in turn and
// ask for any signer.
func randomNodes(ctx context.Context, cl *cluster, c Config) (Sample, error) {
	return cl.loaded(ctx, nodesLoad(c, cl.urls()))
}

// atOwners makes it in as many parts as there are nodes: a connection asks for
// signers that its node owns.
func atOwners(ctx context.Context, cl *cluster, c Config) (Sample, error) {
	all := nodesLoad(c, nil)
	owned, err := cl.owned(ctx, all.Signers)
	if err != nil {
		return Sample{}, err
	}
	parts := make([]traffic.Load, len(cl.nodes))
	for i, n := range cl.nodes {
		l := all
		l.URLs = []string{n.url}
		l.Connections = share(all.Connections, i, len(parts))
		l.Signers = owned[i]
		parts[i] = l
	}
	return cl.loaded(ctx, parts...)
}

// share is the i-th of n parts of a number, which differ by one at most.
func share(total, i, n int) int { return (total*(i+1))/n - total*i/n }

// loaded makes loads at the same time, and tells of them as of one. Of the latency
// it tells that of the worst.
func (cl *cluster) loaded(ctx context.Context, loads ...traffic.Load) (Sample, error) {
	before, err := cl.metrics(ctx)
	if err != nil {
		return Sample{}, err
	}
	runs := make([]*result.Run, len(loads))
	var g errgroup.Group
	for i, l := range loads {
		g.Go(func() (err error) { runs[i], err = l.Run(ctx); return err })
	}
	if err := g.Wait(); err != nil {
		return Sample{}, err
	}
	after, err := cl.metrics(ctx)
	if err != nil {
		return Sample{}, err
	}
	var sum Sample
	var voids []string
	for _, r := range runs {
		s := sampleOf(r, 0)
		sum.Acknowledged += s.Acknowledged
		sum.PerSecond += s.PerSecond
		sum.P50Ms, sum.P99Ms = max(sum.P50Ms, s.P50Ms), max(sum.P99Ms, s.P99Ms)
		if s.Void != "" {
			voids = append(voids, s.Void)
		}
	}
	if len(voids) > 0 {
		sum.Void = voids[0]
	}
	for _, n := range cl.nodes {
		sum.Resident += residentBytes(n.proc.PID())
	}
	grown := after.Since(before)
	forwarded := grown["noncegate_forwarded_total{answered}"]
	if asked := grown["noncegate_requests_total{nonce_allocate}"] + grown["noncegate_requests_total{nonce_markUsed}"] - forwarded; asked > 0 {
		sum.Notes = map[string]float64{noteForwarded: 1000 * forwarded / asked}
	}
	return sum, nil
}

// callsTable has a line for each side and phase.
func (s *Scene) callsTable() table.Table {
	t := table.Table{Head: []string{"for 1,000 calls, median of the rounds", "calls"}}
	for _, note := range callNotes {
		t.Head = append(t.Head, note.name)
	}
	for i := range s.Sides {
		side := &s.Sides[i]
		for _, phase := range callPhases {
			line := []string{side.Name + ", " + phase, side.count(noteOf(phase, "calls"), whole)}
			for _, note := range callNotes {
				line = append(line, side.count(noteOf(phase, note.name), rate))
			}
			t.Rows = append(t.Rows, line)
		}
	}
	return t
}

// idleTable has a line for each side.
func (s *Scene) idleTable() table.Table {
	t := table.Table{Head: []string{"while nobody asks"}}
	for _, note := range idleNotes {
		t.Head = append(t.Head, note.name)
	}
	for i := range s.Sides {
		line := []string{s.Sides[i].Name}
		for _, note := range idleNotes {
			line = append(line, s.Sides[i].count(note.name, whole))
		}
		t.Rows = append(t.Rows, line)
	}
	return t
}

// count is the median of what was noted, a dash when no measurement counts. Unlike
// other figures one that is 0 was measured.
func (s *Side) count(note string, write func(float64) string) string {
	var values []float64
	for _, sample := range s.Samples {
		if v, ok := sample.Notes[note]; ok && sample.Void == "" {
			values = append(values, v)
		}
	}
	switch why := s.void(); {
	case len(values) > 0:
		return write(rounds.Median(values))
	case why != "":
		return Void
	}
	return "–"
}

// rate is a count for 1,000 calls: few of them with more digits, so that what is
// rare does not look like never.
func rate(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 1:
		return strconv.FormatFloat(v, 'g', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return whole(v)
}
