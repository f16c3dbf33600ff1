//go:build unix

package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/guarded"
)

// flushTimeout bounds the emptying of a server after a test.
const flushTimeout = 30 * time.Second

// Main runs a package's tests beside one server, which *server points at meanwhile, and returns the exit code:
//
//	var server *redistest.Server
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }
//
// It fails the run when the server cannot be started, or when the tests leave goroutines behind beyond those that options ignore.
func Main(m *testing.M, server **Server, options ...goleak.Option) int {
	return guarded.Main(m, server, func() (*Server, error) { return Start() }, options...)
}

// Dial makes a client of this server, without retries, because a command whose answer was lost may have run; contexts bound its calls.
// The caller must Close it.
func (s *Server) Dial() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), Password: s.password, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
}

// Client is Dial for one test. It is closed, and the server emptied, when the test ends, so a test that stops the server must have it
// run again by then.
func (s *Server) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := s.Dial()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), flushTimeout)
		defer cancel()
		if err := client.FlushAll(ctx).Err(); err != nil {
			t.Errorf("empty Redis: %v", err)
		}
		expect.Check(t, client.Close())
	})
	return client
}
