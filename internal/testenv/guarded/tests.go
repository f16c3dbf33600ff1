//go:build unix

package guarded

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests beside one server, which *server points at meanwhile,
// and returns the exit code. It fails the run when the server cannot be started, or
// when the tests leave goroutines behind beyond those that options ignore.
func Main[S io.Closer](m *testing.M, server *S, start func() (S, error), options ...goleak.Option) int {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*server = s
	code := m.Run()
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// FreePort finds a port nobody listens on; see FreeAddr.
func FreePort() (int, error) {
	addr, err := FreeAddr()
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return strconv.Atoi(port)
}

// FreeAddr finds an address of the loopback interface that nobody listens on, below the range
// that the usual systems take ports of outgoing connections, and of listeners that leave the
// choice to them, from: neither a client that dials a stopped server nor another server takes
// the port.
func FreeAddr() (string, error) {
	var err error
	for range 50 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(17000)))
		var ln net.Listener
		if ln, err = net.Listen("tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}
