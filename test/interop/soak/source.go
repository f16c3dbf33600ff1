package main

import (
	"context"
	"errors"
	"time"

	"noncegate/client"
)

// ticket is a nonce that a worker was given.
type ticket struct {
	nonce    uint64
	hold     client.Hold
	deadline time.Time // when the hold ends; zero: never
	style    style
}

// source is where a worker's nonces come from: the connection of one worker, which it
// loses when it crashes. An error that matches errEndedHold says that the request id is
// used up, and that the payment needs another one.
type source interface {
	// take gives a nonce of an account.
	take(ctx context.Context, p *payment, plan plan) (ticket, error)
	// record says which transaction is about to be sent. errRefused: it must not be.
	record(ctx context.Context, t ticket, hash string) error
	// used says that a transaction was sent.
	used(ctx context.Context, t ticket, hash string) error
	// back says that none was sent and none will be. recorded: record was called.
	back(ctx context.Context, t ticket, recorded bool) error
	// failed says that sending has failed, or takes very long.
	failed(ctx context.Context, t ticket)
	// close ends all calls.
	close()
}

var (
	errEndedHold = errors.New("the request id is used up")
	errRefused   = errors.New("refused: the transaction must not be sent")
	errCrash     = errors.New("the worker has crashed")
	errEnded     = errors.New("the run has ended")
)
