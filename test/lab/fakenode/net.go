package fakenode

import (
	"context"
	"errors"
	"net"
	"sync"
)

// Net is a network in memory: what listens is found by its address, and nothing else is
// reached. It works in a bubble of testing/synctest.
type Net struct {
	mu        sync.Mutex
	listeners map[string]*listener
}

// NewNet returns a network without anybody.
func NewNet() *Net { return &Net{listeners: map[string]*listener{}} }

// Dial connects to an address; it fits a net.Dialer's DialContext.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	n.mu.Unlock()
	if l != nil {
		here, there := net.Pipe()
		select {
		case l.conns <- there:
			return here, nil
		case <-l.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection to " + addr + " refused")}
}

// listen takes the connections to an address.
func (n *Net) listen(host string) *listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &listener{host: host, conns: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[host] = l
	return l
}

// listener is its own address.
type listener struct {
	host   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr  { return l }
func (l *listener) Network() string { return "memory" }
func (l *listener) String() string  { return l.host }
