package cluster

import (
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/nonce"
	"noncegate/wire"
)

// burstOps bounds the ops that one write to the network takes.
const burstOps = 256

// output is the writer's memory.
type output struct {
	burst    []outgoing
	controls []control
	back     []returned

	call       call
	allocate   wire.AllocateParams
	used       wire.MarkUsedParams
	recyclable wire.MarkRecyclableParams
	signed     wire.MarkSignedParams
	extend     wire.ExtendParams
	repair     wire.RepairParams
	floor      wire.SetFloorParams
	status     wire.StatusParams
	list       wire.ListParams
}

// outgoing is an op that the writer reads.
type outgoing struct {
	op   *op
	id   uint64
	skip bool // it is not sent; op.Err says why
}

// control is a request of the link's own.
type control struct {
	id     uint64
	method string
	params any
}

// call is a request as it is written.
type call struct {
	Version string `json:"jsonrpc"`
	ID      uint64 `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
	Path    uint64 `json:"path,omitempty"` // see nonce.Path; 0: none
}

// write is the link's writer. It returns nil when it was told to quit.
func (l *link) write() error {
	for {
		more, err := l.writeBurst()
		if err != nil {
			return err
		}
		if more {
			l.peer.nudge() // after what else there may be to do
		}
		select {
		case <-l.peer.wake:
		case data := <-l.pongs:
			err = l.control(websocket.PongMessage, data)
		case <-l.pings:
			err = l.control(websocket.PingMessage, nil)
		case code := <-l.quit:
			_ = l.control(websocket.CloseMessage, websocket.FormatCloseMessage(code, "")) // a courtesy
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *link) control(kind int, data []byte) error {
	return l.ws.WriteControl(kind, data, time.Now().Add(l.peer.r.cfg.writeTime()))
}

// writeBurst sends what is queued, up to a bound, in one write. more: something
// may be left.
func (l *link) writeBurst() (more bool, err error) {
	l.take()
	o := &l.out
	if len(o.burst)+len(o.controls) == 0 {
		return false, nil
	}
	l.transport.Hold()
	if err := l.encodeBurst(); err != nil {
		return false, err
	}
	l.settle()
	err = l.transport.Release(time.Now().Add(l.peer.r.cfg.writeTime()))
	l.peer.r.returnAll(o.back)
	clear(o.back)
	return len(o.burst) == burstOps, err
}

// take takes ops from the queue. From now on the writer alone touches them, until
// settle.
func (l *link) take() {
	p, o := l.peer, &l.out
	o.burst, o.back = o.burst[:0], o.back[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	o.controls = p.subs.due(p.r.interests.now(), time.Now(), o.controls[:0])
	for len(o.burst) < burstOps {
		s := p.inflight.takeQueued()
		if s == nil {
			return
		}
		o.burst = append(o.burst, outgoing{op: s.op, id: s.id})
	}
}

// settle says of the ops of a burst that they are sent: they are about to be. Those
// that are not sent come out.
func (l *link) settle() {
	p, o := l.peer, &l.out
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range o.burst {
		b := &o.burst[i]
		s := p.inflight.find(b.id)
		s.stage = sent
		if b.skip {
			o.back = append(o.back, returned{op: s.op, at: s.at, verdict: nonce.Bounced})
			p.inflight.remove(s)
		}
		b.op = nil
	}
}

// encodeBurst makes frames of what was taken.
func (l *link) encodeBurst() error {
	o := &l.out
	for i := range o.controls {
		c := &o.controls[i]
		if err := l.frame(c.id, c.method, c.params, 0); err != nil {
			return err
		}
		*c = control{}
	}
	for i := range o.burst {
		b := &o.burst[i]
		if b.op.of.Gone() {
			b.skip, b.op.Err = true, nonce.ErrGone
			continue
		}
		method, params := l.peer.r.paramsOf(b.op, o)
		if err := l.frame(b.id, method, params, b.op.path); err != nil {
			return err
		}
	}
	return nil
}

// frame adds one request to what is held. An error means that the connection is
// broken: every request has a JSON form.
func (l *link) frame(id uint64, method string, params any, path uint64) error {
	l.out.call = call{Version: "2.0", ID: id, Method: method, Params: params, Path: path}
	data, err := wire.Marshal(&l.out.call)
	if err != nil {
		return err
	}
	return l.ws.WriteMessage(websocket.TextMessage, data)
}

// paramsOf is what an op says in the protocol. The params are in o until the next
// call. An allocate or a repair that has no request id is given one.
func (r *Router) paramsOf(op *op, o *output) (method string, params any) {
	switch op.Kind {
	case nonce.KindAllocate:
		if op.RequestID == "" {
			op.RequestID = r.requestID()
		}
		o.allocate = wire.AllocateParams{
			Signer: op.Signer, Count: int64(op.Count), RequestID: op.RequestID,
			HoldMs:      op.Hold.Milliseconds(), // 0 is absent: the other node's own default
			RecordFirst: op.RecordFirst,
			OnlyKnown:   op.OnlyKnown, Principal: principalOf(op), MaxOpen: int64(op.MaxOpen),
		}
		return wire.MethodAllocate, &o.allocate
	case nonce.KindMarkUsed:
		o.used = wire.MarkUsedParams{
			Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Request.Attempt, TxHash: op.TxHash.String(),
			Principal: principalOf(op), MarkAny: markAny(op),
		}
		return wire.MethodMarkUsed, &o.used
	case nonce.KindMarkRecyclable:
		o.recyclable = wire.MarkRecyclableParams{
			Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Request.Attempt, Reason: op.Reason,
			Unsent: op.Unsent, Forwarded: op.Forwarded, Keep: op.Keep, TxHash: op.TxHash.String(),
			Principal: principalOf(op), MarkAny: markAny(op),
		}
		return wire.MethodMarkRecyclable, &o.recyclable
	case nonce.KindMarkSigned:
		o.signed = wire.MarkSignedParams{
			Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Request.Attempt, TxHash: op.TxHash.String(),
			Forwarded: op.Forwarded, Take: op.Take, Over: op.Over.String(), MaxOpen: takes(op), Principal: principalOf(op), MarkAny: markAny(op),
		}
		return wire.MethodMarkSigned, &o.signed
	case nonce.KindExtend:
		o.extend = wire.ExtendParams{
			Signer: op.Signer, Nonce: op.Nonce, Attempt: op.Request.Attempt, HoldMs: op.Hold.Milliseconds(),
			Principal: principalOf(op), MarkAny: markAny(op),
		}
		return wire.MethodExtend, &o.extend
	case nonce.KindRepair:
		if op.RequestID == "" {
			op.RequestID = r.requestID()
		}
		o.repair = wire.RepairParams{Signer: op.Signer, HoldMs: op.Hold.Milliseconds(), RequestID: op.RequestID, Principal: principalOf(op)}
		if op.Nonce >= 0 {
			o.repair.Nonce = &op.Nonce
		}
		return wire.MethodRepair, &o.repair
	case nonce.KindSetFloor:
		o.floor = wire.SetFloorParams{Signer: op.Signer, Floor: op.Request.Floor, Principal: principalOf(op)}
		return wire.MethodSetFloor, &o.floor
	case nonce.KindStatus:
		o.status = wire.StatusParams{Signer: op.Signer}
		return wire.MethodStatus, &o.status
	case nonce.KindList:
		o.list = wire.ListParams{Signer: op.Signer, From: op.List.From, Limit: int64(op.List.Limit), ChainOnly: true}
		if op.List.Status != 0 {
			o.list.Status = op.List.Status.String()
		}
		if op.List.Unknown {
			o.list.Status = wire.StatusUnknown
		}
		return wire.MethodList, &o.list
	}
	panic(fmt.Sprintf("cluster: a %v op cannot be forwarded", op.Kind)) // a new kind needs a line above
}

// takes is how many holds the principal may have, of a mark that takes its nonce.
func takes(op *op) int64 {
	if !op.Take {
		return 0
	}
	return int64(op.MaxOpen)
}

// principalOf is who asks, as the other node is told; "": nobody in particular.
func principalOf(op *op) string {
	if op.Principal == 0 {
		return ""
	}
	return op.Principal.String()
}

// markAny is whether who asks may mark what others hold, as the other node is told.
// Nobody in particular may, unsaid: a node of a version before principals refuses what
// it does not know.
func markAny(op *op) bool { return op.MarkAny && op.Principal != 0 }
