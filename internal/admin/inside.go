package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"noncegate/client"
	"noncegate/internal/access"
	"noncegate/ws"
)

// inside is the way from the admin API to this gateway's own clients' side: what an operator does to a signer is a call
// of that principal, with its rights, quotas, order, forwarding and audit.
type inside struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInside() *inside { return &inside{conns: make(chan net.Conn), closed: make(chan struct{})} }

// insideTime bounds what one request to the admin API asks there, with the repeats of what is refused for a moment.
const insideTime = 10 * time.Second

// insideConn is one connection, for one request.
type insideConn struct {
	net.Conn
	by caller
}

// RemoteAddr is the address of the caller.
func (c insideConn) RemoteAddr() net.Addr { return insideAddr(c.by.address) }

type insideAddr string

func (insideAddr) Network() string  { return "admin" }
func (a insideAddr) String() string { return string(a) }

// Accept implements net.Listener.
func (l *inside) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// halfDone is an error of an act of which a part was done.
type halfDone struct{ error }

// Unwrap returns the cause.
func (e *halfDone) Unwrap() error { return e.error }

// Close implements net.Listener.
func (l *inside) Close() error { l.once.Do(func() { close(l.closed) }); return nil }

// Addr implements net.Listener.
func (l *inside) Addr() net.Addr { return insideAddr("") }

// Inside is what the clients' side must be served on, with ConnContext, beside its own address.
func (a *Server) Inside() net.Listener { return a.inside }

// ConnContext tells the clients' side who asks on a connection of Inside.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return ws.OriginChecked(context.WithValue(ctx, callerKey{}, c.(insideConn).by))
}

// insideFirst is an authenticator that knows the callers of the admin API.
type insideFirst struct{ access.Authenticator }

// Authenticator lets in the callers of the admin API as what they are, and others by clients.
func Authenticator(clients access.Authenticator) access.Authenticator { return insideFirst{clients} }

// Authenticate implements access.Authenticator.
func (f insideFirst) Authenticate(r *http.Request) (*access.Session, error) {
	if by, ok := callerOf(r.Context()); ok {
		return by.session, nil
	}
	return f.Authenticator.Authenticate(r)
}

// asClient returns what fn learns with a client that is the caller of the admin API. The client tells an unknown outcome
// from all other errors. Of a dry run nothing is done.
func asClient[R any](ctx context.Context, a *Server, dryRun bool, fn func(context.Context, *client.Client) (R, error)) (r R, err error) {
	ctx, cancel := context.WithTimeout(ctx, insideTime)
	defer cancel()
	by, _ := callerOf(ctx)
	header := http.Header{}
	if dryRun {
		header.Set(ws.DryRunHeader, "1")
	}
	c, err := client.Dial(ctx, "ws://127.0.0.1/ws", client.Config{
		MaxElapsed: insideTime, OwnerConnections: -1, Header: header,
		NetDial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			near, far := net.Pipe()
			select {
			case a.inside.conns <- insideConn{far, by}:
				return near, nil
			case <-a.inside.closed:
				return nil, net.ErrClosed
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		},
	})
	if err != nil {
		return r, &notDone{err}
	}
	defer c.Close()
	r, err = fn(ctx, c)
	_, half := errors.AsType[*halfDone](err)
	if _, unknown := errors.AsType[*client.UnknownOutcomeError](err); err != nil && !unknown && !half {
		err = &notDone{err}
	}
	return r, err
}
