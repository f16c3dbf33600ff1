package ws

import (
	"sync/atomic"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/wire"
	"noncegate/writer"
)

// class is what the connections of one kind have in common: those of clients, or
// those of other nodes.
type class struct {
	inflight        *backpressure.Gate // the requests of all of them
	fair            *fairness.Shares   // of inflight, by principal; nil: they are not shared
	maxInflight     int                // of one: its share of inflight
	maxMessageBytes int64
	sendBuffer      int
	writer          writer.Config
}

func (s *Server) clientClass() class {
	return class{
		inflight: backpressure.NewGate(s.cfg.MaxInflightTotal), maxInflight: s.cfg.MaxInflight,
		maxMessageBytes: s.cfg.MaxMessageBytes, sendBuffer: s.cfg.SendBuffer, writer: s.cfg.Writer,
	}
}

// maxAnswer is the largest answer that a connection has room for, without its frame's header.
func (k *class) maxAnswer() int64 { return k.writer.Marks.Max - encodepool.MaxHeader }

const (
	// nodeAnswerBytes is what a node connection may have queued for each request
	// in flight: four times the answer to nearly every one, so that all of them
	// and some large ones have room beside the events.
	nodeAnswerBytes = 4 * smallReplyBytes
	// nodeMessages is how many messages it may have queued for each: as many
	// events as answers, and as many again that wait to be written.
	nodeMessages = 4
	// nodeMessageBytes holds the longest request there is between nodes: a
	// subscription to MaxSigners signers, each of quotes only, which double.
	nodeMessageBytes = events.MaxSigners * (2*nonce.MaxKeyBytes + len(`"",`)) * 5 / 4
)

// nodeClass is that of other nodes. Their requests have slots of their own, as
// many as those of all clients: were they the same, two nodes full of requests for
// each other's signers would refuse each other everything, each waiting for the
// other. One node may have a quarter, so that two that send more than this one can
// do leave slots to others.
//
// A node is not a slow client: its connection is never paused, nor ended for being
// slow, since the clients of a whole node hang on it; only the hard bounds end it.
// Events are left out when it does not keep up, before they take the room of
// answers.
func (s *Server) nodeClass(pool *encodepool.Pool) class {
	c := s.clientClass()
	c.maxInflight = max(1, min(s.cfg.Nodes.MaxInflight, s.cfg.MaxInflightTotal/4))
	c.maxMessageBytes = max(c.maxMessageBytes, int64(nodeMessageBytes))
	c.sendBuffer = 0 // as much as the kernel likes
	limit := max(s.cfg.Writer.Marks.Max, int64(c.maxInflight)*nodeAnswerBytes)
	c.writer.Marks = backpressure.Marks{High: limit / 4, Low: limit / 16, Max: limit, MaxAge: s.cfg.Writer.Marks.MaxAge, Drop: true}
	c.writer.MaxMessages = max(c.writer.MaxMessages, nodeMessages*c.maxInflight)
	c.writer.Share = max(c.writer.Share, min(nodeMessages*c.maxInflight, pool.Capacity()))
	return c
}

// enter counts n requests of a share as in flight. Draining is looked at after the
// count was raised and before anything else: Drain looks at the count after it
// said draining, so one of the two sees the other.
func (k *class) enter(share *backpressure.Share, p nonce.Principal, n int, draining *atomic.Bool) *wire.Error {
	switch {
	case k.inflight.TryTake(share, n):
		err := k.enterFair(p, n)
		switch {
		case err == nil && draining.Load():
			k.leave(share, p, n)
			return errDraining()
		case err != nil:
			k.inflight.Give(share, n)
		}
		return err
	case share.Closed():
		return errDraining()
	case share.Used()+n > k.maxInflight:
		return busy(wire.StageConnection)
	}
	return busy(wire.StageInflight)
}

// enterFair counts n requests of a principal.
func (k *class) enterFair(p nonce.Principal, n int) *wire.Error {
	if k.fair == nil {
		return nil
	}
	switch ok, crowded := k.fair.Try(p, int64(n)); {
	case ok:
		return nil
	case crowded:
		return busyQuota("this principal has as many calls in flight as its share", retryBusy)
	}
	return busy(wire.StageInflight)
}

// leave gives back slots that were taken by enter.
func (k *class) leave(share *backpressure.Share, p nonce.Principal, n int) {
	if k.fair != nil {
		k.fair.Release(p, int64(n))
	}
	k.inflight.Give(share, n)
}
