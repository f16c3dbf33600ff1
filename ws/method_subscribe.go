package ws

import (
	"fmt"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/wire"
)

// Subscribing has two names, for clients that can say nothing else than that of Ethereum.
var (
	subscribeMethod = method{
		name: wire.MethodSubscribe, level: audit.All, prepare: subscribeAs(wire.MethodSubscription),
	}
	ethSubscribeMethod = method{
		name: wire.MethodEthSubscribe, level: audit.All, prepare: subscribeAs(wire.MethodEthSub),
	}
	unsubscribeMethod = method{
		name: wire.MethodUnsubscribe, level: audit.All, prepare: by((*conn).unsubscribe),
	}
	ethUnsubscribeMethod = method{
		name: wire.MethodEthUnsubscribe, level: audit.All, prepare: by((*conn).unsubscribe),
	}
)

// subscribeAs makes the two names of subscribing, which differ in the method of
// the notifications that follow.
func subscribeAs(notifications string) prepare {
	return byDecoder(wire.DecodeSubscribe, func(c *conn, r *request, p wire.SubscribeParams) *wire.Error {
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
