package jsonrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"noncegate/internal/rpcconn"
)

const (
	// smallAnswer is what each request under way may read at once, in bytes.
	smallAnswer = 1 << 20
	// largeAnswers is how many requests of a node may read more than that at a time, and as
	// many again of those that are ForOthers.
	largeAnswers = 2
	// maxRefusal bounds what is read of an answer that has another status than 200.
	maxRefusal = 64 << 10
	// idleFor is how long a connection is kept without a request.
	idleFor = 90 * time.Second
	// maxRetryAfter bounds what a node, or a proxy before it, may ask for.
	maxRetryAfter = 10 * time.Minute
)

type httpNode struct {
	e      *Endpoint
	client *http.Client
	lastID atomic.Uint64
	large  chan struct{} // a slot for each answer above smallAnswer
	others chan struct{} // the same, of calls of others
	dials  atomic.Uint64
}

func newHTTP(e *Endpoint, cfg Config) *httpNode {
	n := &httpNode{e: e, large: make(chan struct{}, largeAnswers), others: make(chan struct{}, largeAnswers)}
	n.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				n.dials.Add(1)
				return cfg.Dial(ctx, network, addr)
			},
			TLSClientConfig:        cfg.TLS,
			TLSHandshakeTimeout:    cfg.Timeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    cfg.MaxInflight,
			IdleConnTimeout:        idleFor,
			MaxResponseHeaderBytes: maxRefusal,
		},
	}
	return n
}

// Run implements Node.
func (n *httpNode) Run(ctx context.Context) {
	<-ctx.Done()
	n.client.CloseIdleConnections()
}

// Dials implements Node.
func (n *httpNode) Dials() uint64 { return n.dials.Load() }

// Session implements Node.
func (n *httpNode) Session() uint64 { return 1 }

// Reconnect implements Node.
func (n *httpNode) Reconnect(uint64, error) { n.client.CloseIdleConnections() }

// Subscribe implements Node.
func (n *httpNode) Subscribe(context.Context, uint64, json.RawMessage, func(json.RawMessage), func(error)) (*Subscription, *Error, error) {
	return nil, nil, notSent(ErrNoSubscriptions)
}

// Do implements Node.
func (n *httpNode) Do(ctx context.Context, _ uint64, calls []*Call, limit int64) {
	first := n.lastID.Add(uint64(len(calls))) - uint64(len(calls)) + 1
	body, err := rpcconn.Encode(first, requests(calls))
	if err != nil {
		failAll(calls, notSent(fmt.Errorf("parameters: %w", err)))
		return
	}
	data, err := n.post(ctx, body, limit)
	x := &exchange{calls: calls, first: first}
	switch {
	case err == nil:
		x.read(data, n.e)
	case data != nil: // a node may refuse a request with a status and say why in JSON
		wrong := rpcconn.Each(data, func(m *rpcconn.Message) error { return x.take(m, n.e) })
		if batch, ok := errors.AsType[*BatchError](wrong); ok {
			err = fmt.Errorf("%w: %w", err, batch)
		} else if wrong == nil {
			x.finish(nil)
		}
	}
	if err != nil {
		x.failWith(n.e.cleanError(err))
	}
}

// post sends body and returns the answer. With a StatusError the answer may be there
// too; it is read only if it is JSON.
func (n *httpNode) post(ctx context.Context, body []byte, limit int64) ([]byte, error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.e.target, bytes.NewReader(body))
	if err != nil {
		return nil, notSent(err)
	}
	req.Header = n.e.header()
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := n.client.Do(req)
	if err != nil {
		if !connected.Load() {
			err = notSent(n.e.cleanError(err))
		}
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refused(resp, n.e)
	}
	if resp.ContentLength > limit {
		return nil, ErrTooLarge
	}
	return n.read(ctx, resp.Body, limit)
}

// read reads an answer of at most limit bytes. Beyond smallAnswer it waits for a slot,
// so that a node that sends large answers to all requests does not fill the memory.
func (n *httpNode) read(ctx context.Context, body io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	if _, err := io.CopyN(&buf, body, min(limit, smallAnswer)+1); err != nil {
		if err == io.EOF {
			return buf.Bytes(), nil
		}
		return nil, err
	}
	if limit <= smallAnswer {
		return nil, ErrTooLarge
	}
	large := n.large
	if ctx.Value(forOthers{}) != nil {
		large = n.others
	}
	select {
	case large <- struct{}{}:
		defer func() { <-large }()
	case <-ctx.Done():
		return nil, fmt.Errorf("other large answers are read first: %w", ctx.Err())
	}
	switch _, err := io.CopyN(&buf, body, limit-smallAnswer); err {
	case io.EOF:
		return buf.Bytes(), nil
	case nil:
		return nil, ErrTooLarge
	default:
		return nil, err
	}
}

// forOthers is the key of ForOthers.
type forOthers struct{}

// ForOthers returns a context for calls and subscriptions of others: while their large answers
// are read, those to the gateway's own questions are read, too.
func ForOthers(ctx context.Context) context.Context { return context.WithValue(ctx, forOthers{}, true) }

// refused makes a StatusError of an answer, and returns its body if that may be
// JSON-RPC.
func refused(resp *http.Response, e *Endpoint) ([]byte, error) {
	status, data := statusOf(resp, e)
	mayBeAnswer := resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode >= http.StatusBadRequest
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); mayBeAnswer && len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return data, status
	}
	return nil, status
}

// statusOf reads an answer that has another status than it should.
func statusOf(resp *http.Response, e *Endpoint) (*StatusError, []byte) {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what was read of it will do
	status := rpcconn.NewStatusError(resp, data, maxRetryAfter)
	status.Text = e.clean(status.Text)
	return status, data
}
