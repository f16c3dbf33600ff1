package ws

import (
	"noncegate/backpressure"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/writer"
)

// reservation is all that was taken for a request before any work: whatever of it is not used is
// given back once, by giveBack. It has one owner at a time, as its request has.
type reservation struct {
	srv *Server

	inflight int // places of the gateway, of the share and of the principal
	room     *Room
	share    *backpressure.Share
	asker    nonce.Principal

	answer int64 // bytes in the queue of the connection, and with them a place for the encoding
	out    *writer.Queue

	slot  nonce.Slot // in the queue of the signer's shard, until it is submitted, and for its events
	queue int        // of the hub, which has the slot for events

	lock bool // a slot of the guard, which is not asked yet
}

// reserve takes, without waiting, all that the requests of one frame will need: places in flight, room
// for the answer, which counts for all of them, and for each what it needs of the service. All or
// nothing, but for the quota, which stays charged: with an error (server_busy with its stage, draining,
// unauthorized after the end of the session, invalid_request for an array above the quota) nothing else is
// taken and nothing happened; so it is after a panic.
func (c *conn) reserve(answer *reservation, bytes int64, requests []*request) (refusal *wire.Error) {
	if code := c.expired.Load(); code != 0 {
		return errSessionEnded(int(code))
	}
	if err := c.charge(requests); err != nil {
		return err
	}
	if err := c.room.enter(c.share, c.asker, len(requests)); err != nil {
		return err
	}
	for _, r := range requests {
		r.took = reservation{srv: c.srv, inflight: 1, room: c.room, share: c.share, asker: c.asker}
	}
	taken := false
	defer func() {
		if taken {
			return
		}
		answer.giveBack()
		for _, r := range requests {
			r.took.giveBack()
		}
	}()
	if err := answer.reserveAnswer(c.out, bytes); err != nil {
		return err
	}
	for _, r := range requests {
		if r.err != nil || r.op.Kind == 0 {
			continue
		}
		if err := r.took.reserveWork(&r.op.Request, r.lock != nil); err != nil {
			return err
		}
	}
	taken = true
	return nil
}

// reserveAnswer takes room for one answer in a queue; none for 0 bytes, of notifications.
func (v *reservation) reserveAnswer(out *writer.Queue, bytes int64) *wire.Error {
	if bytes == 0 {
		return nil
	}
	if stage := out.Reserve(bytes); stage != writer.Granted {
		return Busy(string(stage))
	}
	v.out, v.answer = out, bytes
	return nil
}

// reserveWork takes what a request needs: a slot of its worker, one of the guard if it is to take a lock,
// and one for its events if they are subscribed to. With an error some of it may be taken.
func (v *reservation) reserveWork(q *nonce.Request, locked bool) *wire.Error {
	s, ok := v.srv, false
	if v.slot, ok = s.service.Reserve(q.Signer, q.Principal); !ok {
		return Busy(wire.StageWorker)
	}
	if locked {
		if v.lock = s.cfg.Guard.Reserve(); !v.lock {
			return Busy(wire.StageGuard)
		}
	}
	if q.Kind.Writes() && s.hub.Watched(q.Signer) {
		v.queue = s.service.WorkerIndex(q.Signer)
		if v.slot.Events = s.hub.Reserve(v.queue); !v.slot.Events {
			return Busy(wire.StagePostDB)
		}
	}
	return nil
}

func (v *reservation) submit(q *nonce.Request, r *nonce.Result, done nonce.Completion) {
	v.srv.service.Submit(&v.slot, q, r, done)
}

// push queues an answer in the room for it.
func (v *reservation) push(m writer.Message) {
	out, bytes := v.out, v.answer
	v.answer = 0 // m, and v with it, may be used again from now on
	out.Push(m, bytes)
}

// giveBack gives back what was not used. It may be called again.
func (v *reservation) giveBack() {
	was := *v
	*v = reservation{srv: was.srv}
	if was.slot.Events {
		was.srv.hub.Unreserve(was.queue)
	}
	if was.lock {
		was.srv.cfg.Guard.Cancel()
	}
	was.slot.Cancel()
	if was.answer > 0 {
		was.out.Unreserve(was.answer)
	}
	if was.inflight > 0 {
		was.room.leave(was.share, was.asker, was.inflight)
	}
}
