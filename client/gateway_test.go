package client

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"noncegate/internal/wsconn/wspeer"
	"noncegate/test/lab/expect"
	"noncegate/wire"
)

func TestMain(m *testing.M) {
	os.Unsetenv("HTTP_PROXY") // the names of the tests' network are not for a proxy
	os.Unsetenv("http_proxy")
	goleak.VerifyTestMain(m)
}

type (
	network  = wspeer.Network
	peer     = wspeer.Peer
	received = wspeer.Request
)

// refusals are the sentinels of all codes.
var refusals = []error{
	ErrParse, ErrInvalidRequest, ErrMethodNotFound, ErrInvalidParams, ErrInternal, ErrServerBusy, ErrNotOwner, ErrFenced,
	ErrUnavailable, ErrConflict, ErrNotFound, ErrHoldLimit, ErrDuplicateSubmit, ErrUnauthorized, ErrForbidden, ErrDraining,
}

func busy(p *peer, r received, retryAfterMs int64) {
	p.T.Helper()
	p.Reject(r, wire.CodeServerBusy, "server_busy", wire.ErrorData{Stage: wire.StageWorker, RetryAfterMs: retryAfterMs})
}

func closeWith(p *peer, code int) { p.Close(code, "as the test says") }

// story runs a test in fake time with a client of host "a", whose first
// connection is p.
func story(t *testing.T, cfg Config, tell func(t *testing.T, n *network, c *Client, p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := wspeer.New(t, "a", "b")
		cfg.NetDial = n.Dial
		c, err := Dial(t.Context(), "ws://a", cfg)
		expect.Must(t, err)
		t.Cleanup(func() { c.Close() })
		tell(t, n, c, <-n.Host("a").Peers)
	})
}

// later runs a call in a goroutine; the function it returns waits for its end.
func later[T any](call func() (T, error)) func() (T, error) {
	type end struct {
		result T
		err    error
	}
	done := make(chan end, 1)
	go func() {
		result, err := call()
		done <- end{result, err}
	}()
	return func() (T, error) {
		e := <-done
		return e.result, e.err
	}
}

// finish fails unless calls end well.
func finish[T any](t *testing.T, waits ...func() (T, error)) {
	t.Helper()
	for _, wait := range waits {
		if _, err := wait(); err != nil {
			t.Error(err)
		}
	}
}

func allocate(t *testing.T, c *Client, r AllocateRequest) func() (Allocation, error) {
	if r.Signer == "" {
		r.Signer = "s"
	}
	return later(func() (Allocation, error) { return c.Allocate(t.Context(), r) })
}

func held(nonce int64) wire.AllocateResult {
	return wire.AllocateResult{Signer: "s", Nonce: nonce, Attempt: 1, FencingToken: 7, HoldMs: 60_000}
}

// requestID is the one of a request to allocate.
func requestID(t *testing.T, r received) string {
	t.Helper()
	return wspeer.Decode[wire.AllocateParams](t, r).RequestID
}

// wantUnknown asserts that err says the outcome is unknown, and nothing else.
func wantUnknown(t *testing.T, err error) *UnknownOutcomeError {
	t.Helper()
	u, ok := errors.AsType[*UnknownOutcomeError](err)
	if !ok {
		t.Fatalf("got error %v, want an unknown outcome", err)
	}
	if _, ok := errors.AsType[*NotSentError](err); ok {
		t.Fatalf("error %v is unknown and says that nothing happened", err)
	}
	return u
}
