// Package fakenode is an Ethereum node in memory, for tests: it answers what a node does,
// over HTTP and WebSocket, and misbehaves as it is told. It stands before a real node, too
// (test/interop/chaintest), whose answers it passes on or changes.
//
// A [Chain] is a tree of blocks, which the test grows; each [Node] shows the branch that it
// was told of, and nothing above, so that several of one chain may lag, fork, or lose their
// finality. What a node should answer otherwise the test says method by method ([Node.On]).
//
// A node is on a real port ([Serve]), or on a network in memory ([New] on a [Net]) that works in
// a bubble of testing/synctest. It answers at once, in the order of the questions of a connection,
// and checks nothing: what was sent is in no pool and no block unless the test puts it there.
//
// A node owns a goroutine that accepts and those of its connections, which end with the
// test, or with Close. All methods may be called by many goroutines: Chain.mu guards the
// tree, Node.mu what a node shows; neither is held while something is written.
package fakenode

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// ErrSilent is returned by a Handler that never answers.
var ErrSilent error = &Instead{Silent: true}

// ErrUsual is returned by a Handler that leaves a question to the node.
var ErrUsual = errors.New("fakenode: answered as usual")

// Handler answers a method. An error that is no *Error and no *Instead is told with the code -32000.
type Handler func(params []json.RawMessage) (any, error)

// Interceptor answers any method; usual is what the node would answer.
type Interceptor func(method string, params []json.RawMessage, usual func() (any, error)) (any, error)

// Node is a node. Its methods may be called by many goroutines.
type Node struct {
	// Host is where it is reached.
	Host  string
	chain *Chain
	wire  wire

	mu       sync.Mutex // guards what follows
	chainID  int64
	head     *Block
	final    *Block
	pool     []Tx
	code     map[string]string
	handlers map[string]Handler
	every    Interceptor
	raw      func(w http.ResponseWriter, r *http.Request, body []byte) bool
	maxBatch int  // batches of more calls are refused; 0: none
	mute     bool // subscriptions are taken and never served
	subs     map[string]subscription
	batches  []int // the sizes of requests
	calls    map[string]int
	auth     []string
	nextSub  int64
}

type subscription struct {
	to   *socket
	kind string
}

// New starts a node that has only the first block of a chain. It ends with the test.
func New(t testing.TB, net *Net, host string, c *Chain, chainID int64) *Node {
	t.Helper()
	n := serve(net.listen(host), host, c, chainID)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// Serve starts a node that has only the first block of a chain, on a free port of
// 127.0.0.1. Close ends it.
func Serve(c *Chain, chainID int64) (*Node, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serve(l, l.Addr().String(), c, chainID), nil
}

func serve(l net.Listener, host string, c *Chain, chainID int64) *Node {
	n := &Node{
		Host: host, chain: c, chainID: chainID, head: c.First(),
		code: map[string]string{}, handlers: map[string]Handler{}, calls: map[string]int{}, subs: map[string]subscription{},
	}
	n.wire.node = n
	n.wire.serve(l)
	return n
}

// URL is where the node answers over HTTP.
func (n *Node) URL() string { return "http://" + n.Host }

// Close ends the node and waits for it.
func (n *Node) Close() error { return n.wire.close() }

func (n *Node) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// SetHead makes b the newest block, and tells subscribers.
func (n *Node) SetHead(b *Block) {
	n.locked(func() { n.head = b })
	n.Emit("newHeads", b.JSON(false))
}

// Head returns the newest block.
func (n *Node) Head() (b *Block) {
	n.locked(func() { b = n.head })
	return b
}

// SetFinal makes b the block with the tag finalized; nil: there is none.
func (n *Node) SetFinal(b *Block) { n.locked(func() { n.final = b }) }

// SetChainID has the node be of another chain.
func (n *Node) SetChainID(id int64) { n.locked(func() { n.chainID = id }) }

// SetCode gives an account code, as eth_getCode has it.
func (n *Node) SetCode(account, code string) { n.locked(func() { n.code[account] = code }) }

// SetPool replaces what is in the pool.
func (n *Node) SetPool(txs ...Tx) {
	txs = slices.Clone(txs) // the caller may sort its own
	n.locked(func() { n.pool = txs })
}

// On has a method answered by h; nil: as usual.
func (n *Node) On(method string, h Handler) { n.locked(func() { n.handlers[method] = h }) }

// Intercept has every call be answered by f. From then on messages of one connection are answered
// beside each other.
func (n *Node) Intercept(f Interceptor) { n.locked(func() { n.every = f }) }

// OnHTTP has every HTTP request be seen first by f, which says whether it answered it; nil: by none.
func (n *Node) OnHTTP(f func(w http.ResponseWriter, r *http.Request, body []byte) bool) {
	n.locked(func() { n.raw = f })
}

// RefuseBatches refuses batches of more than max calls.
func (n *Node) RefuseBatches(max int) { n.locked(func() { n.maxBatch = max }) }

// Mute takes subscriptions and never serves them.
func (n *Node) Mute(on bool) { n.locked(func() { n.mute = on }) }

// Requests returns how many requests came: a batch is one.
func (n *Node) Requests() int { return len(n.Batches()) }

// Batches returns how many calls each request had.
func (n *Node) Batches() (sizes []int) {
	n.locked(func() { sizes = slices.Clone(n.batches) })
	return sizes
}

// Calls returns how often a method was called.
func (n *Node) Calls(method string) (count int) {
	n.locked(func() { count = n.calls[method] })
	return count
}

// Auth returns the Authorization headers that came.
func (n *Node) Auth() (headers []string) {
	n.locked(func() { headers = slices.Clone(n.auth) })
	return headers
}

func (n *Node) first(w http.ResponseWriter, r *http.Request, body []byte) bool {
	n.mu.Lock()
	n.auth = append(n.auth, r.Header.Get("Authorization"))
	raw := n.raw
	n.mu.Unlock()
	return raw != nil && raw(w, r, body)
}

func (n *Node) intercepted() (yes bool) {
	n.locked(func() { yes = n.every != nil })
	return yes
}

func (n *Node) answer(m *message) (replies []reply, instead *Instead) {
	n.mu.Lock()
	n.batches = append(n.batches, len(m.calls))
	for _, c := range m.calls {
		n.calls[c.Method]++
	}
	refused := n.maxBatch > 0 && len(m.calls) > n.maxBatch
	n.mu.Unlock()
	if refused { // as go-ethereum says it
		return []reply{{Version: "2.0", ID: m.calls[0].ID, Error: &Error{Code: -32600, Message: "batch too large"}}}, nil
	}
	for _, c := range m.calls {
		result, err := n.one(c, m)
		r := reply{Version: "2.0", ID: c.ID}
		switch e := err.(type) {
		case nil:
			r.Result = encode(result)
		case *Error:
			r.Error = e
		case *Instead:
			return nil, e
		default:
			r.Error = &Error{Code: -32000, Message: err.Error()}
		}
		replies = append(replies, r)
	}
	return replies, nil
}

func (n *Node) one(c call, m *message) (any, error) {
	var params []json.RawMessage
	if json.Unmarshal(c.Params, &params) != nil {
		params = nil
	}
	var h Handler
	var every Interceptor
	n.locked(func() { h, every = n.handlers[c.Method], n.every })
	if h != nil {
		if result, err := h(params); !errors.Is(err, ErrUsual) {
			return result, err
		}
	}
	usual := func() (any, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.usualLocked(c.Method, params, m)
	}
	if every != nil {
		return every(c.Method, params, usual)
	}
	return usual()
}

// text reads a parameter that is a string; anything else is "".
func text(params []json.RawMessage, i int) (s string) {
	if i < len(params) {
		_ = json.Unmarshal(params[i], &s) // no string: ""
	}
	return strings.ToLower(s)
}

// Emit tells all subscribers of a kind, such as logs.
func (n *Node) Emit(kind string, result any) {
	to := map[string]*socket{}
	n.locked(func() {
		for id, s := range n.subs {
			if s.kind == strings.ToLower(kind) && !n.mute {
				to[id] = s.to
			}
		}
	})
	for id, s := range to {
		s.event(id, result)
	}
}

// subscriptionLocked opens one, which is live once its id was told, or ends it.
func (n *Node) subscriptionLocked(method string, params []json.RawMessage, m *message) (any, error) {
	if m.socket == nil {
		return nil, &Error{Code: -32000, Message: "notifications not supported"}
	}
	if method == "eth_unsubscribe" {
		_, open := n.subs[text(params, 0)]
		delete(n.subs, text(params, 0))
		return open, nil
	}
	n.nextSub++
	id := Quantity(n.nextSub)
	m.after = append(m.after, func() {
		n.locked(func() { n.subs[id] = subscription{m.socket, text(params, 0)} })
	})
	return id, nil
}

func (n *Node) gone(s *socket) {
	n.locked(func() {
		for id, sub := range n.subs {
			if sub.to == s {
				delete(n.subs, id)
			}
		}
	})
}

// Subscribed returns how many subscriptions of a kind are open.
func (n *Node) Subscribed(kind string) (count int) {
	n.locked(func() {
		for _, s := range n.subs {
			if s.kind == strings.ToLower(kind) {
				count++
			}
		}
	})
	return count
}

// Write sends bytes as they are over all WebSockets.
func (n *Node) Write(data string) {
	for _, s := range n.wire.allSockets() {
		s.write([]byte(data))
	}
}

// CloseSockets breaks all WebSockets.
func (n *Node) CloseSockets() { n.wire.closeSockets() }

// Disconnect breaks all WebSockets, and has HTTP clients connect anew.
func (n *Node) Disconnect() {
	n.wire.http.SetKeepAlivesEnabled(false) // which closes those that are idle
	n.CloseSockets()
	n.wire.http.SetKeepAlivesEnabled(true)
}
