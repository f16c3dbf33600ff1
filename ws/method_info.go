package ws

import (
	"noncegate/internal/access/audit"
	"noncegate/wire"
)

// What a gateway says of itself.
var (
	infoMethod  = method{name: wire.MethodInfo, level: audit.All, prepare: by((*conn).info)}
	statsMethod = method{name: wire.MethodStats, level: audit.All, prepare: by((*conn).stats)}
)

func (c *conn) info(r *request, _ wire.NoParams) *wire.Error {
	info := infoResult(c.srv.cfg.Info()) // now, because room is reserved for the nodes there are
	r.bytes = largeReplyBytes + int64(len(info.Nodes)*nodeBytes)
	r.act = func() (any, *wire.Error) { return info, nil }
	return nil
}

func (c *conn) stats(r *request, _ wire.NoParams) *wire.Error {
	r.bytes = largeReplyBytes
	r.act = func() (any, *wire.Error) { stats := c.srv.perf.Stats(); return &stats, nil }
	return nil
}

const (
	nodeBytes = 768 // of a node in the reply
	maxWord   = 32  // bounds a word that another node wrote into the registry
)

// infoResult is what a gateway says of itself and of other nodes, cut to the bounds
// of its reservation.
func infoResult(info wire.InfoResult) *wire.InfoResult {
	shown := info.Nodes[:min(len(info.Nodes), wire.MaxNodes)]
	info.Nodes = make([]wire.NodeInfo, len(shown))
	for i, n := range shown {
		n.Node, n.URL, n.Mode, n.State = clip(n.Node), clip(n.URL), clipTo(n.Mode, maxWord), clipTo(n.State, maxWord)
		info.Nodes[i] = n
	}
	return &info
}
