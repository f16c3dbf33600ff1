package ws

import (
	"fmt"
	"time"

	"noncegate/internal/access/quota"
	"noncegate/internal/events"
	"noncegate/nonce"
	"noncegate/wire"
)

// How long a connection is not read once a request of it was over a quota: what the
// bucket says, within these bounds. A client that goes on asking at full speed is
// refused ten to a hundred times a second and not a hundred thousand times, and what
// it has sent waits in its own window.
const minRest, maxRest = 10 * time.Millisecond, 100 * time.Millisecond

// retrySubscription is how long a principal with too many subscriptions had better
// wait: until one ends.
const retrySubscription = time.Second

// charge counts the requests of one frame against the quotas of their client and of
// their signers, all or none of the client's. What was taken for signers before one that is
// refused stays taken: a refusal that costs a little keeps the batch from being tried for ever
// at the cost of all others.
func (c *conn) charge(requests []*request) *wire.Error {
	if c.account == nil && c.srv.signers == nil {
		return nil
	}
	now := time.Now()
	if err := c.chargePrincipal(len(requests), now); err != nil {
		return err
	}
	for _, r := range requests {
		if r.err != nil || r.op.Kind == 0 {
			continue
		}
		if wait, err := c.srv.chargeSigner(&c.identity, r.op.Signer, r.op.Kind.Reads(), r.op.Kind == nonce.KindAllocate, now); err != nil {
			c.rest = restOf(wait)
			return err
		}
	}
	return nil
}

func (c *conn) chargePrincipal(n int, now time.Time) *wire.Error {
	rest, err := c.identity.charge(n, now)
	c.rest = max(c.rest, rest)
	return err
}

// charge counts n requests against the quota of their client, if it has one. A refusal says how
// long the client is not to be listened to.
func (g *identity) charge(n int, now time.Time) (rest time.Duration, err *wire.Error) {
	if g.account == nil {
		return 0, nil
	}
	q := g.session.Quota()
	if q.RequestsPerSecond > 0 && n > q.Burst {
		return maxRest, wire.Errorf(wire.CodeInvalidRequest,
			"the batch has %d requests, and the quota of this principal never lets through more than %d at once", n, q.Burst)
	}
	wait, ok := g.account.Request(quota.Rate{PerSecond: q.RequestsPerSecond, Burst: q.Burst}, n, now)
	if ok {
		return 0, nil
	}
	return restOf(wait), BusyQuota("the requests a second of this principal are used up", wait)
}

func restOf(wait time.Duration) time.Duration { return min(max(wait, minRest), maxRest) }

// chargeSigner counts a request against the quota of its signer. What only reads has one of
// its own: a principal with no other right must not keep others from signing. first: it may be the
// first use of the signer, for which the nodes of its chain are asked and a row is made; this counts
// against the quota of the client.
func (s *Server) chargeSigner(g *identity, signer string, reads, first bool, now time.Time) (wait time.Duration, err *wire.Error) {
	if s.signers != nil {
		of := s.signers
		if reads {
			of = s.reads
		}
		if wait, ok := of.Request(signer, now); !ok {
			return wait, BusyQuota(fmt.Sprintf("the requests a second of signer %s are used up", clip(signer)), wait)
		}
	}
	if first && g.account != nil {
		if wait, ok := g.account.First(s.seen, signer, g.session.Quota().NewSigners, now); !ok {
			return wait, BusyQuota("the new signers a minute of this principal are used up", wait)
		}
	}
	return 0, nil
}

// BusyQuota says that a quota is used up and that nothing happened.
func BusyQuota(why string, wait time.Duration) *wire.Error {
	ms := max((wait + time.Millisecond - 1).Milliseconds(), 1)
	return with(wire.Errorf(wire.CodeServerBusy, "%s, nothing happened; ask again", why),
		wire.ErrorData{Stage: wire.StageQuota, RetryAfterMs: ms})
}

// pause reads nothing for as long as the connection is to rest.
func (c *conn) pause() {
	if c.rest == 0 {
		return
	}
	wake := time.NewTimer(c.rest)
	defer wake.Stop()
	c.rest = 0
	select {
	case <-wake.C:
	case <-c.out.Done():
	}
}

// The signers that subscriptions name are kept in memory, at some 300 bytes each: those
// of one connection, of one principal and of all clients of this node are bounded. A
// client that is to hear of more may be given the right on all.
const (
	connectionNames = 16 * events.MaxSigners
	nodeNames       = 1 << 18
	principalNames  = nodeNames / 2
)

// takeSubscription counts a subscription that names so many signers.
func (c *conn) takeSubscription(names int) *wire.Error {
	full := ""
	switch {
	case c.account != nil && !c.account.Subscribe(c.session.Quota().Subscriptions):
		full = "this principal has as many subscriptions as it may have"
	case c.account != nil && !c.account.Name(names, principalNames):
		c.account.Unsubscribe(1)
		full = "the subscriptions of this principal name as many signers as they may"
	case !c.srv.names.TryTake(nil, names):
		c.giveOfPrincipal(names)
		full = "the subscriptions of all clients name as many signers as they may"
	default:
		return nil
	}
	err := BusyQuota(full, retrySubscription)
	c.srv.countBusy(err, 1)
	return err
}

// giveSubscription undoes a takeSubscription.
func (c *conn) giveSubscription(names int) {
	c.srv.names.Give(nil, names)
	c.giveOfPrincipal(names)
}

// giveOfPrincipal gives back what a subscription counts for with its principal.
func (c *conn) giveOfPrincipal(names int) {
	if c.account != nil {
		c.account.Unsubscribe(1)
		c.account.Unname(names)
	}
}
