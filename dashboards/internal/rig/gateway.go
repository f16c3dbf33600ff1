//go:build unix

package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"noncegate/internal/testenv/gateway"
	"noncegate/internal/testenv/guarded"
)

// Gateway is a gateway under watch.
type Gateway struct {
	WS      string // URL for clients
	Admin   string // host:port of /metrics
	process *gateway.Gateway
}

// startGateway starts the program as the node of that name in the room, on the store
// that the URL names, with the flags given, and returns once it serves. Stop ends it; so
// does the end of the room.
func startGateway(ctx context.Context, room *guarded.Room, program, node, store string, flags ...string) (*Gateway, error) {
	g, err := gateway.Start(ctx, room, gateway.Config{
		Program: program, Log: node + ".log", Args: append([]string{"--node-id=" + node, "--store=" + store}, flags...),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", node, err)
	}
	return &Gateway{WS: g.URL, Admin: strings.TrimPrefix(g.Admin, "http://"), process: g}, nil
}

// Stop lets the gateway drain and waits for its end.
func (g *Gateway) Stop() error { return g.process.Stop() }

// endTime is how long a program may take to end in order.
const endTime = 20 * time.Second

// again is how often a program is asked again for what must come.
const again = 50 * time.Millisecond

// errNotYet is the answer to whoever asks too early.
var errNotYet = errors.New("not yet")

// tail is the end of a text, for errors.
func tail(text []byte) []byte { return bytes.TrimSpace(text[max(0, len(text)-2000):]) }

func end(p *guarded.Process, what string) error {
	if err := p.End(syscall.SIGTERM, endTime); err != nil {
		return fmt.Errorf("end %s: %w", what, err)
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s ended with %w\n%s", what, err, p.LogTail(2000))
	}
	return nil
}
