//go:build unix

package guarded

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a port nobody listens on; see FreeAddr.
func FreePort() (int, error) {
	var err error
	for range 50 {
		port := 15000 + rand.IntN(17000)
		if err = reserve(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// FreeAddr finds an address of the loopback interface that nobody listens on, below the range that the usual systems take ports of
// outgoing connections, and of listeners that leave the choice to them, from: neither a client that dials a stopped server nor
// another server takes the port. On Linux no other caller is given it as long as this process lives, whichever process asks.
func FreeAddr() (string, error) {
	port, err := FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}
