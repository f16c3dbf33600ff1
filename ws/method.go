package ws

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/wire"
)

// method turns the params of a call into what r is to do: an op for the service,
// or an act of the connection's own. It changes nothing else, because the
// request is not admitted yet.
type method func(c *conn, r *request, params []byte) *wire.Error

// methods is the dispatch table. It is never written.
var methods = map[string]method{
	wire.MethodAllocate:       by(wire.Params[wire.AllocateParams](), (*conn).allocate),
	wire.MethodMarkUsed:       by(wire.Params[wire.MarkUsedParams](), (*conn).markUsed),
	wire.MethodMarkRecyclable: by(wire.Params[wire.MarkRecyclableParams](), (*conn).markRecyclable),
	wire.MethodMarkSigned:     by(wire.Params[wire.MarkSignedParams](), (*conn).markSigned),
	wire.MethodExtend:         by(wire.Params[wire.ExtendParams](), (*conn).extend),
	wire.MethodRepair:         by(wire.Params[wire.RepairParams](), (*conn).repair),
	wire.MethodStatus:         by(wire.Params[wire.StatusParams](), (*conn).status),
	wire.MethodList:           by(wire.Params[wire.ListParams](), (*conn).list),
	wire.MethodSetFloor:       by(wire.Params[wire.SetFloorParams](), (*conn).setFloor),
	wire.MethodSubscribe:      subscribeAs(wire.MethodSubscription),
	wire.MethodEthSubscribe:   subscribeAs(wire.MethodEthSub),
	wire.MethodUnsubscribe:    by(wire.Params[wire.UnsubscribeParams](), (*conn).unsubscribe),
	wire.MethodEthUnsubscribe: by(wire.Params[wire.UnsubscribeParams](), (*conn).unsubscribe),
	wire.MethodInfo:           by(wire.Params[wire.NoParams](), (*conn).info),
	wire.MethodStats:          by(wire.Params[wire.NoParams](), (*conn).stats),
}

// by is a method that decodes its params first. They are handed on by value, which costs
// no allocation.
func by[P any](decode func(params []byte) (P, *wire.Error), prepare func(*conn, *request, P) *wire.Error) method {
	return func(c *conn, r *request, params []byte) *wire.Error {
		p, err := decode(params)
		if err != nil {
			return err
		}
		return prepare(c, r, p)
	}
}

func (c *conn) allocate(r *request, p wire.AllocateParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs)); err != nil {
		return err
	}
	if other := c.srv.cfg.OtherChain; other != nil {
		if why := other(r.op.Signer); why != "" {
			return invalidParams("signer", why)
		}
	}
	if p.Count > nonce.MaxCount {
		return invalidParams("count", fmt.Sprintf("must be at most %d", nonce.MaxCount))
	}
	if p.OnlyKnown && (c.peer == nil || p.RequestID == "") {
		return invalidParams("onlyKnown", "is for other nodes, with a requestId")
	}
	r.op.Kind, r.op.Count, r.op.OnlyKnown, r.op.RecordFirst = nonce.KindAllocate, int(p.Count), p.OnlyKnown, p.RecordFirst
	r.op.MaxOpen = int(p.MaxOpen)
	return cmp.Or(setRequestID(&r.op, p.RequestID), c.ofNodes("maxOpen", p.MaxOpen != 0), c.setPrincipal(r, p.Principal, false), c.setGuard(r, p.Guard))
}

func (c *conn) markUsed(r *request, p wire.MarkUsedParams) *wire.Error {
	if err := c.setSigner(&r.op, p.Signer); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt = nonce.KindMarkUsed, p.Nonce, p.Attempt
	return cmp.Or(setHash(&r.op, p.TxHash), c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

func (c *conn) markSigned(r *request, p wire.MarkSignedParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.ofNodes("forwarded", p.Forwarded), c.ofNodes("take", p.Take), c.ofNodes("over", p.Over != ""),
		c.ofNodes("maxOpen", p.MaxOpen != 0)); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt = nonce.KindMarkSigned, p.Nonce, p.Attempt
	r.op.Forwarded, r.op.Take, r.op.MaxOpen = p.Forwarded, p.Take, int(p.MaxOpen)
	return cmp.Or(setHash(&r.op, p.TxHash), setOver(&r.op, p.Over), c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

func (c *conn) extend(r *request, p wire.ExtendParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs)); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt = nonce.KindExtend, p.Nonce, p.Attempt
	return c.setPrincipal(r, p.Principal, p.MarkAny)
}

func (c *conn) repair(r *request, p wire.RepairParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.setHold(&r.op, p.HoldMs)); err != nil {
		return err
	}
	r.op.Kind, r.op.Nonce = nonce.KindRepair, -1
	if p.Nonce != nil {
		r.op.Nonce = *p.Nonce
	}
	return cmp.Or(setRequestID(&r.op, p.RequestID), c.setPrincipal(r, p.Principal, false))
}

func (c *conn) markRecyclable(r *request, p wire.MarkRecyclableParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.ofNodes("forwarded", p.Forwarded), c.ofNodes("keep", p.Keep), c.ofNodes("txHash", p.TxHash != "")); err != nil {
		return err
	}
	reason, bad := nonce.ParseReason(p.Reason)
	if bad != nil {
		return invalidParams("reason", bad.Error())
	}
	r.op.Kind, r.op.Nonce, r.op.Request.Attempt, r.op.Reason = nonce.KindMarkRecyclable, p.Nonce, p.Attempt, reason
	r.op.Unsent, r.op.Forwarded, r.op.Keep = p.Unsent, p.Forwarded, p.Keep
	return cmp.Or(setHash(&r.op, p.TxHash), c.setPrincipal(r, p.Principal, p.MarkAny), c.setGuard(r, p.Guard))
}

func (c *conn) status(r *request, p wire.StatusParams) *wire.Error {
	r.op.Kind = nonce.KindStatus
	return c.setSigner(&r.op, p.Signer)
}

func (c *conn) list(r *request, p wire.ListParams) *wire.Error {
	if err := cmp.Or(c.setSigner(&r.op, p.Signer), c.ofNodes("chainOnly", p.ChainOnly)); err != nil {
		return err
	}
	r.op.Kind, r.op.ChainOnly = nonce.KindList, p.ChainOnly
	r.op.List = nonce.ListQuery{Signer: r.op.Signer, From: p.From, Limit: int(p.Limit)}
	r.op.List.Status, r.op.List.Unknown = statusOf(p.Status)
	r.op.WithHolders = c.seesHolders(r.op.Signer)
	return nil
}

func (c *conn) setFloor(r *request, p wire.SetFloorParams) *wire.Error {
	r.op.Kind, r.op.Request.Floor = nonce.KindSetFloor, p.Floor
	return cmp.Or(c.setSigner(&r.op, p.Signer), c.setPrincipal(r, p.Principal, false))
}

// subscribeAs makes the two names of subscribing, which differ in the method of
// the notifications that follow.
func subscribeAs(notifications string) method {
	return by(wire.DecodeSubscribe, func(c *conn, r *request, p wire.SubscribeParams) *wire.Error {
		if len(p.Signers) > events.MaxSigners {
			return invalidParams("signers", fmt.Sprintf("must be at most %d; leave signers out to get every event", events.MaxSigners))
		}
		for i, s := range p.Signers {
			signer, bad := nonce.ParseSigner(s)
			if bad != nil {
				return invalidParams("signers", fmt.Sprintf("number %d: %s", i+1, c.badSigner(bad)))
			}
			p.Signers[i] = signer
			if err := c.may(access.RightSubscribe, signer); err != nil {
				return err
			}
		}
		if len(p.Signers) == 0 {
			if err := c.may(access.RightSubscribe, everySigner); err != nil {
				return err
			}
		}
		r.act = func() (any, *wire.Error) {
			s, err := c.subscribe(notifications, p.Signers)
			if err != nil {
				return nil, err
			}
			r.subscription = s
			c.awaitNodes()
			return s.id, nil
		}
		return nil
	})
}

func (c *conn) unsubscribe(r *request, p wire.UnsubscribeParams) *wire.Error {
	r.act = func() (any, *wire.Error) {
		if !c.removeSubscription(p.ID) {
			return nil, wire.Errorf(wire.CodeNotFound, "this connection has no such subscription")
		}
		return true, nil
	}
	return nil
}

func (c *conn) info(r *request, _ wire.NoParams) *wire.Error {
	info := infoResult(c.srv.cfg.Info()) // now, because room is reserved for the nodes there are
	r.bytes = infoBytes + int64(len(info.Nodes)*nodeBytes)
	r.act = func() (any, *wire.Error) { return info, nil }
	return nil
}

func (c *conn) stats(r *request, _ wire.NoParams) *wire.Error {
	r.bytes = statsBytes
	r.act = func() (any, *wire.Error) { stats := c.srv.perf.Stats(); return &stats, nil }
	return nil
}

func (c *conn) setSigner(op *nonce.Op, given string) *wire.Error {
	signer, bad := nonce.ParseSigner(given)
	if bad != nil {
		return invalidParams("signer", c.badSigner(bad))
	}
	op.Signer = signer
	return nil
}

// badSigner is what nonce.ParseSigner says; its example is of a chain that there is.
func (c *conn) badSigner(err error) string {
	if bare, ok := errors.AsType[*nonce.BareAddressError](err); ok && c.srv.cfg.ExampleChain != "" {
		return bare.Meant(c.srv.cfg.ExampleChain)
	}
	return err.Error()
}

func (c *conn) setHold(op *nonce.Op, ms int64) *wire.Error {
	shortest, longest := c.srv.cfg.MinHold.Milliseconds(), c.srv.cfg.MaxHold.Milliseconds()
	if ms != 0 && (ms < shortest || ms > longest) {
		return invalidParams("holdMs", fmt.Sprintf("must be %d to %d", shortest, longest))
	}
	op.Hold = time.Duration(ms) * time.Millisecond
	return nil
}

func setRequestID(op *nonce.Op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	id, bad := nonce.ParseRequestID(given)
	if bad != nil {
		return invalidParams("requestId", bad.Error())
	}
	op.RequestID = id
	return nil
}

// setHash gives the op the hash of a transaction, if there is one.
func setHash(op *nonce.Op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	hash, bad := nonce.ParseTxHash(given)
	if bad != nil {
		return invalidParams("txHash", bad.Error())
	}
	op.TxHash = hash
	return nil
}

// setOver reads which transaction may be replaced.
func setOver(op *nonce.Op, given string) *wire.Error {
	if given == "" {
		return nil
	}
	hash, bad := nonce.ParseTxHash(given)
	if bad != nil {
		return invalidParams("over", bad.Error())
	}
	op.Over = hash
	return nil
}

// ofNodes refuses what only other nodes may say.
func (c *conn) ofNodes(name string, given bool) *wire.Error {
	if given && c.peer == nil {
		return invalidParams(name, "unknown name")
	}
	return nil
}

// statusOf reads a status that wire has checked; "" is 0, for all.
func statusOf(word string) (s nonce.Status, unknown bool) {
	switch word {
	case wire.StatusHeld:
		return nonce.Held, false
	case wire.StatusReleased:
		return nonce.Released, false
	case wire.StatusConsumed:
		return nonce.Consumed, false
	case wire.StatusUnknown:
		return nonce.Held, true
	}
	return 0, false
}

// wordOf is the word of a status.
func wordOf(s nonce.Status, unknown bool) string {
	if unknown {
		return wire.StatusUnknown
	}
	return s.String()
}
