package ws

import (
	"fmt"
	"time"

	"noncegate/auth"
	"noncegate/hub"
	"noncegate/nonce"
	"noncegate/wire"
)

// method turns the params of a call into what r is to do: an op for the service,
// or an act of the connection's own. It changes nothing else, because the
// request is not admitted yet.
type method func(c *conn, r *request, params []byte) *wire.Error

// methods is the dispatch table. It is never written.
var methods = map[string]method{
	wire.MethodAllocate:       (*conn).allocate,
	wire.MethodMarkUsed:       (*conn).markUsed,
	wire.MethodMarkRecyclable: (*conn).markRecyclable,
	wire.MethodStatus:         (*conn).status,
	wire.MethodList:           (*conn).list,
	wire.MethodSetFloor:       (*conn).setFloor,
	wire.MethodSubscribe:      subscribeAs(wire.MethodSubscription),
	wire.MethodEthSubscribe:   subscribeAs(wire.MethodEthSub),
	wire.MethodUnsubscribe:    (*conn).unsubscribe,
	wire.MethodEthUnsubscribe: (*conn).unsubscribe,
	wire.MethodInfo:           (*conn).info,
	wire.MethodStats:          (*conn).stats,
}

func (c *conn) allocate(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeAllocate(params)
	if err == nil {
		err = firstOf(setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs))
	}
	if err != nil {
		return err
	}
	if p.Count > nonce.MaxCount {
		return invalidParams("count", fmt.Sprintf("must be at most %d", nonce.MaxCount))
	}
	if p.OnlyKnown && (c.peer == nil || p.RequestID == "") {
		return invalidParams("onlyKnown", "is for other nodes, with a requestId")
	}
	r.op.Kind, r.op.Count, r.op.OnlyKnown = nonce.KindAllocate, int(p.Count), p.OnlyKnown
	if p.RequestID != "" {
		id, bad := nonce.ParseRequestID(p.RequestID)
		if bad != nil {
			return invalidParams("requestId", bad.Error())
		}
		r.op.RequestID = id
	}
	if c.peer == nil && p.MaxOpen != 0 {
		return invalidParams("maxOpen", "unknown name")
	}
	r.op.MaxOpen = int(p.MaxOpen)
	return firstOf(c.setPrincipal(r, p.Principal, false), c.setGuard(r, p.Guard))
}

func (c *conn) markUsed(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeMarkUsed(params)
	if err == nil {
		err = setSigner(&r.op, p.Signer)
	}
	if err != nil {
		return err
	}
	hash, bad := nonce.ParseTxHash(p.TxHash)
	if bad != nil {
		return invalidParams("txHash", bad.Error())
	}
	r.op.Kind, r.op.Nonce, r.op.Attempt, r.op.TxHash = nonce.KindMarkUsed, p.Nonce, p.Attempt, hash
	return firstOf(c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

func (c *conn) markRecyclable(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeMarkRecyclable(params)
	if err == nil {
		err = setSigner(&r.op, p.Signer)
	}
	if err != nil {
		return err
	}
	reason, bad := nonce.ParseReason(p.Reason)
	if bad != nil {
		return invalidParams("reason", bad.Error())
	}
	r.op.Kind, r.op.Nonce, r.op.Attempt, r.op.Reason = nonce.KindMarkRecyclable, p.Nonce, p.Attempt, reason
	return firstOf(c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

func (c *conn) status(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeStatus(params)
	if err != nil {
		return err
	}
	r.op.Kind = nonce.KindStatus
	return setSigner(&r.op, p.Signer)
}

func (c *conn) list(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeList(params)
	if err == nil {
		err = setSigner(&r.op, p.Signer)
	}
	if err != nil {
		return err
	}
	r.op.Kind = nonce.KindList
	r.op.List = nonce.ListQuery{Signer: r.op.Signer, Status: statusOf(p.Status), From: p.From, Limit: int(p.Limit)}
	return nil
}

func (c *conn) setFloor(r *request, params []byte) *wire.Error {
	p, err := wire.DecodeSetFloor(params)
	if err != nil {
		return err
	}
	r.op.Kind, r.op.Floor = nonce.KindSetFloor, p.Floor
	return firstOf(setSigner(&r.op, p.Signer), c.setPrincipal(r, p.Principal, false))
}

// subscribeAs makes the two names of subscribing, which differ in the method of
// the notifications that follow.
func subscribeAs(notifications string) method {
	return func(c *conn, r *request, params []byte) *wire.Error {
		p, err := wire.DecodeSubscribe(params)
		if err != nil {
			return err
		}
		if len(p.Signers) > hub.MaxSigners {
			return invalidParams("signers", fmt.Sprintf("must be at most %d; leave signers out to get every event", hub.MaxSigners))
		}
		for i, s := range p.Signers {
			signer, bad := nonce.ParseSigner(s)
			if bad != nil {
				return invalidParams("signers", fmt.Sprintf("number %d: %v", i+1, bad))
			}
			p.Signers[i] = signer
			if err := c.may(auth.RightSubscribe, signer); err != nil {
				return err
			}
		}
		if len(p.Signers) == 0 {
			if err := c.may(auth.RightSubscribe, everySigner); err != nil {
				return err
			}
		}
		r.act = func() (any, *wire.Error) {
			s, err := c.addSubscription(notifications, p.Signers)
			if err != nil {
				return nil, err
			}
			r.subscription = s
			c.awaitNodes()
			return s.id, nil
		}
		return nil
	}
}

func (c *conn) unsubscribe(r *request, params []byte) *wire.Error {
	id, err := wire.DecodeUnsubscribe(params)
	if err != nil {
		return err
	}
	r.act = func() (any, *wire.Error) {
		if !c.removeSubscription(id) {
			return nil, wire.Errorf(wire.CodeNotFound, "not_found", "this connection has no such subscription")
		}
		return true, nil
	}
	return nil
}

func (c *conn) info(r *request, params []byte) *wire.Error {
	info := infoResult(c.srv.cfg.Info()) // now, because room is reserved for the nodes there are
	r.bytes = infoBytes + int64(len(info.Nodes)*nodeBytes)
	r.act = func() (any, *wire.Error) { return info, nil }
	return wire.DecodeNone(params)
}

func (c *conn) stats(r *request, params []byte) *wire.Error {
	r.bytes = statsBytes
	r.act = func() (any, *wire.Error) { stats := c.srv.figures.Stats(); return &stats, nil }
	return wire.DecodeNone(params)
}

func firstOf(errs ...*wire.Error) *wire.Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func setSigner(op *nonce.Op, given string) *wire.Error {
	signer, bad := nonce.ParseSigner(given)
	if bad != nil {
		return invalidParams("signer", bad.Error())
	}
	op.Signer = signer
	return nil
}

func (c *conn) setHold(op *nonce.Op, ms int64) *wire.Error {
	least, most := c.srv.cfg.MinHold.Milliseconds(), c.srv.cfg.MaxHold.Milliseconds()
	if ms != 0 && (ms < least || ms > most) {
		return invalidParams("holdMs", fmt.Sprintf("must be %d to %d", least, most))
	}
	op.Hold = time.Duration(ms) * time.Millisecond
	return nil
}

// statusOf reads a status that wire has checked; "" is 0, for all.
func statusOf(word string) nonce.Status {
	for _, s := range []nonce.Status{nonce.Held, nonce.Released, nonce.Consumed} {
		if s.String() == word {
			return s
		}
	}
	return 0
}
