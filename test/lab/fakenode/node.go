// Package fakenode is an Ethereum node in memory, for tests: it answers what a node does,
// over HTTP and WebSocket, and misbehaves as it is told.
//
// A [Chain] is a tree of blocks, which the test grows; each [Node] shows the branch that it
// was told of, and nothing above. Several nodes of one chain may lag, fork, or lose their
// finality. What a node should answer otherwise the test says method by method ([Node.On]).
//
// Promises: a node is on a real port ([Serve]), or on a network in memory ([New] on a [Net])
// that works in a bubble of testing/synctest. It answers at once, in the order of the
// questions of a connection.
//
// Not promised: any check of a transaction. What was sent is in no pool and no
// block unless the test puts it there; there is no signature, balance or execution.
//
// A node owns one goroutine that accepts and one for each connection, which end with the
// test, or with Close. All methods may be called by many goroutines: Chain.mu guards the
// tree, Node.mu what a node shows; neither is held while something is written.
package fakenode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
)

// Error is a refusal.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// ErrSilent is returned by a Handler that never answers. Over HTTP the answer is empty.
var ErrSilent = errors.New("fakenode: no answer")

// ErrUsual is returned by a Handler that leaves a question to the node.
var ErrUsual = errors.New("fakenode: answered as usual")

// Handler answers a method. An error that is no *Error is told with the code -32000.
type Handler func(params []json.RawMessage) (any, error)

// Node is a node. Its methods may be called by many goroutines.
type Node struct {
	// Host is where it is reached.
	Host  string
	chain *Chain

	mu       sync.Mutex // guards what follows
	chainID  int64
	head     *Block
	final    *Block
	pool     []Tx
	code     map[string]string
	handlers map[string]Handler
	raw      func(w http.ResponseWriter, r *http.Request, body []byte) bool
	maxBatch int  // batches of more calls are refused; 0: none
	mute     bool // subscriptions are taken and never served
	sockets  map[*socket]bool
	requests int
	batches  []int // the sizes of requests
	calls    map[string]int
	auth     []string
	nextSub  int
}

// New starts a node that has only the first block of a chain. It ends with the test.
func New(t testing.TB, net *Net, host string, c *Chain, chainID int64) *Node {
	t.Helper()
	n := newNode(host, c, chainID)
	l := net.listen(host)
	server := &http.Server{Handler: n}
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		n.CloseSockets()
		serving.Wait()
	})
	return n
}

func newNode(host string, c *Chain, chainID int64) *Node {
	return &Node{
		Host: host, chain: c, chainID: chainID, head: c.First(),
		code: map[string]string{}, handlers: map[string]Handler{}, sockets: map[*socket]bool{}, calls: map[string]int{},
	}
}

func (n *Node) locked(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// SetHead makes b the newest block, and tells subscribers.
func (n *Node) SetHead(b *Block) {
	n.mu.Lock()
	n.head = b
	var all []*socket
	for s := range n.sockets {
		if !n.mute {
			all = append(all, s)
		}
	}
	n.mu.Unlock()
	for _, s := range all {
		s.event("newHeads", b.JSON(false))
	}
}

// Head returns the newest block.
func (n *Node) Head() *Block {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.head
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

// OnHTTP has every HTTP request be seen first by f, which says whether it answered it.
func (n *Node) OnHTTP(f func(w http.ResponseWriter, r *http.Request, body []byte) bool) {
	n.locked(func() { n.raw = f })
}

// RefuseBatches refuses batches of more than max calls.
func (n *Node) RefuseBatches(max int) { n.locked(func() { n.maxBatch = max }) }

// Mute takes subscriptions and never serves them.
func (n *Node) Mute(on bool) { n.locked(func() { n.mute = on }) }

// Requests returns how many requests came: a batch is one.
func (n *Node) Requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests
}

// Batches returns how many calls each request had.
func (n *Node) Batches() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]int(nil), n.batches...)
}

// Calls returns how often a method was called.
func (n *Node) Calls(method string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[method]
}

// Auth returns the Authorization headers that came.
func (n *Node) Auth() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.auth...)
}

// ServeHTTP answers a request, or upgrades it to a WebSocket.
func (n *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.locked(func() { n.auth = append(n.auth, r.Header.Get("Authorization")) })
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	n.mu.Lock()
	raw := n.raw
	n.mu.Unlock()
	if raw != nil && raw(w, r, body) {
		return
	}
	if websocket.IsWebSocketUpgrade(r) {
		n.upgrade(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(n.answer(body, nil))
}

type request struct {
	ID     json.RawMessage   `json:"id"`
	Method string            `json:"method"`
	Params []json.RawMessage `json:"params"`
}

type reply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
	silent  bool
}

// answer returns what is answered to a request; s is the WebSocket that it came over.
func (n *Node) answer(body []byte, s *socket) []byte {
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
		var q request
		if json.Unmarshal(body, &q) != nil {
			return encode(reply{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: -32700, Message: "parse error"}})
		}
		n.note(q)
		r := n.one(q, s)
		if r.silent {
			return nil
		}
		return encode(r)
	}
	var all []request
	if json.Unmarshal(body, &all) != nil || len(all) == 0 {
		return encode(reply{Version: "2.0", ID: json.RawMessage("null"), Error: &Error{Code: -32700, Message: "parse error"}})
	}
	n.note(all...)
	n.mu.Lock()
	maxCalls := n.maxBatch
	n.mu.Unlock()
	if maxCalls > 0 && len(all) > maxCalls { // as go-ethereum says it
		return encode([]reply{{Version: "2.0", ID: all[0].ID, Error: &Error{Code: -32600, Message: "batch too large"}}})
	}
	replies := make([]reply, len(all))
	for i, q := range all {
		replies[i] = n.one(q, s)
	}
	return encode(replies)
}

func (n *Node) note(all ...request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests++
	n.batches = append(n.batches, len(all))
	for _, q := range all {
		n.calls[q.Method]++
	}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("fakenode: %v", err))
	}
	return data
}

// null is a result that is null.
var null = json.RawMessage("null")

func (n *Node) one(q request, s *socket) reply {
	r := reply{Version: "2.0", ID: q.ID}
	n.mu.Lock()
	h := n.handlers[q.Method]
	n.mu.Unlock()
	result, err := any(nil), ErrUsual
	if h != nil {
		result, err = h(q.Params)
	}
	if errors.Is(err, ErrUsual) {
		result, err = n.usual(q.Method, q.Params, s)
	}
	switch e := err.(type) {
	case nil:
		r.Result = result
		if result == nil {
			r.Result = null
		}
	case *Error:
		r.Error = e
	default:
		r.silent = errors.Is(err, ErrSilent)
		r.Error = &Error{Code: -32000, Message: err.Error()}
	}
	return r
}

// text reads a parameter that is a string; anything else is "".
func text(params []json.RawMessage, i int) (s string) {
	if i < len(params) {
		_ = json.Unmarshal(params[i], &s) // no string: ""
	}
	return strings.ToLower(s)
}
