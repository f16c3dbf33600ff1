package chaintest

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/rpc"

	"noncegate/test/lab/fakenode"
)

// Endpoint is what a Proxy stands in front of: a Sim, an Anvil, another Proxy.
type Endpoint interface {
	URL() string
	WS() string
}

// Proxy is a node's address on which calls go wrong as a test wants it: HTTP POST and WebSockets, on a port of its own. It starts by
// forwarding. What a method changes holds for open connections too, from the next call or notification on. Its methods may be called from
// any goroutine.
//
// It asks the node each call of a batch by itself, over HTTP. A client of a node that has gone is told 502, over a WebSocket by its end.
// Calls that come at once may reach the node in another order. Of subscriptions it serves newHeads.
type Proxy struct {
	t     T
	front *fakenode.Node
	node  *rpc.Client
	ctx   context.Context // ends with Close
	close func()

	mu       sync.Mutex // guards what follows; no I/O is done under it
	rules    []*Rule
	view     *view             // of a node that lags; nil: as it is
	withheld []json.RawMessage // heads that it does not know yet, maxWithheld at most
}

// maxWithheld bounds what a lagging node keeps; the oldest are dropped.
const maxWithheld = 1024

// StartProxy starts a proxy, which ends with the test.
func StartProxy(t T, target Endpoint) *Proxy {
	t.Helper()
	p := &Proxy{t: t}
	must := func(err error) {
		if err != nil {
			t.Fatalf("proxy: %v", err)
		}
	}
	var err error
	p.front, err = fakenode.Serve(fakenode.NewChain(time.Now(), time.Second), 0)
	must(err)
	// Not the test's context, which ends before the cleanups: clients that are closed by those may wait for an answer.
	ctx, cancel := context.WithCancel(context.Background())
	p.ctx = ctx
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p.node, err = rpc.DialOptions(ctx, target.URL(), rpc.WithHTTPClient(&http.Client{Transport: transport}))
	must(err)
	events, err := rpc.DialContext(ctx, target.WS())
	must(err)
	heads := make(chan json.RawMessage)
	sub, err := events.EthSubscribe(ctx, heads, "newHeads")
	must(err)
	var telling sync.WaitGroup
	telling.Go(func() { p.tell(heads, sub) })
	p.front.Intercept(p.answer)
	p.close = sync.OnceFunc(func() {
		cancel()
		if err := p.front.Close(); err != nil {
			t.Logf("proxy: %v", err)
		}
		events.Close()
		telling.Wait()
		p.node.Close()
		transport.CloseIdleConnections()
	})
	t.Cleanup(p.close)
	return p
}

// Close ends all connections and waits. It may be called twice, and is called by itself at the end of the test.
func (p *Proxy) Close() { p.close() }

// URL is the proxy's address for HTTP.
func (p *Proxy) URL() string { return p.front.URL() }

// WS is the proxy's address for WebSockets.
func (p *Proxy) WS() string { return "ws://" + p.front.Host }

// Calls is how many calls of a method have come, those in batches and those that were not forwarded too.
func (p *Proxy) Calls(method string) int { return p.front.Calls(method) }

// Refuse closes every connection and, until Accept, each with its next request: a node that is away.
func (p *Proxy) Refuse() {
	p.front.OnHTTP(func(http.ResponseWriter, *http.Request, []byte) bool { panic(http.ErrAbortHandler) })
	p.Disconnect()
}

// Accept ends Refuse.
func (p *Proxy) Accept() { p.front.OnHTTP(nil) }

// Disconnect closes every connection; new ones are taken.
func (p *Proxy) Disconnect() { p.front.Disconnect() }

// Mute has subscriptions be answered as ever, and drops what they should bring until it is called with false.
func (p *Proxy) Mute(muted bool) { p.front.Mute(muted) }

// answer finds out what a call meets.
func (p *Proxy) answer(method string, params []json.RawMessage, subscribe func() (any, error)) (any, error) {
	ask := func() (json.RawMessage, error) { return p.ask(method, params) }
	if method == "eth_subscribe" || method == "eth_unsubscribe" {
		ask = func() (json.RawMessage, error) {
			id, err := subscribe()
			text, _ := json.Marshal(id) // it is a text, or a truth
			return text, err
		}
	}
	r := p.match(method, params)
	if r == nil {
		return ask()
	}
	result, err := r.fault(ask)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.met++
	return result, err
}

// ask asks the node. Whether the client still waits does not matter: what it sent is on its way.
func (p *Proxy) ask(method string, params []json.RawMessage) (result json.RawMessage, err error) {
	p.mu.Lock()
	v := p.view
	p.mu.Unlock()
	if v != nil {
		return v.ask(p, method, params)
	}
	return p.forward(method, params)
}

func (p *Proxy) forward(method string, params []json.RawMessage) (result json.RawMessage, err error) {
	args := make([]any, len(params))
	for i, a := range params {
		args[i] = a
	}
	if err = p.node.CallContext(p.ctx, &result, method, args...); err != nil {
		return nil, asRPC(err)
	}
	return result, nil
}

// asRPC is a node's error as it said it, or what a client of a node that has gone is told.
func asRPC(err error) error {
	coded, ok := err.(rpc.Error)
	if !ok {
		return &fakenode.Instead{Status: http.StatusBadGateway}
	}
	e := &fakenode.Error{Code: coded.ErrorCode(), Message: err.Error()}
	if with, ok := err.(rpc.DataError); ok && with.ErrorData() != nil {
		e.Data, _ = json.Marshal(with.ErrorData()) // it was JSON
	}
	return e
}

// tell hands heads on. With the node the clients' connections end.
func (p *Proxy) tell(heads <-chan json.RawMessage, sub *rpc.ClientSubscription) {
	for {
		select {
		case head := <-heads:
			if !p.withhold(head) {
				p.front.Emit("newHeads", head)
			}
		case err := <-sub.Err():
			if err != nil {
				p.Disconnect()
			}
			return
		}
	}
}

func (p *Proxy) withhold(head json.RawMessage) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.view == nil {
		return false
	}
	p.withheld = append(p.withheld, head)
	p.withheld = p.withheld[max(0, len(p.withheld)-maxWithheld):]
	return true
}
