// Command loadtest makes load for a gateway and measures it.
//
//	loadtest run    loads one server and reports what it acknowledged
//	loadtest bench  starts a database, the gateway and its reference servers, and
//	                measures them side by side
//
// The generator shares the processors with what it measures, so it is built to
// cost little: a burst of requests is one prepared buffer and one system call,
// replies are counted without being decoded, and no request allocates.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = "usage: loadtest run|bench [flags]; -h after either lists them"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "run":
		return runCommand(ctx, args[1:], out)
	case "bench":
		return benchCommand(ctx, args[1:], out)
	}
	return fmt.Errorf("unknown command %q; %s", args[0], usage)
}

// runCommand loads one server. A run in which nothing was acknowledged is an
// error.
func runCommand(ctx context.Context, args []string, out io.Writer) error {
	l := defaultLoad
	flags := flag.NewFlagSet("loadtest run", flag.ContinueOnError)
	flags.StringVar(&l.url, "url", "ws://127.0.0.1:8080/ws", "`address` of the server")
	asJSON := flags.Bool("json", false, "report as JSON")
	l.register(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	r, err := l.run(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		err = writeJSON(out, r)
	} else {
		_, err = io.WriteString(out, r.String())
	}
	if err == nil && r.Acknowledged == 0 {
		err = errors.New("nothing was acknowledged")
	}
	return err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
