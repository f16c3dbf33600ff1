package main

import (
	"cmp"
	"slices"

	"noncegate/lease"
	"noncegate/wire"
)

// onNodes is told of each list of nodes, in the order they were read: first during
// the start, before there is a service, then from the watch's goroutine. It must
// not block, and the list must not be changed.
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
			Node: n.Node, URL: n.URL, Mode: n.Mode, State: nodeState(n), Incarnation: n.Incarnation, Shards: int64(n.Shards),
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
