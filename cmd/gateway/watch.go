package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"noncegate/client"
	"noncegate/wire"
)

// watchBuffer is how many events wait for standard output. When it is full the
// next ones are dropped, and the line after them says how many.
const watchBuffer = 4096

type watchCmd struct {
	Signers []string `arg:"" optional:"" sep:"none" name:"signer" help:"Signers to watch. Without one, all."`
	GatewayURL
}

// Run implements the command. It ends without an error when ctx does. The client
// comes back by itself when the connection is lost.
func (c *watchCmd) Run(ctx context.Context, p *program) error {
	log := slog.New(slog.NewTextHandler(p.stderr, nil))
	gateway, err := c.dial(ctx, client.Config{Logger: log, EventBuffer: watchBuffer})
	if err != nil {
		return err
	}
	defer gateway.Close()
	sub, err := gateway.Subscribe(ctx, c.Signers...)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-sub.Events():
			if !ok {
				return sub.Err()
			}
			if err := printEvent(p.stdout, log, &e); err != nil {
				return err
			}
		}
	}
}

// printEvent writes the event to w, and what is missing before it to the log.
func printEvent(w io.Writer, log *slog.Logger, e *client.Event) error {
	if e.Gap {
		log.Warn("the subscription was interrupted, any number of events may be missing")
	}
	if e.Missed > 0 {
		log.Warn("events are missing", "missed", e.Missed)
	}
	if e.Type == "" {
		return nil
	}
	line, err := wire.Marshal(&e.Event)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", line)
	}
	return err
}
