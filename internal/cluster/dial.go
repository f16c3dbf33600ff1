package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/gorilla/websocket"

	"noncegate/internal/wsconn"
)

var (
	errDialTimeout = fmt.Errorf("the node did not answer in time: %w", context.DeadlineExceeded)
	errNoSecret    = errors.New("without --node-secret nodes reach each other over loopback only, and this address is not loopback")
)

// refusal is why a node is not let in: by HTTP instead of the upgrade, or by a handshake.
type refusal struct {
	status   int
	sentence string
	reason   string // for whoever counts; "": nobody does
}

func (e *refusal) append(b []byte) []byte {
	return appendText(binary.AppendUvarint(b, uint64(e.status)), e.sentence)
}

// Error implements error.
func (e *refusal) Error() string {
	switch e.status {
	case http.StatusForbidden:
		return fmt.Sprintf("the node does not take connections of this one (403 %s); do both have the same --node-secret?", e.sentence)
	case http.StatusMisdirectedRequest:
		return fmt.Sprintf("at the node's advertised URL there is another node (421 %s); see --advertise-url", e.sentence)
	}
	if e.status == statusVersion {
		return fmt.Sprintf("links of the node have another version (%s): requests for it are answered not_owner", e.sentence)
	}
	return fmt.Sprintf("HTTP status %d %s", e.status, e.sentence)
}

// maxSentence bounds what is kept of the sentence of a node that has proved nothing yet.
const maxSentence = 200

// clip makes a line of the beginning of a sentence.
func clip(sentence string) string {
	return strings.Join(strings.Fields(sentence[:min(len(sentence), maxSentence)]), " ")
}

// dial makes one attempt to open a link.
func (p *peer) dial() (*link, error) {
	p.mu.Lock()
	raw, incarnation := p.node.URL, p.node.Incarnation
	p.mu.Unlock()
	l, err := p.open(raw)
	e, refused := errors.AsType[*refusal](err)
	p.mu.Lock()
	p.foreign = refused && e.status == statusVersion
	p.mu.Unlock()
	if err != nil {
		p.complain(raw, err)
		return nil, err
	}
	clear(p.complaints)
	l.incarnation = incarnation
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
	dialer := websocket.Dialer{ // without a proxy: nodes talk to each other directly
		TLSClientConfig: cfg.TLS(),
		ReadBufferSize:  16 << 10,
		WriteBufferSize: fullFrame,
		NetDialContext:  cfg.NetDial,
	}
	ws, resp, err := wsconn.Dial(ctx, dialer, address, nil)
	if err != nil {
		return nil, dialError(ctx, resp, err)
	}
	unwatch := context.AfterFunc(ctx, func() { ws.Close() })
	deadline, _ := ctx.Deadline()
	if err = p.greet(ws, deadline); !unwatch() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		ws.Close()
		return nil, dialError(ctx, nil, err)
	}
	return &link{pipe: newPipe(cfg, ws, p.wake), peer: p, url: raw, wakers: make(wakers)}, nil
}

func dialError(ctx context.Context, resp *http.Response, err error) error {
	if resp != nil {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxSentence)) // gorilla has read it
		return &refusal{status: resp.StatusCode, sentence: clip(string(body))}
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded): // gorilla's, a moment before the context's
		return errDialTimeout
	}
	return err
}

// maxComplaints bounds the reasons that are logged of one node until it is linked: what answers at its
// address may answer differently each time.
const maxComplaints = 8

// complain logs why the node cannot be reached, each reason once until it is. Only keep calls it.
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
	if p.complaints[kind] || len(p.complaints) == maxComplaints || p.ctx.Err() != nil {
		return
	}
	p.complaints[kind] = true
	p.r.log.Log(context.Background(), level, "node not reached", "node", p.id, "url", url, "error", err)
}

var errAddress = errors.New("the advertised URL cannot be used")

// address makes a WebSocket address of what a node advertises: http stands for ws,
// https for wss, and links are at node beside the path for clients. anywhere: it need not be loopback.
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
	u.Path, u.RawPath, u.Fragment = path.Join("/", path.Dir(u.Path), "node"), "", ""
	if !anywhere && !isLoopback(u.Hostname()) {
		return "", errNoSecret
	}
	return u.String(), nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
