package ws

import (
	"sync"
	"time"
)

// registry knows the open connections, bounds their number, and can wait until
// the last one has ended.
type registry struct {
	most int

	mu     sync.Mutex // guards what follows; no I/O under it
	places int        // connections, and upgrades under way
	conns  map[*conn]struct{}
	empty  chan struct{} // closed while places is 0
}

func newRegistry(most int) *registry {
	empty := make(chan struct{})
	close(empty)
	return &registry{most: most, conns: make(map[*conn]struct{}), empty: empty}
}

// reserve takes a place for an upgrade, unless all are taken.
func (g *registry) reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.places == g.most {
		return false
	}
	if g.places++; g.places == 1 {
		g.empty = make(chan struct{})
	}
	return true
}

// cancel gives the place of a failed upgrade back.
func (g *registry) cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked()
}

func (g *registry) releaseLocked() {
	if g.places--; g.places == 0 {
		close(g.empty)
	}
}

// enter adds a connection, whose place is reserved.
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
	g.releaseLocked()
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
// silent for too long. Nobody is blamed for silence while not being read.
func (g *registry) look(now time.Time, interval time.Duration, silent func(*conn)) {
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
	}
}
