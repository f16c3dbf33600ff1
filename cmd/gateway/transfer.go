package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"noncegate/internal/transfer"
	"noncegate/lease"
	"noncegate/nonce"
)

// exported is what an export needs of a store.
type exported interface {
	nonce.Exporter
	Close() error
}

// exportCmd writes the signers of a store to a file.
type exportCmd struct {
	To      string `arg:"" name:"file" help:"The file, which must not be there yet; - is the standard output."`
	History bool   `help:"Also what is kept of consumed nonces."`
	keyStoreCmd
}

// Run implements the command.
func (c *exportCmd) Run(ctx context.Context, p *program) error {
	s, err := c.open(ctx, c.Logger(p.stderr), false)
	if err != nil {
		return err
	}
	from := s.(exported) // both stores are, and a SQLite file beside its gateway
	counts, err := c.export(ctx, p, from)
	if err = errors.Join(err, from.Close()); err != nil {
		return fmt.Errorf("nothing was exported: %w", err)
	}
	return c.said(p, "exported", counts)
}

func (c *exportCmd) export(ctx context.Context, p *program, from exported) (counts transfer.Counts, err error) {
	if live := liveNodes(ctx, from); live != "" {
		fmt.Fprintf(p.stderr, "gateway: %s serves this store and goes on handing out its nonces: "+
			"stop all its gateways and export again before another store serves these signers\n", live)
	}
	if c.To == "-" {
		return transfer.Export(ctx, from, c.storeName(), c.History, p.stdout)
	}
	err = newFile(c.To, func(w io.Writer) error {
		counts, err = transfer.Export(ctx, from, c.storeName(), c.History, w)
		return err
	})
	return counts, err
}

// newFile writes a file that is not there yet. What was begun and failed is removed.
func newFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // #nosec G304 -- the file that the operator named
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// liveNodes names a node that serves the store, "" without any.
func liveNodes(ctx context.Context, s exported) string {
	registry, ok := s.(lease.Registry)
	if !ok {
		return "another process" // a SQLite file beside the gateway that has it
	}
	nodes, _, err := registry.Nodes(ctx)
	if err != nil {
		return "" // the export comes to the same error
	}
	for _, n := range nodes {
		if n.Live {
			return "node " + n.Node
		}
	}
	return ""
}

// importCmd takes the signers of a file into a store.
type importCmd struct {
	From string `arg:"" name:"file" help:"What gateway export wrote; - is the standard input."`
	keyStoreCmd
}

// Run implements the command. A SQLite file that a gateway has is refused: its commits would wait for the import.
func (c *importCmd) Run(ctx context.Context, p *program) error {
	from := os.Stdin
	if c.From != "-" {
		f, err := os.Open(c.From)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	to, err := openStore(ctx, &c.StoreConfig, c.Logger(p.stderr))
	if err != nil {
		return err
	}
	counts, err := transfer.Import(ctx, from, to.(nonce.KeptStore)) // both stores are
	unknown := false
	if failed, ok := errors.AsType[*nonce.StoreError](err); ok {
		unknown = failed.Outcome == nonce.Unknown
	}
	switch err = errors.Join(err, to.Close()); {
	case unknown:
		return fmt.Errorf("whether the signers were imported is unknown; importing them again tells: %w", err)
	case err != nil:
		return fmt.Errorf("nothing was imported: %w", err)
	}
	return c.said(p, "imported", counts)
}

// storeName is the engine of the store, as gateway_info shows it.
func (c *keyStoreCmd) storeName() string {
	if _, embedded := c.SQLitePath(); embedded {
		return "sqlite"
	}
	return "postgres"
}

// said prints what was done, beside an export on the standard output.
func (c *keyStoreCmd) said(p *program, done string, n transfer.Counts) error {
	if c.JSON {
		return printJSON(p.stderr, n)
	}
	_, err := fmt.Fprintf(p.stderr, "%s %d signers with %d open nonces, %d remembered requests, "+
		"%d transactions under way and %d rows of history\n", done, n.Signers, n.Open, n.Requests, n.Sent, n.History)
	return err
}
