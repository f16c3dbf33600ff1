//go:build unix

// Package e2e runs gateways as processes, on a real PostgreSQL or on a file, and speaks the protocol to them as any client would.
// The packages below it have the tests, which wait for answers, never for a time to pass; wait.Patience only bounds them.
//
// Its functions fail the test that they are given. What they start ends with that test.
package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// Exit codes of the gateway.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
)

// What Main started for the tests of a package.
var (
	PG   *pgtest.Server
	room *guarded.Room
)

// program is the path of the gateway, which the first test that asks builds: Go's test cache learns of its sources only then.
var program = sync.OnceValues(func() (string, error) { return gateway.Program(context.Background()) })

// Main is the TestMain of a package: it starts a PostgreSQL. Its tests' gateways have the race detector if they have it.
func Main(m *testing.M) {
	code := 1
	var err error
	if room, err = guarded.Open("e2e", nil); err == nil {
		code = pgtest.Main(m, &PG, goleak.IgnoreCurrent())
		err = room.Close()
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
		expect.Check(t, c.Close())
	})
}
