//go:build !unix

package ws

import "net"

// eager is what sockets of Unix systems are read and written with; see there.
type eager struct{}

func newEager(net.Conn) *eager                      { return nil }
func (e *eager) Read(net.Conn, []byte) (int, error) { panic("ws: no eager sockets here") }
func (e *eager) await() bool                        { panic("ws: no eager sockets here") }
func (e *eager) peek() []byte                       { panic("ws: no eager sockets here") }
func (e *eager) skip(int)                           { panic("ws: no eager sockets here") }
func (e *eager) buffered() bool                     { panic("ws: no eager sockets here") }
func (e *eager) TryWrite([]byte) int                { panic("ws: no eager sockets here") }
