package ws

import (
	"sync/atomic"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/nonce"
	"noncegate/nonce/fairness"
	"noncegate/wire"
	"noncegate/writer"
)

// class is what the connections of one kind have in common: those of /ws, or of one dialect.
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
