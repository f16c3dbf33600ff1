package main

import (
	"context"
	"errors"
	"time"

	"noncegate/client"
)

// gatewaySource is a worker's connection to the gateways.
type gatewaySource struct {
	*soak
	c *client.Client
}

// dialGateways connects to whichever gateway answers first.
func (s *soak) dialGateways(ctx context.Context, first int) (*client.Client, error) {
	urls := s.gateways.urls()
	first %= len(urls)
	return client.Dial(ctx, urls[first], s.clientConfig(append(urls[first+1:len(urls):len(urls)], urls[:first]...)))
}

func (s *soak) clientConfig(others []string) client.Config {
	return client.Config{
		URLs: others, DialTimeout: 2 * time.Second,
		BackoffMin: 50 * time.Millisecond, BackoffMax: 500 * time.Millisecond, RetryMax: 300 * time.Millisecond,
		MaxElapsed: 4 * time.Second, MarkTimeout: 4 * time.Second, EventBuffer: 4096,
	}
}

func (g *gatewaySource) close() { _ = g.c.Close() }

// ended has errEndedHold match a conflict: the hold of that request id has ended.
func ended(err error) error {
	if errors.Is(err, client.ErrConflict) {
		return errors.Join(errEndedHold, err)
	}
	return err
}

func (g *gatewaySource) take(ctx context.Context, p *payment, plan plan) (ticket, error) {
	g.counts.calls.Add(1)
	request := client.AllocateRequest{Signer: g.signer(p.account), RecordFirst: plan.style == recordFirst}
	if plan.named {
		request.RequestID = plan.requestID
	}
	a, err := g.c.Allocate(ctx, request)
	if err != nil {
		return ticket{}, ended(err)
	}
	return g.ticket(&a, plan), nil
}

func (g *gatewaySource) ticket(a *client.Allocation, plan plan) ticket {
	if a.Reissued != nil {
		g.counts.reissued.Add(1)
	}
	return ticket{nonce: uint64(a.Nonce), hold: a.Hold(), deadline: a.Deadline, style: plan.style}
}

// record asks until it is known whether the transaction may be sent.
func (g *gatewaySource) record(ctx context.Context, t ticket, hash string) error {
	for {
		g.counts.calls.Add(1)
		_, err := g.c.MarkSigned(ctx, t.hold, hash)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, client.ErrConflict), errors.Is(err, client.ErrNotFound):
			return errors.Join(errRefused, err)
		case errors.Is(err, client.ErrInvalidParams):
			g.oops("nonce_markSigned: %v", err)
			return errors.Join(errRefused, err)
		case !sleep(ctx, 200*time.Millisecond):
			return err
		}
	}
}

// used tries a few times; a worker that has no luck forgets it.
func (g *gatewaySource) used(ctx context.Context, t ticket, hash string) (err error) {
	for range 3 {
		g.counts.calls.Add(1)
		if _, err = g.c.MarkUsed(ctx, t.hold, hash); err == nil {
			return nil
		}
		if errors.Is(err, client.ErrConflict) {
			g.counts.markConflicts.Add(1)
			return err
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
	return err
}

func (g *gatewaySource) back(ctx context.Context, t ticket, recorded bool) error {
	g.counts.calls.Add(1)
	var options []client.MarkOption
	if recorded {
		options = append(options, client.Unsent())
	}
	_, err := g.c.MarkRecyclable(ctx, t.hold, "not sent", options...)
	return ended(err)
}

func (g *gatewaySource) failed(context.Context, ticket) {}

func (g *gatewaySource) extend(ctx context.Context, t ticket, hold time.Duration) {
	g.counts.calls.Add(1)
	_, _ = g.c.Extend(ctx, t.hold, hold)
}

// within executes spend in WithNonce.
func (g *gatewaySource) within(ctx context.Context, p *payment, plan plan, spend func(context.Context, ticket, func(string) error) (string, error)) error {
	g.counts.calls.Add(2)
	options := client.NonceOptions{RecordFirst: plan.style == withinFirst}
	if plan.named {
		options.RequestID = plan.requestID
	}
	err := g.c.WithNonce(ctx, g.signer(p.account), options, func(ctx context.Context, n *client.HeldNonce) (string, error) {
		t := g.ticket(&n.Allocation, plan)
		var record func(string) error
		if plan.style == withinFirst {
			record = func(hash string) error {
				err := n.Signed(ctx, hash)
				if errors.Is(err, client.ErrConflict) {
					return errors.Join(errRefused, err)
				}
				return err
			}
		}
		hash, err := spend(ctx, t, record)
		if err == nil && plan.mishap == forget {
			return "", errors.New("forgotten")
		}
		return hash, err
	})
	return ended(err)
}
