// Command refserver is what the gateway is measured against: servers of the
// same protocol and the same codec that do less, or do it plainly.
//
//	refserver echo           answers without doing anything: one read, one decode,
//	                         one write a frame, buffers of 1 KiB
//	refserver floor          answers once the request is on disk: requests are appended
//	                         to a file that is there in full, one fdatasync is for all
//	                         that came during the one before, and the answers of one
//	                         connection leave in one write
//	refserver naive          each request is one Postgres transaction that locks
//	                         the signer's row
//	refserver redis-incr     nonce_allocate is one INCR of a Redis, nonce_markUsed
//	                         one HSET of nonce and transaction hash
//
// They know nonce_allocate and nonce_markUsed only, keep no promise of the gateway, and listen on the loopback address unless told
// otherwise. echo is a plain gorilla server as its users write it; floor is the least that a durable answer costs; naive is what a
// competent programmer writes first; redis-incr is what is proposed instead of a database.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"noncegate/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "refserver:", err)
		os.Exit(1)
	}
}

// options are the settings of all kinds; each store is of one kind.
type options struct {
	listen   string
	dir      string
	database string
	redis    string
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: refserver echo|floor|naive|redis-incr [flags]")
	}
	kind := args[0]
	var o options
	flags := flag.NewFlagSet("refserver "+kind, flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8090", "`address` to serve /ws on")
	flags.StringVar(&o.dir, "dir", "", "floor: `folder` of the log (default that for temporary files)")
	flags.StringVar(&o.database, "database", "", "naive: postgres:// `URL`; the tables are made")
	flags.StringVar(&o.redis, "redis", "", "redis-incr: redis:// or unix:// `URL`")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	s, err := newServer(ctx, kind, o)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	ln, err := net.Listen("tcp", o.listen)
	if err != nil {
		s.close()
		return err
	}
	fmt.Printf("refserver %s on ws://%s/ws\n", kind, ln.Addr())
	return s.serveOn(ctx, ln)
}

// pool is how many connections naive and redis-incr have to their store. So many commits of naive share their fsync that more did not help;
// Redis runs one command at a time.
const pool = 32

func newServer(ctx context.Context, kind string, o options) (s *server, err error) {
	if err := wire.WarmUp(); err != nil {
		return nil, err
	}
	s = &server{backend: echo{}, readBuffer: bufferBytes}
	switch kind {
	case "echo":
	case "floor":
		s.readBuffer = coalesceBytes
		s.log, err = openLog(o.dir)
	case "naive":
		s.backend, err = newNaive(ctx, o.database)
	case "redis-incr":
		s.backend, err = newRedisIncr(ctx, o.redis)
	default:
		err = errors.New("unknown kind: want echo, floor, naive or redis-incr")
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
