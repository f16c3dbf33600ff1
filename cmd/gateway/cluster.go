package main

import (
	"context"
	"slices"

	"noncegate/chain/ethereum/endpoint"
	"noncegate/internal/cluster"
	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/ws"
)

// openRouter makes what knows the other nodes. A SQLite store has one process, and
// so no others.
func (a *app) openRouter(context.Context) (err error) {
	counted := cluster.NewMetrics(a.registry)
	if _, embedded := a.cfg.SQLitePath(); embedded {
		return nil
	}
	a.router, err = cluster.New(a.node, cluster.Config{
		Forward: a.forwards(), Secret: a.cfg.NodeSecret, Known: a.gate != nil, TLS: a.nodeTLS, Queue: a.forwardQueue(),
		MaxTotal: a.cfg.MaxInflightTotal, Timeout: a.cfg.ForwardTimeout, Store: a.databaseID(),
		Refused: func(reason string) { a.server.RefusedNode(reason) },
	}, counted, a.log)
	if err == nil {
		a.onStop("router", a.router.Stop) // in case the start ends before openLinks
	}
	return err
}

// forwardQueue is how much may be under way between two nodes: a node lets one other
// node have no more than a quarter of its places.
func (a *app) forwardQueue() int {
	return max(1, min(a.cfg.ForwardQueue, a.cfg.MaxInflightTotal/4))
}

// databaseID tells the store from others; nil where a store has one node only.
func (a *app) databaseID() func() string {
	if s, ok := a.store.(interface{ DatabaseID() string }); ok {
		return s.DatabaseID
	}
	return nil
}

// forwards reports whether requests go to the nodes that own their signers. In mode
// basic every node serves every signer.
func (a *app) forwards() bool {
	return a.cfg.Forward == "on" && a.cfg.Mode == string(nonce.WorkerQueue)
}

// openLinks lets requests and events travel between the nodes. The links end before the
// service does, which takes back what is under way on them.
func (a *app) openLinks(context.Context) error {
	if a.router == nil {
		return nil
	}
	a.router.Serve(a.holder.Incarnation, cluster.Local{
		Service: a.service, Events: a.hub, Hub: a.hub, Chain: a.chain, MinHold: minHold, MaxHold: a.cfg.MaxHold,
		Reason: ws.Reason, Interest: a.hub.Interest,
	})
	a.hub.OnInterest(a.router.InterestChanged)
	a.onStop("links", a.router.Stop)
	return nil
}

// awaitInterest is what ws waits for before it answers a subscription; nil: nothing.
func (a *app) awaitInterest() func(context.Context) {
	if a.router == nil {
		return nil
	}
	return a.router.Await
}

// encodeSlots is the bound of the encode pool: what clients may have there, and places for the calls of
// chains, which wait for their nodes, so that none takes the places of another's answers.
func (a *app) encodeSlots() int {
	return a.cfg.EncodeQueue + len(a.cfg.Chain)*endpoint.Bounds(a.cfg.MaxInflight).MaxInflightTotal
}

// hasHeirs reports whether another node could serve this one's signers.
func (a *app) hasHeirs() bool {
	return slices.ContainsFunc(a.nodes(), func(n lease.Node) bool { return n.Live && n.Node != a.node && n.Mode == string(nonce.WorkerQueue) })
}

// leave is the first step of a drain. The others are told that this node goes away,
// and where there are any, its signers are given to them; what clients still ask
// for is sent there. A node that is alone serves its clients to the end.
func (a *app) leave(ctx context.Context) error {
	a.draining.Store(true)
	err := a.leaveRegistry(ctx)
	if a.hasHeirs() {
		a.service.StepDown()
	}
	return err
}

// peerGauges are what a node knows of the others, in the order of peerValues.
var peerGauges = []metrics.Named{
	{Name: "nodes_live", Help: "Nodes that are live by the registry, this one included."},
	{Name: "peers_linked", Help: "Other nodes to which a link is open."},
	{Name: "peers_unreachable", Help: "Other nodes, live by the registry, that this one tried to reach and cannot."},
	{Name: "forward_under_way", Help: "Requests sent, or about to be, to the nodes that own their signers."},
}

func (a *app) peerValues() []float64 {
	live, linked, unreachable, underWay := 0, 0, 0, 0
	for _, n := range a.nodes() {
		if n.Live {
			live++
		}
	}
	if a.router != nil {
		linked, unreachable, underWay = a.router.Figures()
	}
	return []float64{float64(live), float64(linked), float64(unreachable), float64(underWay)}
}
