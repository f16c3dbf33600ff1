package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// tryTimeout bounds one look whether a server is ready.
const tryTimeout = 5 * time.Second

// Handshakes is ready once a WebSocket connection to url can be opened.
func Handshakes(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		dialer := websocket.Dialer{HandshakeTimeout: tryTimeout}
		ws, _, err := dialer.DialContext(ctx, url, nil)
		if err != nil {
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
