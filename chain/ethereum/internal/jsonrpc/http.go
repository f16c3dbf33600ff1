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
	"slices"
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
	return nil, nil, notSent(errNoSubscriptions)
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
	if err == nil || data != nil { // a node may refuse a request with a status and say why in JSON
		n.e.read(calls, first, data)
	}
	if err != nil {
		failWith(calls, n.e.cleanError(err))
	}
}

// failWith says of calls that an answer with another status than 200 did not settle why they have no
// answer. A batch of which no call has a result was refused as a whole, whatever else the answer
// says of single calls.
func failWith(calls []*Call, status error) {
	if slices.ContainsFunc(calls, func(c *Call) bool { return c.Result != nil }) || len(calls) == 1 && calls[0].Err != nil {
		return
	}
	why := calls[0].Fail
	if i := slices.IndexFunc(calls, func(c *Call) bool { return c.Err != nil }); i >= 0 {
		why = calls[i].Err
	}
	if why != nil && !errors.Is(why, ErrNonsense) {
		status = fmt.Errorf("%w: %w", status, why)
	}
	for _, c := range calls {
		c.Err, c.Fail = nil, status
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
	if isForOthers(ctx) {
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

// refused makes a StatusError of an answer, and returns its body if that may be
// JSON-RPC.
func refused(resp *http.Response, e *Endpoint) ([]byte, error) {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what was read of it will do
	status := rpcconn.NewStatusError(resp, data, maxRetryAfter)
	status.Text = e.clean(status.Text)
	mayBeAnswer := status.Code != http.StatusTooManyRequests && status.Code >= http.StatusBadRequest
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); mayBeAnswer && len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		return data, status
	}
	return nil, status
}
