package ws

import (
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/writer"
)

// admit takes, without waiting, every slot the requests of one frame will need:
// in flight in the gateway and of the connection, room and an encoding for the
// answer, the queue of each signer's shard, a slot of the guard for each lock, and
// post-DB slots for what somebody watches. All or nothing: with an error, which is server_busy with the stage or
// draining, everything is given back and nothing happened; so it is after a panic.
func (c *conn) admit(requests []*request, answerBytes int64) *wire.Error {
	if code := c.expired.Load(); code != 0 {
		return errSessionEnded(int(code))
	}
	if err := c.charge(requests); err != nil {
		return err
	}
	if err := c.class.enter(c.share, c.asker, len(requests), &c.srv.draining); err != nil {
		return err
	}
	admitted, reserved := 0, int64(0)
	defer func() {
		if admitted == len(requests) {
			return
		}
		for _, r := range requests[:admitted] {
			c.cancel(r)
		}
		c.unreserveAnswer(reserved)
		c.leaveInflight(len(requests))
	}()
	if err := c.reserveAnswer(answerBytes); err != nil {
		return err
	}
	reserved = answerBytes
	for _, r := range requests {
		if err := c.admitOne(r); err != nil {
			return err
		}
		admitted++
	}
	return nil
}

// reserveAnswer takes room in the connection's queue for one answer; a frame of
// notifications needs none.
func (c *conn) reserveAnswer(bytes int64) *wire.Error {
	if bytes == 0 {
		return nil
	}
	if stage := c.out.Reserve(bytes); stage != writer.Granted {
		return busy(string(stage))
	}
	return nil
}

func (c *conn) unreserveAnswer(bytes int64) {
	if bytes > 0 {
		c.out.Unreserve(bytes)
	}
}

// admitOne takes what one request needs of the service, the guard and the hub.
func (c *conn) admitOne(r *request) *wire.Error {
	if r.err != nil || r.op.Kind == 0 {
		return nil
	}
	slot, ok := c.srv.service.Reserve(r.op.Signer, r.op.Principal)
	if !ok {
		return busy(wire.StageWorker)
	}
	r.slot = slot
	if r.lock != nil && !c.srv.cfg.Guard.Reserve() {
		slot.Cancel()
		return busy(wire.StageGuard)
	}
	if r.worker, ok = c.srv.reserveEvents(&r.op); !ok {
		c.cancel(r)
		return busy(wire.StagePostDB)
	}
	return nil
}

// reserveEvents takes a post-DB slot for what an op changes that somebody watches. false:
// there is none.
func (s *Server) reserveEvents(op *nonce.Op) (worker int, ok bool) {
	if !writes(op.Kind) || !s.hub.Watched(op.Signer) {
		return 0, true
	}
	worker = s.service.WorkerIndex(op.Signer)
	op.EventSlot = s.hub.Reserve(worker)
	return worker, op.EventSlot
}

// cancelEvents gives it back, if it was not used.
func (s *Server) cancelEvents(op *nonce.Op, worker int) {
	if op.EventSlot {
		op.EventSlot = false
		s.hub.Unreserve(worker)
	}
}

// cancel gives back what admitOne took.
func (c *conn) cancel(r *request) {
	if r.err != nil || r.op.Kind == 0 {
		return
	}
	r.slot.Cancel()
	if r.lock != nil {
		c.srv.cfg.Guard.Cancel()
	}
	c.srv.cancelEvents(&r.op, r.worker)
}
