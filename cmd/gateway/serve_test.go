package main

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

func TestAHostThatDoesNotExistIsToldFromOneThatIsAway(t *testing.T) {
	missing := &net.DNSError{Err: "no such host", Name: "HOST", IsNotFound: true}
	slow := &net.DNSError{Err: "i/o timeout", Name: "HOST", IsTimeout: true}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{fmt.Errorf("hostname resolving error: %w", missing), true},
		{errors.Join(missing, missing), true},
		{errors.Join(missing, refused), false}, // of two hosts one exists
		{slow, false},
		{refused, false},
		{nil, false},
	} {
		if got := noSuchHost(c.err); got != c.want {
			t.Errorf("%v: got %v", c.err, got)
		}
	}
}
