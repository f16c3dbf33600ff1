package ws

import (
	"sync"
	"time"
)

// registry knows the open connections, bounds the number of either kind, and can
// wait until the last one has ended.
type registry struct {
	maxClients int // of other nodes it is MaxNodeConnections

	mu      sync.Mutex // guards what follows; no I/O under it
	leaving bool       // nobody is let in any more
	clients int        // connections of clients, and upgrades under way
	nodes   int        // the same of other nodes
	conns   map[*conn]struct{}
	empty   chan struct{} // closed while there is none of either
}

// place is what came of asking the registry for a slot.
type place uint8

const (
	placeTaken   place = iota // there is a slot, and it is taken
	placeFull                 // all slots of the kind are taken
	placeLeaving              // nobody is let in any more
)

func newRegistry(maxClients int) *registry {
	empty := make(chan struct{})
	close(empty)
	return &registry{maxClients: maxClients, conns: make(map[*conn]struct{}), empty: empty}
}

// reserve takes a slot for an upgrade, unless all of its kind are taken or nobody is let in.
func (g *registry) reserve(node bool) place {
	g.mu.Lock()
	defer g.mu.Unlock()
	slots, limit := g.slotsLocked(node)
	switch {
	case g.leaving:
		return placeLeaving
	case *slots == limit:
		return placeFull
	}
	*slots++
	if g.clients+g.nodes == 1 {
		g.empty = make(chan struct{})
	}
	return placeTaken
}

// setLeaving lets nobody in from now on: whoever has no slot yet gets none.
func (g *registry) setLeaving() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaving = true
}

func (g *registry) isLeaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leaving
}

func (g *registry) slotsLocked(node bool) (slots *int, limit int) {
	if node {
		return &g.nodes, MaxNodeConnections
	}
	return &g.clients, g.maxClients
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
	if g.clients+g.nodes == 0 {
		close(g.empty)
	}
}

// add adds a connection, whose slot is reserved.
func (g *registry) add(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
}

// remove removes a connection that has ended.
func (g *registry) remove(c *conn) {
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

// pingAll pings the connections whose time has come and ends those whose peer was
// silent for too long. Nobody is blamed for silence while not being read. The
// others are then looked at by oversee.
func (g *registry) pingAll(now time.Time, interval time.Duration, silent, oversee func(*conn)) {
	limit := time.Duration(idleFactor * float64(interval))
	for _, c := range g.all() {
		switch {
		case !c.transport.Silent():
			c.heardAt = now
		case now.Sub(c.heardAt) > limit:
			silent(c)
			continue
		}
		if !now.Before(c.pingAt) && c.transport.Reading() {
			c.out.Ping(nil)
			c.pingAt = now.Add(interval)
		}
		oversee(c)
	}
}
