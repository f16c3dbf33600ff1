//go:build unix

// Package e2e runs gateways as processes, on a real PostgreSQL or on a file, and speaks the protocol to them as any client would.
// The packages below it have the tests, which wait for answers, never for a time to pass; Patience only bounds them.
//
// Its functions fail the test that they are given. What they start ends with that test.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// Patience is how long a test waits for what must come.
const Patience = 30 * time.Second

// eager is how often a test asks again for what must come.
const eager = 5 * time.Millisecond

// Exit codes of the gateway.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// What Main started and built for the tests of a package.
var (
	PG      *pgtest.Server
	room    *guarded.Room
	program string // path of the gateway
)

// Main is the TestMain of a package: it builds a gateway, with the race detector if the tests have it, and starts a PostgreSQL.
func Main(m *testing.M) {
	var err error
	if room, err = guarded.Open("e2e", nil); err == nil {
		program, err = gateway.Program(context.Background())
	}
	code := 1
	if err == nil {
		code = pgtest.Main(m, &PG, goleak.IgnoreCurrent())
	}
	if room != nil {
		err = errors.Join(err, room.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// CloseLater closes at the end of the test.
func CloseLater(t testing.TB, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
