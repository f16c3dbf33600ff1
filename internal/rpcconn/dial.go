package rpcconn

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
)

var errDialTimeout = fmt.Errorf("no time left to connect: %w", context.DeadlineExceeded)

// Dial makes one attempt to connect. Its error is NotDialled's. The caller must call Run,
// or Close.
func (cfg *Config) Dial(ctx context.Context, url string) (*Conn, error) {
	c, err := cfg.dial(ctx, url)
	if err != nil {
		return nil, cfg.NotDialled(url, err)
	}
	return c, nil
}

func (cfg *Config) dial(ctx context.Context, url string) (*Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.DialTimeout, errDialTimeout)
	defer cancel()
	cork := new(wsconn.Cork)
	dialer := websocket.Dialer{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: cfg.TLS,
		ReadBufferSize:  4 << 10,
		WriteBufferSize: 4 << 10,
		NetDialContext: func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
			cork.Conn, err = cfg.NetDial(ctx, network, addr)
			return cork, err
		},
	}
	ws, resp, err := wsconn.Dial(ctx, dialer, url, cfg.Header)
	switch {
	case err == nil:
		return newConn(url, ws, cork, cfg), nil
	case ctx.Err() != nil:
		return nil, Why(ctx)
	case resp == nil || resp.StatusCode == http.StatusSwitchingProtocols:
		return nil, err
	}
	body, _ := io.ReadAll(resp.Body) // of which gorilla keeps a part in memory
	return nil, NewStatusError(resp, body, cfg.MaxAway)
}

// StatusError is an HTTP status instead of an answer, also that of a refused upgrade.
type StatusError struct {
	Code       int
	RetryAfter time.Duration // 0: the other side did not say
	Text       string        // the first line of the body, as far as it can be printed
}

// Error says which status it was.
func (e *StatusError) Error() string {
	s := fmt.Sprintf("HTTP status %d", e.Code)
	if e.Code >= 300 && e.Code < 400 {
		s += ", a redirect, which is not followed"
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// NewStatusError makes one of an answer. A RetryAfter is at most longest.
func NewStatusError(resp *http.Response, body []byte, longest time.Duration) *StatusError {
	e := &StatusError{Code: resp.StatusCode}
	line, _, _ := strings.Cut(strings.TrimSpace(string(body[:min(len(body), maxText)])), "\n")
	e.Text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line)
	after := resp.Header.Get("Retry-After")
	if s, err := strconv.Atoi(after); err == nil {
		e.RetryAfter = time.Duration(min(max(s, 0), math.MaxInt32)) * time.Second
	} else if at, err := http.ParseTime(after); err == nil {
		e.RetryAfter = max(time.Until(at), 0)
	}
	e.RetryAfter = min(e.RetryAfter, longest)
	return e
}

// maxText bounds StatusError.Text.
const maxText = 4 << 10
