package ws

import (
	"context"
	"fmt"
	"math"
	"time"

	"noncegate/wire"
)

// drainStep is how often Drain looks for connections that can be closed.
const drainStep = 10 * time.Millisecond

// Drain sends all clients away. It lets none in from its start on: further connections
// are told 503. Requests are served on for CloseSpread, in which connections that
// have nothing in flight are closed with 1012, one after the other; after it
// further requests are told draining, and the others are closed once what they
// have in flight is answered. It returns when all are gone,
// or with an error that says how many are not when ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	s.conns.setLeaving()
	began, total := time.Now(), s.conns.len()
	tick := time.NewTicker(drainStep)
	defer tick.Stop()
	for {
		left := max(s.cfg.CloseSpread-time.Since(began), 0)
		if left == 0 {
			s.draining.Store(true)
			s.endSights()
		}
		s.closeSome(int(math.Ceil(float64(total) * float64(left) / float64(max(s.cfg.CloseSpread, 1)))))
		if s.conns.empty() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain: %d connections are left, %d requests in flight: %w",
				s.conns.len(), s.clients.inflight.Used(), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// closeSome closes connections of clients that have nothing in flight until no
// more than keep are left that could be closed later.
func (s *Server) closeSome(keep int) {
	for _, c := range s.conns.all() {
		if keep > 0 && !c.isClosing() {
			keep--
			continue
		}
		c.closeIdle()
	}
}

// closeIdle closes a connection that has nothing in flight. A request that comes
// in just now is either in flight before, and the connection stays, or it is not
// taken: a request whose answer cannot be sent is never executed.
func (c *conn) closeIdle() {
	if !c.isClosing() && c.share.Close() {
		c.close(wire.CloseServiceRestart, wire.CloseTextRestart)
	}
}

// Stop ends every connection at once and the pinger, and returns when all
// goroutines are gone, or with an error when ctx ends first. After a Drain that
// succeeded there is nothing left to end. It may be called again.
func (s *Server) Stop(ctx context.Context) error {
	s.conns.setLeaving()
	s.draining.Store(true)
	s.endOfLife()
	s.pinger.Wait()
	for {
		for _, c := range s.conns.all() {
			c.out.Kill(errStopped)
		}
		if s.conns.empty() {
			return s.awaitLines(ctx)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop: %d connections are left: %w", s.conns.len(), context.Cause(ctx))
		case <-time.After(drainStep):
		}
	}
}
