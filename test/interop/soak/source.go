package main

import (
	"context"
	"errors"
	"time"

	"noncegate/client"
)

// ticket is a nonce that a worker was given.
type ticket struct {
	nonce uint64
	hold  client.Hold
	first bool // record the hash, then send; else send, then mark
}

// source is where a worker's nonces come from: the connection of one worker, which it loses when it crashes. An error that matches
// errEndedHold says that the request id is used up, and that the payment needs another one.
type source interface {
	take(ctx context.Context, p *payment, plan plan) (ticket, error)
	record(ctx context.Context, t ticket, hash string) error  // before sending; errRefused: it must not be sent
	used(ctx context.Context, t ticket, hash string) error    // it was sent
	back(ctx context.Context, t ticket, recorded bool) error  // none was sent and none will be
	extend(ctx context.Context, t ticket, hold time.Duration) // it is to be held for longer
	failed(ctx context.Context, t ticket)                     // sending has failed, or takes very long
	close()                                                   // ends all calls
}

var (
	errEndedHold = errors.New("the request id is used up")
	errRefused   = errors.New("refused: the transaction must not be sent")
	errCrash     = errors.New("the worker has crashed")
)

// gatewaySource is a worker's connection to the gateways.
type gatewaySource struct {
	*soak
	c *client.Client
}

// dialGateways connects to whichever gateway answers first.
func (s *soak) dialGateways(ctx context.Context, first int) (*client.Client, error) {
	url := func(i int) string { return "ws://" + s.gateways[i%len(s.gateways)].listen + "/ws" }
	return client.Dial(ctx, url(first), client.Config{
		URLs: []string{url(first + 1)}, DialTimeout: 2 * time.Second,
		BackoffMin: 50 * time.Millisecond, BackoffMax: 500 * time.Millisecond, RetryMax: 300 * time.Millisecond,
		MaxElapsed: 4 * time.Second, MarkTimeout: 4 * time.Second, EventBuffer: 4096,
	})
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
	a, err := g.c.Allocate(ctx, client.AllocateRequest{Signer: g.signer(p.account), RecordFirst: plan.first, RequestID: plan.requestID})
	if err != nil {
		return ticket{}, ended(err)
	}
	if a.Reissued != nil {
		g.happens("handed out again")
	}
	return ticket{nonce: uint64(a.Nonce), hold: a.Hold(), first: plan.first}, nil
}

// record asks until it is known whether the transaction may be sent.
func (g *gatewaySource) record(ctx context.Context, t ticket, hash string) error {
	for {
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
		_, err = g.c.MarkUsed(ctx, t.hold, hash)
		if errors.Is(err, client.ErrConflict) {
			g.happens("marks in conflict")
			return err
		}
		if err == nil || !sleep(ctx, 200*time.Millisecond) {
			return err
		}
	}
	return err
}

func (g *gatewaySource) back(ctx context.Context, t ticket, recorded bool) error {
	var options []client.MarkOption
	if recorded {
		options = append(options, client.Unsent())
	}
	_, err := g.c.MarkRecyclable(ctx, t.hold, "not sent", options...)
	return ended(err)
}

func (g *gatewaySource) failed(context.Context, ticket) {}

func (g *gatewaySource) extend(ctx context.Context, t ticket, hold time.Duration) {
	_, _ = g.c.Extend(ctx, t.hold, hold)
}
