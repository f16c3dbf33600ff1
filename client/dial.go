package client

import (
	"context"
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

// dial opens one connection and starts its goroutines. The error is a
// *DialError, or ErrClosed.
func (c *Client) dial(ctx context.Context, url string) (*conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.DialTimeout, errDialTimeout)
	defer cancel()
	cork := new(wsconn.Cork)
	dialer := websocket.Dialer{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: c.cfg.TLS,
		ReadBufferSize:  4 << 10,
		WriteBufferSize: 4 << 10,
		NetDialContext: func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
			cork.Conn, err = c.cfg.NetDial(ctx, network, addr)
			return cork, err
		},
	}
	ws, resp, err := wsconn.Dial(ctx, dialer, url, c.cfg.Header)
	if err != nil {
		if ctx.Err() != nil {
			err = ctxError(ctx)
		}
		return nil, dialError(url, resp, err)
	}
	conn := newConn(url, ws, cork, &c.cfg)
	if !c.run(conn) {
		return nil, ErrClosed
	}
	return conn, nil
}

// longestAway bounds what a gateway, or a proxy before it, may ask for.
const longestAway = time.Minute

func dialError(url string, resp *http.Response, err error) *DialError {
	e := &DialError{URL: url, Err: err}
	if resp != nil {
		e.Status, e.Reason = resp.StatusCode, sentenceOf(resp)
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
			e.RetryAfter = min(time.Duration(min(s, math.MaxInt32))*time.Second, longestAway)
		}
	}
	return e
}

// sentenceOf is the first line of a refusal, of which gorilla has read some.
func sentenceOf(resp *http.Response) string {
	if resp.Body == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxSentence)) // of a reader in memory
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, line)
}

// maxSentence bounds what is shown of a refusal.
const maxSentence = 256

// targets are the addresses of a gateway, taken in turn.
type targets struct {
	list []target
	next int
}

type target struct {
	url       string
	notBefore time.Time // the gateway asked to stay away until then
}

// pick returns the target whose turn it is, skipping those to stay away from,
// and how long to wait for it when all are.
func (t *targets) pick(now time.Time) (*target, time.Duration) {
	best := &t.list[t.next%len(t.list)]
	for i := range t.list {
		cand := &t.list[(t.next+i)%len(t.list)]
		if !cand.notBefore.After(now) {
			best = cand
			t.next += i
			break
		}
		if cand.notBefore.Before(best.notBefore) {
			best = cand
		}
	}
	t.next = (t.next + 1) % len(t.list)
	return best, max(0, best.notBefore.Sub(now))
}
