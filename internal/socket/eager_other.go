//go:build !unix

package socket

import "net"

// eager is what sockets of Unix systems are read and written with; see there.
type eager struct{}

func newEager(net.Conn) *eager                      { return nil }
func (e *eager) Read(net.Conn, []byte) (int, error) { panic("socket: no eager sockets here") }
func (e *eager) await() bool                        { panic("socket: no eager sockets here") }
func (e *eager) peek() []byte                       { panic("socket: no eager sockets here") }
func (e *eager) skip(int)                           { panic("socket: no eager sockets here") }
func (e *eager) buffered() bool                     { panic("socket: no eager sockets here") }
func (e *eager) TryWrite([]byte) int                { panic("socket: no eager sockets here") }
