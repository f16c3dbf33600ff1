package ws

import (
	"sync"
	"time"

	"noncegate/wire"
)

// registry knows the open connections, and bounds their number.
type registry struct {
	max int

	mu      sync.Mutex // guards what follows; no I/O under it
	leaving bool       // no client is let in any more
	slots   int        // taken: connections, and upgrades under way
	conns   map[*conn]struct{}
}

func newRegistry(most int) *registry { return &registry{max: most, conns: make(map[*conn]struct{})} }

// reserve takes a slot for an upgrade, unless all are taken or the node is leaving.
func (g *registry) reserve() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving || g.slots == g.max {
		return false
	}
	g.slots++
	return true
}

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

// release gives back the slot of a connection that has ended; nil: of none that came to be.
func (g *registry) release(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
	g.slots--
}

// add adds a connection, whose slot is reserved.
func (g *registry) add(c *conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
}

// empty reports whether no connection, nor upgrade, is left.
func (g *registry) empty() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots == 0
}

func (g *registry) all() []*conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*conn, 0, len(g.conns))
	for c := range g.conns {
		all = append(all, c)
	}
	return all
}

func (g *registry) len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

// pings of a flood: a peer that sends so many control frames within floodTime asks
// for nothing but work.
const (
	floodFrames = 100
	floodTime   = 10 * time.Second
)

// controls counts the control frames that came, floodFrames at a time. It is the read
// goroutine's.
type controls struct {
	n     int
	since time.Time // of the first of them
}

// control notes that a control frame came.
func (c *conn) control() {
	c.transport.Took(!c.inMessage)
	now := time.Now()
	if c.controls.n == 0 {
		c.controls.since = now
	}
	c.controls.n++
	if c.controls.n < floodFrames {
		return
	}
	c.controls.n = 0
	if now.Sub(c.controls.since) < floodTime && !c.isClosing() {
		c.close(wire.ClosePolicy, "too many control frames")
	}
}

// watch is what the pinger remembers of a connection between two looks.
type watch struct {
	part   uint32    // transport.Part
	partAt time.Time // since when it is that, from the upgrade on
	frames uint32    // conn.frames
	usedAt time.Time // when it changed last, or the connection was in use
}

// lookEvery is how often all connections are looked at: often enough for what has the
// shortest time.
func (s *Server) lookEvery() time.Duration {
	const looks = 8 // in the time of a timeout, so that it is late by an eighth at most
	every := s.cfg.PingInterval / pingLooks
	for _, timeout := range []time.Duration{s.cfg.FirstTimeout, s.cfg.MessageTimeout, s.cfg.IdleTimeout} {
		if timeout > 0 {
			every = min(every, timeout/looks)
		}
	}
	if s.cfg.Auth != nil {
		every = min(every, sessionLook)
	}
	return max(every, time.Millisecond)
}

// firstPing is how long after the upgrade a connection is pinged.
func (s *Server) firstPing() time.Duration {
	if s.cfg.FirstTimeout > 0 {
		return min(s.cfg.PingInterval, s.cfg.FirstTimeout/2)
	}
	return s.cfg.PingInterval
}

// idleFactor times the ping interval is how long a peer may be silent: two
// unanswered pings, and the time for an answer to the second.
const idleFactor = 2.5

// oversee is the pinger's look at a connection. Silence counts against a client only while it is read.
func (c *conn) oversee(now time.Time) {
	switch interval := c.srv.cfg.PingInterval; {
	case !c.transport.Silent():
		c.heardAt = now
	case now.Sub(c.heardAt) > time.Duration(idleFactor*float64(interval)):
		c.srv.dropSilent(c)
		return
	}
	if !now.Before(c.pingAt) && c.transport.Reading() {
		c.out.Ping(nil)
		c.pingAt = now.Add(c.srv.cfg.PingInterval)
	}
	if c.isClosing() {
		return
	}
	if ended := c.session.Ended(now); ended != nil {
		c.expireSession(now, ended)
		return
	}
	cfg, w := &c.srv.cfg, &c.watch
	part := c.transport.Part()
	if part != w.part {
		w.part, w.partAt = part, now
	}
	switch {
	case part == 0 && cfg.FirstTimeout > 0 && now.Sub(w.partAt) >= cfg.FirstTimeout:
		c.close(wire.ClosePolicy, "the first message did not come in time")
	case part%2 == 1 && cfg.MessageTimeout > 0 && now.Sub(w.partAt) >= cfg.MessageTimeout:
		c.close(wire.ClosePolicy, "a message was not finished in time")
	case cfg.IdleTimeout > 0:
		c.closeUnused(now)
	}
}

// closeUnused closes a connection that asked for nothing for IdleTimeout, unless it
// waits for an answer or for events.
func (c *conn) closeUnused(now time.Time) {
	w := &c.watch
	frames := c.frames.Load()
	if frames != w.frames || c.share.Used() > 0 || c.subscribed() {
		w.frames, w.usedAt = frames, now
		return
	}
	if now.Sub(w.usedAt) >= c.srv.cfg.IdleTimeout && c.share.Close() {
		c.close(wire.CloseGoingAway, "idle")
	}
}
