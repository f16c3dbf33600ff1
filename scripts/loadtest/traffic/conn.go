package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/sync/errgroup"
)

const (
	dialTimeout = 10 * time.Second
	dialers     = 64 // connections being opened at a time
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// dial opens a WebSocket. Its error names the URL. netDial opens the connection beneath; nil: as usual.
func (a Access) dial(ctx context.Context, url string, netDial dialFunc) (*websocket.Conn, error) {
	d := websocket.Dialer{
		HandshakeTimeout: dialTimeout, ReadBufferSize: 4096, WriteBufferSize: 1024, TLSClientConfig: a.TLS, NetDialContext: netDial,
	}
	ws, resp, err := d.DialContext(ctx, url, a.Header)
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%w: %s", err, resp.Status)
		}
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	return ws, nil
}

// openAll opens n connections, or none when one cannot be opened or ctx ends.
func openAll[T io.Closer](ctx context.Context, n int, open func(ctx context.Context, i int) (T, error)) ([]T, error) {
	all, opened := make([]T, n), make([]bool, n)
	opening, openCtx := errgroup.WithContext(ctx)
	opening.SetLimit(dialers)
	for i := range all {
		opening.Go(func() (err error) {
			if openCtx.Err() != nil {
				return context.Cause(openCtx)
			}
			all[i], err = open(openCtx, i)
			opened[i] = err == nil
			return err
		})
	}
	err := opening.Wait()
	if err == nil {
		return all, nil
	}
	for i, c := range all {
		if opened[i] {
			c.Close()
		}
	}
	return nil, err
}

// OpenIdle opens the connections of a load, asks for one nonce on each, and leaves them alone: no ping is answered. release closes them.
func (l Load) OpenIdle(ctx context.Context) (release func(), err error) {
	all, err := openAll(ctx, l.Connections, func(ctx context.Context, i int) (*websocket.Conn, error) {
		ws, err := l.Access.dial(ctx, l.URLs[i%len(l.URLs)], nil)
		if err != nil {
			return nil, err
		}
		if err := firstRequest(ws, allocation(l.Signers.Name(i%l.Signers.Count))); err != nil {
			ws.Close()
			return nil, fmt.Errorf("ask for a nonce: %w", err)
		}
		return ws, nil
	})
	return func() {
		for _, ws := range all {
			ws.Close()
		}
	}, err
}

// firstRequest makes the first request of a connection, and returns an error when that is the answer.
func firstRequest(ws *websocket.Conn, text []byte) error {
	ws.SetReadDeadline(time.Now().Add(dialTimeout))
	defer ws.SetReadDeadline(time.Time{})
	if err := ws.WriteMessage(websocket.TextMessage, text); err != nil {
		return err
	}
	_, payload, err := ws.ReadMessage()
	if err != nil {
		return err
	}
	rep, err := parseReply(payload)
	if err == nil && rep.failed {
		err = errors.New(rep.refusal())
	}
	return err
}

// corked is a connection that keeps what is written between cork and flush, to write it at once. It has no deadline but that of the
// connection beneath. Its writers are to take turns.
type corked struct {
	net.Conn
	on   bool
	kept []byte
}

func (c *corked) Write(p []byte) (int, error) {
	if !c.on {
		return c.Conn.Write(p)
	}
	c.kept = append(c.kept, p...)
	return len(p), nil
}

// SetWriteDeadline does nothing: gorilla sets one, mostly none, before each write.
func (c *corked) SetWriteDeadline(time.Time) error { return nil }

func (c *corked) flush() error {
	c.on = false
	_, err := c.Conn.Write(c.kept)
	c.kept = c.kept[:0]
	return err
}

// goodbye ends a connection in an orderly way; the other side may be gone.
func goodbye(ws *websocket.Conn) {
	ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(lastWords))
	ws.Close()
}

// closedBy is the close frame by which the other side ended a connection, nil when it was another end.
func closedBy(err error) *websocket.CloseError {
	if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code != websocket.CloseAbnormalClosure {
		return closed
	}
	return nil
}

var addresses = regexp.MustCompile(` tcp \S+(: read|: write)?:`)

// reason is why a connection ended, without the addresses, so that equal reasons can be counted together.
func reason(err error) string {
	if closed := closedBy(err); closed != nil {
		return strings.TrimSpace(fmt.Sprintf("closed by the server: %d %s", closed.Code, closed.Text))
	}
	if _, ok := errors.AsType[*websocket.CloseError](err); ok {
		return "closed by the server without a close frame"
	}
	return addresses.ReplaceAllString(err.Error(), ":")
}
