package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/wire"
)

// heartbeats a lease's length: a second process of the same node id, and a store
// that went back, are noticed within one.
const heartbeats = 3

// join registers this node and begins its heartbeat.
func (a *app) join(ctx context.Context) (err error) {
	if rows, ok := a.store.(nonce.ShardStore); ok {
		return a.register(ctx, rows)
	}
	interval := a.cfg.LeaseTTL / heartbeats
	a.member, err = lease.Join(ctx, countedBeats{a.store.(nonce.Store), a.figures}, a.node, a.url, lease.MembershipConfig{
		Interval: interval, Timeout: interval * 9 / 10, Mode: a.cfg.Mode, Signers: a.ownedSigners,
	}, a.log, a.outlived)
	if err == nil {
		a.holder = a.member.Holder()
		a.onStop("registry", a.member.Stop)
	}
	return err
}

// outlived is told that this run of the node must not serve any more.
func (a *app) outlived(err error) {
	a.figures.Halted.Set(1)
	if s := a.heart(); s != nil {
		s.Halt(err)
	} else {
		a.die(err)
	}
}

func (a *app) ownedSigners() int64 {
	if s := a.heart(); s != nil {
		return int64(s.Owned())
	}
	return 0
}

// How often the registry is read, and how long one reading may take. A node that
// comes or goes is known to the others within the interval.
const (
	watchInterval = time.Second
	watchTimeout  = 800 * time.Millisecond
)

// watchNodes knows the nodes from now on.
func (a *app) watchNodes(ctx context.Context) error {
	if _, ok := a.store.(nonce.ShardStore); ok {
		return nil // the service looks
	}
	w, err := lease.StartWatch(ctx, a.store, lease.WatchConfig{Interval: watchInterval, Timeout: watchTimeout}, a.log, a.onNodes)
	if err == nil {
		a.onStop("node watch", func(context.Context) error { w.Stop(); return nil })
	}
	return err
}

// onNodes is told of each list of nodes, in the order they were read: first during
// the start, before there is a service, then from the watch's goroutine. It must
// not block, and nobody may change the list.
func (a *app) onNodes(list []lease.Node) {
	a.known.Store(&list)
	if a.router != nil {
		a.router.Nodes(list)
	}
}

// nodes is the registry as it was last read, this node included, in order of the
// nodes' ids. It never waits and is not to be changed.
func (a *app) nodes() []lease.Node {
	if list := a.known.Load(); list != nil {
		return *list
	}
	return nil
}

// nodeInfos is what gateway_info shows of nodes: all, or of more than it may show
// the live ones before those that were.
func nodeInfos(nodes []lease.Node) []wire.NodeInfo {
	if len(nodes) > wire.MaxNodes {
		live := slices.DeleteFunc(slices.Clone(nodes), func(n lease.Node) bool { return !n.Live })
		gone := slices.DeleteFunc(slices.Clone(nodes), func(n lease.Node) bool { return n.Live })
		nodes = slices.Concat(live, gone)[:wire.MaxNodes]
	}
	infos := make([]wire.NodeInfo, len(nodes))
	for i, n := range nodes {
		infos[i] = wire.NodeInfo{
			Node: n.Node, URL: n.URL, Mode: n.Mode, State: nodeState(n), Incarnation: n.Incarnation, Signers: n.Signers, Shards: int64(n.Shards),
			StartedAt: wire.Time(n.StartedAt), SeenAt: wire.Time(n.SeenAt),
		}
	}
	slices.SortFunc(infos, func(a, b wire.NodeInfo) int { return cmp.Compare(a.Node, b.Node) })
	return infos
}

func nodeState(n lease.Node) string {
	switch {
	case n.Live:
		return wire.NodeLive
	case n.Left:
		return wire.NodeLeft
	}
	return wire.NodeSilent
}
