//go:build unix && !linux

package guarded

import (
	"net"
	"strconv"
)

// reserve only looks whether anybody listens on the port.
func reserve(port int) error {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return ln.Close()
}
