package endpoint

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"

	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// Nodes are the nodes of a chain, as ethereum.Client has them.
type Nodes interface {
	chain.Chain
	Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *ethereum.RPCError, error)
	Subscribe(ctx context.Context, params json.RawMessage, on func(json.RawMessage), ended func(error)) (
		unsubscribe func(), refusal *ethereum.RPCError, err error)
}

var _ Nodes = (*ethereum.Client)(nil)

// Chains say how far accounts are. chain.Chains is one.
type Chains interface {
	Ready(name string, wait time.Duration, done func()) bool
	State(name string) (nonce.ChainState, bool)
	Version(name string) int64
	Stopped(name string) bool
	Words(name string, rows []nonce.Row) []string
}

var _ Chains = (*chain.Chains)(nil)

// Events are told that a transaction was sent: the nonce.EventSink of the gateway,
// and service.Service.WorkerIndex.
type Events struct {
	Sink        nonce.EventSink
	WorkerIndex func(signer string) int
}

// Config are the settings of an Endpoint. Zero means the default, except for Take.
type Config struct {
	Take      bool          // a transaction may take, in passing, the nonce that would be handed out next
	ReadyWait time.Duration // for what the chain says of a signer that is new
	// Replaces reports whether the transactions of a principal may replace others of their
	// nonces, whatever these pay; nil: of none.
	Replaces func(nonce.Principal) bool

	// Those below are set by tests alone.

	NodesWait    time.Duration // for how long a question is asked again while no node can be asked
	OrderWait    time.Duration // for the transactions before one whose nonce is ahead of the next one
	CountWait    time.Duration // of one beyond the window, for the gateway to count a block that a node already has
	OfferAgain   time.Duration // until one whose outcome is not known is offered to the nodes again
	ReceiptEvery time.Duration // between two questions for a receipt

	MaxFeeds, MaxFilterBytes int // subscriptions at the nodes, and what they were asked for with; a principal may have a quarter
}

const (
	// readTimeout bounds one question to the nodes.
	readTimeout = 30 * time.Second
	// sendTimeout bounds the giving of one transaction to the nodes. Past it the outcome is unknown.
	sendTimeout = 20 * time.Second
	// shareOfPrincipal: one principal may have one in so many of the places that all share.
	shareOfPrincipal = 4
)

func (c *Config) complete() {
	c.NodesWait = cmp.Or(c.NodesWait, time.Second)
	c.ReadyWait = cmp.Or(c.ReadyWait, 3*time.Second)
	c.OrderWait = cmp.Or(c.OrderWait, time.Second)
	c.CountWait = cmp.Or(c.CountWait, 8*time.Second)
	c.OfferAgain = cmp.Or(c.OfferAgain, 3*time.Second)
	c.ReceiptEvery = cmp.Or(c.ReceiptEvery, 250*time.Millisecond)
	c.MaxFeeds = cmp.Or(c.MaxFeeds, ethereum.MaxSubscriptions)
	c.MaxFilterBytes = cmp.Or(c.MaxFilterBytes, 64<<20)
}

// Endpoint answers for one chain. It is a relay.Handler.
type Endpoint struct {
	nodes   Nodes
	chains  Chains
	events  Events
	sent    nonce.SentStore
	cfg     Config
	log     *slog.Logger
	seldom  seldom
	metrics *counters
	methods *methods

	chainID  uint64
	paths    []string // of all endpoints, since Handler
	lines    *lines
	feeds    feeds
	receipts singleflight.Group      // questions for receipts, by hash
	offerer  atomic.Pointer[Offerer] // nil: none
}

var _ relay.Handler = (*Endpoint)(nil)

// New makes the endpoint of a chain. It ends with the ws.Server that serves it, and must
// not outlive nodes.
func New(nodes Nodes, chains Chains, events Events, sent nonce.SentStore, cfg Config, reg prometheus.Registerer, log *slog.Logger) (
	*Endpoint, error,
) {
	cfg.complete()
	list := knownMethods()
	digits, ok := strings.CutPrefix(nodes.ID(), "eip155:")
	id, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("chain %s is none of Ethereum's", nodes.ID())
	}
	e := &Endpoint{
		nodes: nodes, chains: chains, events: events, sent: sent, cfg: cfg, chainID: id, methods: list, lines: newLines(),
		log: log.With("component", "endpoint", "chain", nodes.ID()),
	}
	e.feeds = feeds{e: e, byKey: map[feedKey]*feed{}, usages: map[nonce.Principal]feedsUse{}}
	e.metrics = newMetrics(nodes.ID(), list.known(), e.feeds.len, reg)
	return e, nil
}

// Path is where the endpoint of the chain is to be served.
func (e *Endpoint) Path() string { return Prefix + strconv.FormatUint(e.chainID, 10) }

// Ordered implements relay.Handler.
func (e *Endpoint) Ordered(method string) bool {
	return method == methodSend || method == methodSendSync || method == methodCount
}

// Answer implements relay.Handler.
func (e *Endpoint) Answer(ctx context.Context, c *relay.Call) relay.Answer {
	a := e.answer(ethereum.ForPrincipal(ctx, c.Principal()), c)
	e.metrics.answered(c.Method, &a)
	return a
}

func (e *Endpoint) answer(ctx context.Context, c *relay.Call) relay.Answer {
	switch c.Method {
	case methodChainID:
		return result(quantity(e.chainID))
	case methodVersion:
		return result(strconv.FormatUint(e.chainID, 10))
	case methodAccounts:
		return relay.Answer{Result: []byte("[]")}
	case methodCount:
		return e.count(ctx, c)
	case methodSend:
		return e.send(ctx, c)
	case methodSendSync:
		return e.sendSync(ctx, c)
	case methodSubscribe:
		return e.subscribe(ctx, c)
	case methodUnsubscribe:
		return e.unsubscribe(c)
	}
	if e.methods.pass[c.Method] {
		return e.pass(ctx, c)
	}
	return relay.Answer{Err: e.noMethod(c.Method)}
}

// mayRead refuses a client that may not read through the nodes of the chain.
func (e *Endpoint) mayRead(c *relay.Call) *wire.Error {
	if c.May(access.RightChain, access.ChainOf(e.nodes.ID())) {
		return nil
	}
	err := wire.Errorf(wire.CodeForbidden,
		"the right %s on %s:* is missing, without which nothing is read through the nodes of this chain; nothing happened",
		access.RightChain, e.nodes.ID())
	err.Data.Right = access.RightChain.String()
	return err
}

// pass asks a node what the client asks.
func (e *Endpoint) pass(ctx context.Context, c *relay.Call) relay.Answer {
	params, err := array(c.Params)
	if err != nil {
		return relay.Answer{Err: err}
	}
	if err := e.mayRead(c); err != nil {
		return relay.Answer{Err: err}
	}
	if c.Method == methodLogs && noBlocks(params) {
		return relay.Answer{Result: []byte("[]")}
	}
	return e.ask(ctx, c.Method, params)
}

// noBlocks reports whether eth_getLogs asks for the logs of no block: the range ends just
// before it begins. ethers does so between two blocks, where there are no filters, and does
// not survive that nodes call it an error.
func noBlocks(params []byte) bool {
	var filters []struct{ FromBlock, ToBlock json.RawMessage }
	if json.Unmarshal(params, &filters) != nil || len(filters) != 1 {
		return false
	}
	from, begins := number(filters[0].FromBlock)
	to, ends := number(filters[0].ToBlock)
	return begins && ends && from == to+1
}

// ask asks a node.
func (e *Endpoint) ask(ctx context.Context, method string, params []byte) relay.Answer {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var got json.RawMessage
	var refusal *ethereum.RPCError
	err := e.patiently(ctx, func() (err error) {
		got, refusal, err = e.nodes.Call(ctx, method, params)
		return err
	})
	if err != nil || refusal != nil {
		return unanswered(refusal, err)
	}
	return relay.Answer{Result: got}
}

// unanswered is the answer where a node refused, or none could be asked.
func unanswered(refusal *ethereum.RPCError, err error) relay.Answer {
	if err != nil {
		return relay.Answer{Err: errOfNodes(err)}
	}
	return relay.Answer{Foreign: &relay.Foreign{Code: refusal.Code, Message: refusal.Message, Data: refusal.Data}}
}

// nodesPause is how long nodes that could not be asked are left alone.
const nodesPause = 100 * time.Millisecond

// patiently asks nodes, and again for a while if none can be asked.
func (e *Endpoint) patiently(ctx context.Context, ask func() error) error {
	for began := time.Now(); ; {
		err := ask()
		away := errors.Is(err, chain.ErrUnreachable) || errors.Is(err, ethereum.ErrClosed)
		if !away || time.Since(began)+nodesPause > e.cfg.NodesWait || !pause(ctx, nodesPause) {
			return err
		}
	}
}

// result is an answer that is a string.
func result(text string) relay.Answer { return relay.Answer{Result: strconv.AppendQuote(nil, text)} }

// quantity writes a number as Ethereum does.
func quantity(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }
