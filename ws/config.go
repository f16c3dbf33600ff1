package ws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"noncegate/internal/access"
	"noncegate/internal/access/audit"
	"noncegate/internal/access/quota"
	"noncegate/internal/guard"
	"noncegate/nonce"
	"noncegate/wire"
	"noncegate/writer"
)

// Config are the settings of a Server.
type Config struct {
	// Auth lets clients in. It must live until Stop has returned. nil: every client is
	// let in, and has every right.
	Auth access.Authenticator
	// Origins says which pages of browsers may connect. The zero Origins: those of the host
	// that is asked. New sets its Addresses.
	Origins Origins
	// Addresses bounds what comes from one address. It applies only with Auth. 0 in any of
	// its fields: no limit.
	Addresses quota.AddressConfig
	// Signers bounds what is asked of one signer by the clients of this node. The zero
	// SignerConfig: no limit.
	Signers quota.SignerConfig
	// Audit is told which principal did what. nil: there is no audit.
	Audit *audit.Log

	// Bounds are those of the connections of /ws.
	Bounds
	// MaxConnections bounds the open connections; more are told 503. Required.
	MaxConnections int
	// MaxReceiveBytes bounds the messages above 8 KiB of all clients that are being received,
	// or, of a Room, are not answered yet. With authentication principals have equal parts of
	// three quarters of it. More messages wait unread, also those of a principal that has its
	// part. 0: 64 MiB. At least the longest message.
	MaxReceiveBytes int64
	// MaxBatch bounds the elements of a JSON-RPC array. Required.
	MaxBatch int
	// MaxSubscriptions bounds the subscriptions of one connection. Required.
	MaxSubscriptions int

	// SendBuffer bounds what the kernel holds for a client that does not read, in
	// bytes (Linux takes twice as much); 0: as much as the kernel likes. Less
	// notices slow clients sooner and slows down fast ones that are far away: at
	// most one buffer a round trip.
	SendBuffer int

	// MinHold and MaxHold bound holdMs. Both are required.
	MinHold, MaxHold time.Duration

	// PingInterval is the time between two pings; a peer silent for 2.5 of them
	// is dropped. Shorter notices dead peers sooner and costs each live one a
	// wake-up. Required.
	PingInterval time.Duration
	// FirstTimeout is how long the first bytes after the upgrade may take; those of
	// a pong will do, and there is a ping after half of it. 0: no limit.
	FirstTimeout time.Duration
	// MessageTimeout is how long a frame, or a message in several, may take from its
	// first byte to its last. Shorter cuts off clients on slow links; 0: no limit.
	MessageTimeout time.Duration
	// IdleTimeout is how long a connection may go without a request. One that waits
	// for answers or subscribes is not idle. 0: no limit.
	IdleTimeout time.Duration
	// CloseSpread is the time over which Drain closes connections, so that their
	// clients do not all reconnect at once. Requests are served meanwhile. 0: those that are
	// idle are closed at once.
	CloseSpread time.Duration

	// Info describes the gateway, for gateway_info. It must not block. Required.
	Info func() wire.InfoResult

	// Writer configures the queues to the clients. Required, but for its OnEncodeError, which New sets.
	Writer writer.Config

	// Guard has the locks of calls that are guarded against being made twice at a
	// time. It must live until the service has stopped. nil: a call with a guard is
	// refused.
	Guard *guard.Guard
	// GuardCalls guards the calls of clients that name no guard, by what they ask
	// for, and bounds how long; 0: they are not guarded.
	GuardCalls time.Duration
	// Chain is asked what blockchains say of signers. nil: no chain is configured.
	Chain nonce.Chain
	// ExampleChain is the chain in the error for a client that names an address without one,
	// such as eip155:10. "": Ethereum's own.
	ExampleChain string

	// Met is told the name of the principal of each client that is let in. It must not
	// block. It may be nil.
	Met func(principal string)

	// AwaitInterest returns when the other nodes have taken what the hub's
	// Interest is, or when ctx ends. It is called in a connection's read
	// goroutine before a subscription is answered. It may be nil.
	AwaitInterest func(ctx context.Context)
}

// setDefaults sets what follows from other settings.
func (c *Config) setDefaults() {
	c.MaxReceiveBytes = cmp.Or(c.MaxReceiveBytes, 64<<20)
	c.Origins.Addresses = c.Auth == nil
}

// validate names the settings that are wrong or contradict each other.
func (c *Config) validate() error {
	switch {
	case c.MaxConnections < 1, c.MaxBatch < 1, c.MaxSubscriptions < 1, c.MaxInflight < 1:
		return errors.New("max connections, in-flight requests, batch and subscriptions must be at least 1")
	case c.MinHold <= 0 || c.MaxHold < c.MinHold:
		return fmt.Errorf("the longest hold of %v must not be below the shortest of %v", c.MaxHold, c.MinHold)
	case c.PingInterval <= 0 || c.CloseSpread < 0:
		return errors.New("the ping interval must be above 0, and the close spread not below")
	case c.Writer.Marks.Max < largeReplyBytes+maxIDBytes:
		return fmt.Errorf("a cap of %d bytes for a connection is below %d, what a single reply may need",
			c.Writer.Marks.Max, largeReplyBytes+maxIDBytes)
	case c.FirstTimeout < 0 || c.MessageTimeout < 0 || c.IdleTimeout < 0:
		return errors.New("the timeouts of a first message, of a message and of an idle connection must not be below 0")
	case c.Info == nil:
		return errors.New("nobody to ask for gateway_info")
	case c.GuardCalls != 0 && (c.Guard == nil || c.GuardCalls < guard.MinInterval || c.GuardCalls > guard.MaxInterval):
		return fmt.Errorf("calls guarded for %v: a guard is needed, and %v to %v", c.GuardCalls, guard.MinInterval, guard.MaxInterval)
	}
	return cmp.Or(c.Bounds.validate(c.MaxBatch, c.MaxReceiveBytes), c.Writer.Validate())
}
