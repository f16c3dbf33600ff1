package ws

import (
	"sync"
	"time"
)

// registry knows the open connections, bounds their number, and can wait until the last one
// has ended.
type registry struct {
	max int

	mu      sync.Mutex // guards what follows; no I/O under it
	leaving bool       // nobody is let in any more
	slots   int        // taken: connections, and upgrades under way
	conns   map[*conn]struct{}
}

func newRegistry(most int) *registry { return &registry{max: most, conns: make(map[*conn]struct{})} }

// reserve takes a slot for an upgrade, unless all are taken or nobody is let in.
func (g *registry) reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving || g.slots == g.max {
		return false
	}
	g.slots++
	return true
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

// cancel gives the slot of a failed upgrade back.
func (g *registry) cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slots--
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
	g.slots--
}

// empty reports whether no connection and no upgrade is left.
func (g *registry) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots == 0
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
