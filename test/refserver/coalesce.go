package main

import (
	"net"
	"sync"
)

// coalescingListener makes its connections hold what is written until the next read that has to ask the kernel. A server that reads
// a frame, answers it and reads on thereby answers all frames of its read buffer by one system call, once durable returns: an error
// of it ends the connection instead.
type coalescingListener struct {
	net.Listener
	durable func() error
}

// Accept implements net.Listener.
func (l coalescingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &coalescingConn{Conn: conn, durable: l.durable}, nil
}

// coalescingConn is such a connection. Before the upgrade net/http reads in the
// background while the handler writes, hence the lock.
type coalescingConn struct {
	net.Conn
	durable func() error
	mu      sync.Mutex // guards pending
	pending []byte
}

// Write implements io.Writer by remembering p.
func (c *coalescingConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, p...)
	return len(p), nil
}

// Read implements io.Reader; what was written leaves first.
func (c *coalescingConn) Read(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Close implements io.Closer; what was written leaves first.
func (c *coalescingConn) Close() error {
	c.flush() // the connection ends in any case
	return c.Conn.Close()
}

func (c *coalescingConn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return nil
	}
	if err := c.durable(); err != nil {
		c.pending = nil
		return err
	}
	_, err := c.Conn.Write(c.pending)
	c.pending = c.pending[:0]
	return err
}
