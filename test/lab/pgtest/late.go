//go:build unix

package pgtest

import (
	"net"
	"time"
)

// lateChunks bounds what of one connection's replies is on its way; past it the server
// waits, as it does for a network whose window is full.
const lateChunks = 1024

// lateLine hands on bytes a time after they came. Each has its own time: what comes
// close together arrives close together, as over a long wire.
type lateLine struct {
	by     time.Duration
	chunks chan lateChunk
}

type lateChunk struct {
	due  time.Time
	data []byte
}

// DelayReplies has the replies on connections made from now on arrive late by d, one
// not waiting for another: a server that is that much farther away. 0 ends it.
func (p *Proxy) DelayReplies(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lateBy = d
}

func (p *Proxy) newLateLine() *lateLine {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lateBy <= 0 {
		return nil
	}
	return &lateLine{by: p.lateBy, chunks: make(chan lateChunk, lateChunks)}
}

// put queues data, or reports that the link has ended.
func (l *lateLine) put(data []byte, done <-chan struct{}) bool {
	c := lateChunk{due: time.Now().Add(l.by), data: append([]byte(nil), data...)}
	select {
	case l.chunks <- c:
		return true
	case <-done:
		return false
	}
}

// run writes what was queued when it is due, until the link has ended.
func (l *lateLine) run(to net.Conn, done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var c lateChunk
		select {
		case c = <-l.chunks:
		case <-done:
			return
		}
		timer.Reset(time.Until(c.due))
		select {
		case <-timer.C:
		case <-done:
			return
		}
		if _, err := to.Write(c.data); err != nil {
			return
		}
	}
}
