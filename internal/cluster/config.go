package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Config holds the settings of a Router. The zero value of a field means its
// default.
type Config struct {
	// Forward says whether ops are forwarded at all. Without it Reaches is false for
	// every node, Forward refuses, and links are opened for events only.
	Forward bool
	// TLS is how nodes are reached whose URL is wss, and asked for at each attempt.
	// nil: with the authorities of the system.
	TLS func() *tls.Config
	// Secret is what the nodes of one cluster prove each other by. Without one
	// nodes are reached, and accepted, over loopback only.
	Secret string
	// Known: clients must say who they are. What is on this host is no node for that
	// without a secret: as one it would be asked for no credential, and would have every right.
	Known bool
	// Store tells the store from others, as it is now: a node of another store, whatever
	// its id, must not serve what is forwarded here. nil: it is not compared.
	Store func() string
	// Queue is how many ops may be under way at one other node, those included
	// that wait for their link, and how many requests of one other node may be unanswered
	// here. More means more memory and longer waits before a
	// client is told that a node is overloaded. Default 4096.
	Queue int
	// MaxTotal bounds the unanswered requests of all other nodes. Default four times Queue.
	MaxTotal int
	// Refused is told why a node was not let in: one of the constants of that name. It must not
	// block. nil: nobody counts.
	Refused func(reason string)
	// Timeout bounds the time from Forward to the end of an op. A node that says
	// nothing for three quarters of it counts as lost. Default 5 s.
	Timeout time.Duration
	// NetDial opens the connections beneath, instead of a net.Dialer.
	NetDial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// complete fills in the defaults and checks what is left.
func (c Config) complete() (Config, error) {
	if c.TLS == nil {
		c.TLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	if c.NetDial == nil {
		c.NetDial = new(net.Dialer).DialContext
	}
	c.Queue = cmp.Or(c.Queue, 4096)
	c.MaxTotal = cmp.Or(c.MaxTotal, 4*c.Queue)
	if c.Refused == nil {
		c.Refused = func(string) {}
	}
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	switch {
	case c.Queue < 1:
		return c, fmt.Errorf("cluster: Queue (%d) is below 1", c.Queue)
	case c.MaxTotal < c.Queue:
		return c, fmt.Errorf("cluster: MaxTotal (%d) is below Queue (%d)", c.MaxTotal, c.Queue)
	case c.Timeout < 100*time.Millisecond:
		return c, errors.New("cluster: Timeout must be at least 100 ms")
	}
	return c, nil
}

// The parts of Timeout. A node whose kernel still takes bytes but which has hung is
// found by silence: its ops come back as doubtful before they are too old.
func (c *Config) silence() time.Duration     { return c.Timeout * 3 / 4 }
func (c *Config) pingEvery() time.Duration   { return c.Timeout / 4 }
func (c *Config) dialTimeout() time.Duration { return c.Timeout / 2 } // nothing that waits for a dial gets too old
func (c *Config) writeTime() time.Duration   { return c.Timeout / 2 }
func (c *Config) tick() time.Duration        { return c.Timeout / 16 }

// lastWords is how long the reader goes on after the writer gave up: the other node
// may have said why it closed.
func (c *Config) lastWords() time.Duration { return c.Timeout / 16 }

func (c *Config) database() string {
	if c.Store == nil {
		return ""
	}
	return c.Store()
}
