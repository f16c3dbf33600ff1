package ws

import (
	"sync"
	"time"
)

// registry knows the open connections, bounds the number of either kind, and can
// wait until the last one has ended.
type registry struct {
	maxClients int // of other nodes it is MaxNodeConnections

	mu    sync.Mutex // guards what follows; no I/O under it
	slots int        // connections of clients, and upgrades under way
	nodes int        // the same of other nodes
	conns map[*conn]struct{}
	empty chan struct{} // closed while there is none of either
}

func newRegistry(maxClients int) *registry {
	empty := make(chan struct{})
	close(empty)
	return &registry{maxClients: maxClients, conns: make(map[*conn]struct{}), empty: empty}
}

// reserve takes a slot for an upgrade, unless all of its kind are taken.
func (g *registry) reserve(node bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	slots, limit := g.slotsLocked(node)
	if *slots == limit {
		return false
	}
	*slots++
	if g.slots+g.nodes == 1 {
		g.empty = make(chan struct{})
	}
	return true
}

func (g *registry) slotsLocked(node bool) (slots *int, limit int) {
	if node {
		return &g.nodes, MaxNodeConnections
	}
	return &g.slots, g.maxClients
}

// cancel gives the slot of a failed upgrade back.
func (g *registry) cancel(node bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(node)
}

func (g *registry) releaseLocked(node bool) {
	slots, _ := g.slotsLocked(node)
	*slots--
	if g.slots+g.nodes == 0 {
		close(g.empty)
	}
}

// enter adds a connection, whose slot is reserved.
func (g *registry) enter(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
}

// leave removes a connection that has ended.
func (g *registry) leave(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
	g.releaseLocked(c.peer != nil)
}

// whenEmpty is closed once no connection and no upgrade is left.
func (g *registry) whenEmpty() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.empty
}

// all is the connections of just now.
func (g *registry) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		all = append(all, c)
	}
	return all
}

// len is the number of connections.
func (g *registry) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

// idleFactor times the ping interval is how long a peer may be silent: two
// unanswered pings, and the time for an answer to the second.
const idleFactor = 2.5

// look pings the connections whose time has come and ends those whose peer was
// silent for too long. Nobody is blamed for silence while not being read. The
// others are then looked at by oversee.
func (g *registry) look(now time.Time, interval time.Duration, silent, oversee func(*conn)) {
	limit := time.Duration(idleFactor * float64(interval))
	for _, c := range g.all() {
		switch {
		case !c.transport.silent():
			c.heardAt = now
		case now.Sub(c.heardAt) > limit:
			silent(c)
			continue
		}
		if !now.Before(c.pingAt) && c.transport.reading.Load() {
			c.out.Ping(nil)
			c.pingAt = now.Add(interval)
		}
		oversee(c)
	}
}
