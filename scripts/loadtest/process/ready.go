package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/websocket"
)

const tryTimeout = 5 * time.Second

// ErrTaken says that somebody else answers where a server was to.
var ErrTaken = errors.New("the address is taken")

// Vacant returns an error that is ErrTaken when something takes TCP connections
// at the host and port of one of the URLs: whoever is started to serve it could
// not, and what is there would be taken for it. An address that cannot be asked
// is vacant.
func Vacant(ctx context.Context, urls ...string) error {
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return fmt.Errorf("look whether an address is free: %w", err)
		}
		if addr := address(u); Listens(addr)(ctx) == nil {
			return fmt.Errorf("%w: something listens on %s already; end it first (is it the gateway of make run?), "+
				"or choose another", ErrTaken, addr)
		}
	}
	return nil
}

func address(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "wss" || u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// Handshakes is ready once a WebSocket connection to url can be opened.
func Handshakes(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		dialer := websocket.Dialer{HandshakeTimeout: tryTimeout}
		ws, resp, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
			if resp != nil {
				err = fmt.Errorf("%w: %s", err, resp.Status)
			}
			return fmt.Errorf("connect to %s: %w", url, err)
		}
		bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(tryTimeout)) // a courtesy
		return ws.Close()
	}
}

// AnswersOK is ready once a GET of url is answered by 200.
func AnswersOK(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		req.Close = true // no connection is kept for a server that goes away
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // more than the status is a gift
			return fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
		}
		return nil
	}
}

// Listens is ready once addr takes TCP connections.
func Listens(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: tryTimeout}
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}
