package ethereum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"noncegate/chain"
	"noncegate/chain/ethereum/address"
)

// Client is an Ethereum chain, seen through its nodes. All its methods may be called by
// many goroutines; those that ask nodes work while Run runs.
type Client struct {
	set   *settings
	log   *slog.Logger
	m     *metrics
	table *answers
	nodes []*node // in the order of Config.Nodes
	tried *tried

	differ  rate.Sometimes // lines about counts that differ
	views   chan *view     // from the pollers to the follower
	newHead chan struct{}  // holds one: a node told of a block
	back    chan struct{}  // holds one: a node is connected
	noFinal atomic.Bool    // no node names a final block
	subs    chan struct{}  // a slot for each subscription of others

	mu      sync.Mutex // guards what follows; no I/O beneath it
	running context.Context
	ended   bool
	calls   sync.WaitGroup // methods under way, and sends after their answer
	head    chain.Block
	final   chain.Block
	example string // an account that has sent a transaction
	headAt  time.Time
	sticky  *node // that Call asked last; nil: none yet
}

// MaxSubscriptions bounds the subscriptions of others.
const MaxSubscriptions = 4096

// New makes a Client, which asks no node before Run. The error is a *SettingError.
func New(cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Client, error) {
	set, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	c := &Client{
		set: set, log: log.With("chain", set.ID), table: knownAnswers(), tried: newTried(maxTried),
		views:   make(chan *view, len(set.Nodes)),
		newHead: make(chan struct{}, 1),
		back:    make(chan struct{}, 1),
		subs:    make(chan struct{}, MaxSubscriptions),
		headAt:  time.Now(),
		differ:  rate.Sometimes{Interval: time.Minute},
	}
	for i := range set.Nodes {
		c.nodes = append(c.nodes, newNode(c, i))
	}
	c.m = newMetrics(reg, c)
	return c, nil
}

// ID implements chain.Chain.
func (c *Client) ID() string { return c.set.ID }

// Run implements chain.Chain. It owns all goroutines of the Client: when it returns,
// none is left, and methods that were under way have ended.
func (c *Client) Run(ctx context.Context, on func(chain.Head)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.running, c.headAt = ctx, time.Now()
	c.mu.Unlock()
	var own sync.WaitGroup
	for _, n := range c.nodes {
		own.Go(func() { n.link.Run(ctx) })
		own.Go(func() { n.pollLoop(ctx) })
	}
	newFollower(c, on).run(ctx)
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	cancel()
	c.calls.Wait()
	own.Wait()
}

// begin says that a method about accounts, 0x and 40 lower-case digits, begins, and returns a context that also
// ends with Run. done must be called once. The error is about an account, or chain.ErrUnreachable and ErrClosed.
func (c *Client) begin(ctx context.Context, accounts ...string) (_ context.Context, done func(), err error) {
	for i, a := range accounts {
		if parsed, err := address.Parse(a); err != nil || parsed.String() != a {
			return nil, nil, fmt.Errorf("accounts[%d] must be 0x and 40 lower-case hexadecimal digits, is %q", i, a)
		}
	}
	c.mu.Lock()
	running := c.running
	if running == nil || c.ended {
		c.mu.Unlock()
		return nil, nil, fmt.Errorf("%w: %w", chain.ErrUnreachable, ErrClosed)
	}
	c.calls.Add(1)
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := context.AfterFunc(running, func() { cancel(ErrClosed) })
	return ctx, func() {
		unwatch()
		cancel(nil)
		c.calls.Done()
	}, nil
}

// wake tells the follower, over a channel that holds one. It does not block.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// eligible returns the nodes that may be asked for counts.
func (c *Client) eligible() []*node {
	var all []*node
	for _, n := range c.nodes {
		if n.eligible() {
			all = append(all, n)
		}
	}
	return all
}

// inParallel asks nodes at the same time and waits for all.
func inParallel(nodes []*node, ask func(i int, n *node)) {
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { ask(i, n) })
	}
	all.Wait()
}

// unreachable is the error of a method for which no node could be asked: that of the first
// node of which it tells more than that it is left alone or not connected.
func unreachable(nodes []*node, errs []error) error {
	var why error
	for i, err := range errs {
		if err == nil {
			continue
		}
		plain := errors.Is(err, errBackingOff) || errors.Is(err, errNotConnected)
		if plain {
			err = fmt.Errorf("%w (%s)", err, nodes[i].status().LastError)
		}
		if why == nil || !plain {
			why = fmt.Errorf("%w: %s: %w", chain.ErrUnreachable, nodes[i].name, err)
		}
		if !plain {
			break
		}
	}
	return cmp.Or(why, chain.ErrUnreachable)
}
