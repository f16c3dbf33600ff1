package chaintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
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

// Proxy is a node's address on which calls go wrong as a test wants it: HTTP POST and
// WebSockets with subscriptions, on a port of its own. It starts by forwarding. What a
// method changes holds for open connections too, from the next call or notification on.
// Its methods may be called from any goroutine.
//
// It asks the node anew, over HTTP, or for a subscription over a WebSocket. A client of a
// node that has gone is told 502, over a WebSocket by its end. Calls that come at once may
// reach the node in another order.
type Proxy struct {
	t      T
	target Endpoint
	wire   *fakenode.Wire
	addr   string
	node   *rpc.Client
	ctx    context.Context // ends with Close
	close  func()

	mu       sync.Mutex // guards what follows; no I/O is done under it
	rules    []*Rule
	changed  chan struct{} // closed when a call has met a rule
	requests map[string]int
	conns    map[net.Conn]struct{}
	refusing bool
	muted    bool
	view     *view // of a node that lags; nil: as it is
	subs     map[string]*subscription
	nextSub  int
}

// StartProxy starts a proxy, which ends with the test.
func StartProxy(t T, target Endpoint) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	// Not the test's context, which ends before the cleanups: clients that are closed by
	// those may wait for an answer.
	ctx, cancel := context.WithCancel(context.Background())
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	p := &Proxy{
		t: t, target: target, addr: ln.Addr().String(), ctx: ctx, changed: make(chan struct{}), requests: make(map[string]int),
		conns: make(map[net.Conn]struct{}), subs: make(map[string]*subscription),
	}
	p.node, err = rpc.DialOptions(ctx, target.URL(), rpc.WithHTTPClient(&http.Client{Transport: transport}))
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p.wire = &fakenode.Wire{Answer: p.answer, Gone: p.gone, Conns: p.conn, Beside: true}
	p.wire.Serve(ln)
	p.close = sync.OnceFunc(func() {
		cancel()
		if err := p.wire.Close(); err != nil {
			t.Logf("proxy: %v", err)
		}
		p.node.Close()
		transport.CloseIdleConnections()
	})
	t.Cleanup(p.close)
	return p
}

// Close ends all connections and waits. It may be called twice, and is called by itself
// at the end of the test.
func (p *Proxy) Close() { p.close() }

// URL is the proxy's address for HTTP.
func (p *Proxy) URL() string { return "http://" + p.addr }

// WS is the proxy's address for WebSockets.
func (p *Proxy) WS() string { return "ws://" + p.addr }

// Requests is how many calls of each method have come, those in batches and those that were
// not forwarded too.
func (p *Proxy) Requests() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

// Refuse closes every connection and, until Accept, every new one at once: a node that is
// away.
func (p *Proxy) Refuse() {
	p.refuse(true)
	p.Disconnect()
}

// Accept ends Refuse.
func (p *Proxy) Accept() { p.refuse(false) }

func (p *Proxy) refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = on
}

// Disconnect closes every connection; new ones are taken.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	p.wire.CloseSockets()
}

// conn keeps the connections that are no WebSockets.
func (p *Proxy) conn(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	refused := p.refusing
	switch state {
	case http.StateNew:
		p.conns[c] = struct{}{}
	case http.StateHijacked, http.StateClosed:
		delete(p.conns, c)
	}
	p.mu.Unlock()
	if refused && state != http.StateClosed {
		c.Close()
	}
}

// Mute has subscriptions be answered as ever, and drops what they should bring until it is
// called with false.
func (p *Proxy) Mute(muted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = muted
}

// job is one call of a message.
type job struct {
	method string
	params []json.RawMessage
	rule   *Rule  // that it meets
	reply  *reply // nil: not known yet
	edits  []func(result json.RawMessage) json.RawMessage
}

type reply struct {
	result json.RawMessage
	err    *fakenode.Error
}

// answer finds out what each call of a message meets, and asks the node for what is left.
func (p *Proxy) answer(m *fakenode.Message) ([]fakenode.Reply, *fakenode.Instead) {
	jobs, view := p.jobs(m)
	for _, j := range jobs {
		if !pause(p.ctx, j.rule.fault.delay) {
			return nil, closed
		}
	}
	for _, j := range jobs {
		if f := j.rule.fault; f.instead != nil && f.local {
			j.rule.meet()
			return nil, f.instead(m.Calls[slices.Index(jobs, j)].ID)
		}
	}
	var asked []*job
	for _, j := range jobs {
		j.begin(p, view)
		if j.reply == nil {
			asked = append(asked, j)
		}
	}
	if err := p.ask(m, asked); err != nil {
		return nil, &fakenode.Instead{Status: http.StatusBadGateway}
	}
	var replies []fakenode.Reply
	var instead *fakenode.Instead
	for i, j := range jobs {
		j.rule.meet()
		if f := j.rule.fault; f.instead != nil {
			instead = f.instead(m.Calls[i].ID)
		}
		if r := j.reply; r != nil {
			for _, edit := range j.edits {
				if r.err == nil {
					r.result = edit(r.result)
				}
			}
			replies = append(replies, fakenode.Reply{ID: m.Calls[i].ID, Result: r.result, Error: r.err})
		}
	}
	return replies, instead
}

func (p *Proxy) jobs(m *fakenode.Message) (jobs []*job, v *view) {
	for _, c := range m.Calls {
		j := &job{method: c.Method, rule: p.match(c.Method, c.Params)}
		_ = json.Unmarshal(c.Params, &j.params) // no list: the node is asked without
		jobs = append(jobs, j)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return jobs, p.view
}

// begin does what needs no answer of the node.
func (j *job) begin(p *Proxy, view *view) {
	f := j.rule.fault
	if f.reply != nil {
		j.reply = &reply{f.reply.result, f.reply.err}
		return
	}
	if view != nil {
		view.bend(p, j)
	}
	if f.edit != nil {
		j.edits = append(j.edits, f.edit)
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask asks the node. Whether the client still waits does not matter: what it sent is on its
// way. An answer that the node leaves out of a batch is left out.
func (p *Proxy) ask(m *fakenode.Message, jobs []*job) error {
	var batch []rpc.BatchElem
	var of []*job
	for _, j := range jobs {
		if m.Socket != nil && (j.method == "eth_subscribe" || j.method == "eth_unsubscribe") {
			j.reply = p.subscription(m, j)
			continue
		}
		args := make([]any, len(j.params))
		for i, a := range j.params {
			args[i] = a
		}
		of = append(of, j)
		batch = append(batch, rpc.BatchElem{Method: j.method, Args: args, Result: new(json.RawMessage)})
	}
	if len(batch) == 0 {
		return nil
	}
	if err := p.node.BatchCallContext(p.ctx, batch); err != nil {
		return err
	}
	for i, e := range batch {
		if !errors.Is(e.Error, rpc.ErrMissingBatchResponse) {
			of[i].reply = &reply{*e.Result.(*json.RawMessage), asRPC(e.Error)}
		}
	}
	return nil
}

// asRPC is a node's error as it said it.
func asRPC(err error) *fakenode.Error {
	if err == nil {
		return nil
	}
	e := &fakenode.Error{Code: -32000, Message: err.Error()}
	if coded, ok := errors.AsType[rpc.Error](err); ok {
		e.Code = coded.ErrorCode()
	}
	if with, ok := errors.AsType[rpc.DataError](err); ok && with.ErrorData() != nil {
		e.Data, _ = json.Marshal(with.ErrorData()) // it was JSON
	}
	return e
}

// result asks the node itself for the result of a call.
func (p *Proxy) result(result any, method string, params ...any) error {
	return p.node.CallContext(p.ctx, result, method, params...)
}

// subscription is one of a client's, and its twin at the node. mu is held while it is told.
type subscription struct {
	socket *fakenode.Socket
	twin   *rpc.Client
	sub    *rpc.ClientSubscription

	mu       sync.Mutex
	withheld []json.RawMessage // while the node lags
}

// maxWithheld bounds what a lagging node keeps; the oldest are dropped.
const maxWithheld = 1024

func (p *Proxy) subscription(m *fakenode.Message, j *job) *reply {
	if j.method == "eth_unsubscribe" {
		var id string
		if len(j.params) > 0 {
			_ = json.Unmarshal(j.params[0], &id) // no text is the id of none
		}
		known := p.end(func(at string, _ *subscription) bool { return at == id })
		return &reply{json.RawMessage(fmt.Sprint(known)), nil}
	}
	args := make([]any, len(j.params))
	for i, a := range j.params {
		args[i] = a
	}
	s, events := &subscription{socket: m.Socket}, make(chan json.RawMessage)
	var err error
	if s.twin, err = rpc.DialContext(p.ctx, p.target.WS()); err == nil {
		if s.sub, err = s.twin.Subscribe(p.ctx, "eth", events, args...); err != nil {
			s.twin.Close()
		}
	}
	if err != nil {
		return &reply{nil, asRPC(err)}
	}
	p.mu.Lock()
	p.nextSub++
	id := fmt.Sprintf("0x%x", p.nextSub)
	p.subs[id] = s
	p.mu.Unlock()
	before := m.After
	m.After = func() {
		before()
		p.wire.Go(func() { p.tell(s, id, events) })
	}
	return &reply{quoted(id), nil}
}

// end ends subscriptions, and reports whether there were some.
func (p *Proxy) end(which func(id string, s *subscription) bool) bool {
	var ended []*subscription
	p.mu.Lock()
	for id, s := range p.subs {
		if which(id, s) {
			ended = append(ended, s)
			delete(p.subs, id)
		}
	}
	p.mu.Unlock()
	for _, s := range ended {
		s.twin.Close()
	}
	return len(ended) > 0
}

func (p *Proxy) gone(socket *fakenode.Socket) {
	p.end(func(_ string, s *subscription) bool { return s.socket == socket })
}

// tell hands on what a subscription brings until it ends. With the node the client's
// connection ends.
func (p *Proxy) tell(s *subscription, id string, events <-chan json.RawMessage) {
	for {
		select {
		case e := <-events:
			p.mu.Lock()
			muted, lags := p.muted, p.view != nil
			p.mu.Unlock()
			s.mu.Lock()
			if !muted {
				s.withheld = append(s.withheld, e)
			}
			if !lags || !isOfABlock(e) {
				s.tellLocked(id)
			}
			s.withheld = s.withheld[max(0, len(s.withheld)-maxWithheld):]
			s.mu.Unlock()
		case err := <-s.sub.Err():
			if err != nil {
				s.socket.Close()
			}
			return
		}
	}
}

func (s *subscription) tellLocked(id string) {
	for _, e := range s.withheld {
		s.socket.Event(id, e)
	}
	s.withheld = nil
}

// isOfABlock reports whether a notification is a head or a log.
func isOfABlock(event json.RawMessage) bool {
	var of struct{ ParentHash, BlockHash *string }
	return json.Unmarshal(event, &of) == nil && (of.ParentHash != nil || of.BlockHash != nil)
}
