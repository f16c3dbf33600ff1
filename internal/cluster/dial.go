package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
	"noncegate/wire"
)

var (
	errDialTimeout = fmt.Errorf("the node did not answer in time: %w", context.DeadlineExceeded)
	errNoSecret    = errors.New("without --node-secret nodes reach each other over loopback only, and this address is not loopback")
)

// refusal is an answer of HTTP instead of the upgrade.
type refusal struct {
	status   int
	sentence string
}

// Error implements error.
func (e *refusal) Error() string {
	switch e.status {
	case http.StatusForbidden:
		return fmt.Sprintf("the node does not take connections of this one (403 %s); do both have the same --node-secret?", e.sentence)
	case http.StatusMisdirectedRequest:
		return fmt.Sprintf("at the node's advertised URL there is another node (421 %s); see --advertise-url", e.sentence)
	}
	return fmt.Sprintf("HTTP status %d %s", e.status, e.sentence)
}

// dial makes one attempt to open a link.
func (p *peer) dial() (*link, error) {
	p.mu.Lock()
	raw, incarnation := p.node.URL, p.node.Incarnation
	p.mu.Unlock()
	l, err := p.open(raw)
	if err != nil {
		p.complain(raw, err)
		return nil, err
	}
	p.complaint, l.incarnation = "", incarnation
	return l, nil
}

func (p *peer) open(raw string) (*link, error) {
	cfg := &p.r.cfg
	address, err := address(raw, cfg.Secret != "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(p.ctx, cfg.dialTimeout(), errDialTimeout)
	defer cancel()
	l := &link{peer: p, url: raw, transport: &transport{start: time.Now()}}
	dialer := websocket.Dialer{ // without a proxy: nodes talk to each other directly
		TLSClientConfig: cfg.TLS(),
		ReadBufferSize:  16 << 10,
		WriteBufferSize: 4 << 10,
		NetDialContext: func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
			l.transport.Conn, err = cfg.NetDial(ctx, network, addr)
			return l.transport, err
		},
	}
	ws, resp, err := wsconn.Dial(ctx, dialer, address, p.header())
	if err != nil {
		return nil, dialError(ctx, resp, err)
	}
	l.init(ws)
	return l, nil
}

func (p *peer) header() http.Header {
	h := http.Header{wire.HeaderNode: {p.r.self}, wire.HeaderNodeTo: {p.id}, wire.HeaderNodeLink: {strconv.FormatInt(p.r.links.Add(1), 10)}}
	if p.r.cfg.Store != nil {
		h.Set(wire.HeaderNodeStore, p.r.cfg.Store())
	}
	if p.r.cfg.Secret != "" {
		h.Set(wire.HeaderNodeSecret, p.r.cfg.Secret)
	}
	return h
}

func dialError(ctx context.Context, resp *http.Response, err error) error {
	if resp != nil {
		const enough = 200
		body, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // gorilla has read it
		return &refusal{status: resp.StatusCode, sentence: strings.Join(strings.Fields(string(body)), " ")}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded): // gorilla's, a moment before the context's
		return errDialTimeout
	}
	return err
}

// complain logs why the node cannot be reached, when the reason is another than
// last time. Only keep calls it.
func (p *peer) complain(url string, err error) {
	kind, level := "unreachable", slog.LevelWarn
	if e, ok := errors.AsType[*refusal](err); ok {
		kind = fmt.Sprint(e.status)
		if e.status == http.StatusForbidden || e.status == http.StatusMisdirectedRequest {
			level = slog.LevelError
		}
	} else if errors.Is(err, errNoSecret) || errors.Is(err, errAddress) {
		kind, level = err.Error(), slog.LevelError
	}
	if kind == p.complaint || p.ctx.Err() != nil {
		return
	}
	p.complaint = kind
	p.r.log.Log(context.Background(), level, "node not reached", "node", p.id, "url", url, "error", err)
}

var errAddress = errors.New("the advertised URL cannot be used")

// address makes a WebSocket address of what a node advertises: http stands for ws,
// https for wss, and no path for /ws. anywhere: it need not be loopback.
func address(raw string, anywhere bool) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errAddress, err)
	}
	switch u.Scheme {
	case "http", "ws":
		u.Scheme = "ws"
	case "https", "wss":
		u.Scheme = "wss"
	default:
		return "", fmt.Errorf("%w: its scheme must be ws, wss, http or https", errAddress)
	}
	if u.Host == "" || u.User != nil {
		return "", fmt.Errorf("%w: it must have a host and no user", errAddress)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/ws"
	}
	u.Fragment = ""
	if !anywhere && !isLoopback(u.Hostname()) {
		return "", errNoSecret
	}
	return u.String(), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
