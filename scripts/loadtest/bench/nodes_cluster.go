//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"noncegate/internal/testenv/guarded"
	"noncegate/scripts/loadtest/observe"
	"noncegate/scripts/loadtest/process"
)

// cluster is a number of gateways over one database. It belongs to one goroutine.
type cluster struct {
	arena    *arena
	database string // URL
	nodes    []*clusterNode
}

// clusterNode is one gateway of it.
type clusterNode struct {
	kind    nodeKind
	id      string
	url     string // of its WebSocket
	metrics string // URL
	ready   string // URL
	proc    *guarded.Process
}

// startCluster starts gateways and waits until they know and reach one another.
// The caller must stop it.
func (a *arena) startCluster(ctx context.Context, database string, kinds []nodeKind) (*cluster, error) {
	cl := &cluster{arena: a, database: database}
	err := cl.start(ctx, kinds)
	if err == nil {
		err = cl.awaitFormed(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %d nodes: %w\n%s", len(kinds), err, cl.logTails()), cl.stop())
	}
	return cl, nil
}

func (cl *cluster) start(ctx context.Context, kinds []nodeKind) error {
	for i, kind := range kinds {
		addr, err := guarded.FreeAddr()
		if err != nil {
			return err
		}
		admin, err := guarded.FreeAddr()
		if err != nil {
			return err
		}
		n := &clusterNode{
			kind: kind, id: fmt.Sprintf("node-%d", i+1), url: "ws://" + addr + "/ws",
			metrics: "http://" + admin + "/metrics", ready: "http://" + admin + "/readyz",
		}
		args := []string{filepath.Join(cl.arena.room.Dir(), "gateway"), "serve", "--store", cl.database,
			"--node-id", n.id, "--listen", addr, "--admin-listen", admin}
		args = append(append(args, gatewayFlags...), kind.flags()...)
		n.proc, err = cl.arena.room.Start(fmt.Sprintf("%d-%s.log", cl.arena.runs, n.id), cleanEnvironment(), args...)
		if err != nil {
			return err
		}
		cl.nodes = append(cl.nodes, n)
	}
	return nil
}

// awaitFormed waits until every node serves and knows all others, and those that
// forward have links to all to which they may.
func (cl *cluster) awaitFormed(ctx context.Context) error {
	for _, n := range cl.nodes {
		if err := waitReady(ctx, n.proc, process.AnswersOK(n.ready)); err != nil {
			return err
		}
		links := 0
		for _, other := range cl.nodes {
			if n.kind.forwards() && other != n && !other.kind.basic {
				links++
			}
		}
		formed := func(ctx context.Context) error {
			is, err := observe.Read(ctx, n.metrics)
			if err != nil {
				return err
			}
			if live, linked := is["noncegate_nodes_live"], is["noncegate_peers_linked"]; live < float64(len(cl.nodes)) || linked < float64(links) {
				return fmt.Errorf("%s knows %.0f of %d nodes and has %.0f of %d links", n.id, live, len(cl.nodes), linked, links)
			}
			return nil
		}
		if err := waitReady(ctx, n.proc, formed); err != nil {
			return err
		}
	}
	return nil
}

// stop ends all nodes together, as nobody is left to take their signers.
func (cl *cluster) stop() error {
	errs := make([]error, len(cl.nodes))
	var stopping sync.WaitGroup
	for i, n := range cl.nodes {
		stopping.Go(func() { errs[i] = (&server{proc: n.proc}).stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// urls are the nodes' addresses.
func (cl *cluster) urls() (urls []string) {
	for _, n := range cl.nodes {
		urls = append(urls, n.url)
	}
	return urls
}

// logTails are the last words of the nodes.
func (cl *cluster) logTails() string {
	var text strings.Builder
	for _, n := range cl.nodes {
		fmt.Fprintf(&text, "%s:\n%s\n", n.id, n.proc.LogTail(logBytes))
	}
	return text.String()
}

// metrics sums up what all nodes say of themselves.
func (cl *cluster) metrics(ctx context.Context) (observe.Metrics, error) {
	sum := make(observe.Metrics)
	for _, n := range cl.nodes {
		is, err := observe.Read(ctx, n.metrics)
		if err != nil {
			return nil, fmt.Errorf("figures of %s: %w", n.id, err)
		}
		for name, v := range is {
			sum[name] += v
		}
	}
	return sum, nil
}
