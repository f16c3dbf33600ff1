package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/internal/events"
	"noncegate/lease"
	"noncegate/nonce"
)

// Service runs what other nodes send. A service.Service is one.
type Service interface {
	Reserve(signer string, p nonce.Principal) (nonce.Slot, bool)
	SubmitOf(path *nonce.Path, slot *nonce.Slot, q *nonce.Request, r *nonce.Result, done nonce.Completion)
	WorkerIndex(signer string) int
}

// Local is this node, as the links need it.
type Local struct {
	Service Service
	Events  EventSink   // takes what other nodes committed
	Hub     *events.Hub // tells what this one did
	// Chain is asked what blockchains say of signers. nil: no chain is configured.
	Chain nonce.Chain
	// MinHold and MaxHold bound the holds that another node may ask for, by whose settings others may do.
	MinHold, MaxHold time.Duration
	// Reason is what clients are told of an error as data.reason, by which answers to other nodes are counted.
	Reason func(error) string
	// Interest is what the clients of this node want to hear of just now.
	Interest func() events.Interest
}

const (
	// maxPeers bounds the nodes known at a time. It is far above any cluster and
	// keeps a registry full of rubbish from costing goroutines without end.
	maxPeers = 1024
	// unlistedTime is how long a node is believed in that only the store has
	// named: its start is newer than what the registry was last read.
	unlistedTime = 5 * time.Second
)

// Router is a service.Router. Its methods may be called from any goroutine.
type Router struct {
	cfg     Config
	self    string
	log     *slog.Logger
	metrics *Metrics
	links   atomic.Int64 // the number of the last link to any node

	// peers are the other nodes, by id. The map is never changed, only replaced, under mu.
	peers    atomic.Pointer[map[string]*peer]
	interest atomic.Pointer[interest] // what clients want to hear of; set under mu

	ctx     context.Context // ends at Stop
	cancel  context.CancelCauseFunc
	keepers sync.WaitGroup

	served chan struct{} // closed by Serve, after which local is set, and links begin
	local  Local
	door   door

	mu      sync.Mutex // guards what follows; taken before any peer.mu
	stopped bool
	moved   chan struct{} // closed when another node has taken up an interest, or cannot be waited for
}

// New makes the router of the node whose id is self. It knows no other node until
// Nodes is called, and reaches none until Serve.
func New(self string, cfg Config, m *Metrics, log *slog.Logger) (*Router, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	r := &Router{
		cfg: cfg, self: self, log: log.With("component", "cluster"), metrics: m,
		served: make(chan struct{}),
		moved:  make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.interest.Store(new(interest))
	r.door.init(&r.cfg)
	m.inflight.Store(r.door.inflight)
	r.peers.Store(new(map[string]*peer))
	return r, nil
}

// Serve gives the router whom it works for, and lets it open links. It is called
// once, before the service is given an op. incarnation is this start of the node by
// the registry.
func (r *Router) Serve(incarnation int64, local Local) {
	r.local = local
	r.links.Store(incarnation << 32) // links of a later start have higher numbers
	close(r.served)
}

// Nodes tells the router which nodes the registry has now, this one included. The
// lists of one registry are given in the order in which they were read.
func (r *Router) Nodes(list []lease.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	listed, peers := make(map[string]bool, len(list)), r.copyPeers()
	for _, n := range list {
		listed[n.Node] = true
		if n.Node == r.self {
			continue
		}
		p := peers[n.Node]
		if p == nil {
			if p = r.meetLocked(n, peers); p == nil {
				continue
			}
		}
		p.update(n)
	}
	for id, p := range peers {
		if !listed[id] && (p.listed || time.Since(p.met) > unlistedTime) {
			delete(peers, id)
			p.cancel(errForgotten)
		}
	}
	r.peers.Store(&peers)
}

// meetLocked makes a peer of a node that was not known, and adds it to peers; nil when there are too
// many.
func (r *Router) meetLocked(n lease.Node, peers map[string]*peer) *peer {
	if len(peers) >= maxPeers {
		r.log.Error("more nodes than can be known; some are not", "max", maxPeers)
		return nil
	}
	p := newPeer(r, n)
	if !r.interest.Load().empty() { // it may have committed things already
		p.subs.gap = gapOpen
	}
	peers[n.Node] = p
	r.keepers.Go(p.keep)
	return p
}

// Reaches reports whether ops can be sent to a node now, as far as is known: it is live, has
// not begun to leave, and its link is not lost.
func (r *Router) Reaches(node string) bool {
	p := r.known()[node]
	return p != nil && r.cfg.Forward && p.reachable()
}

// Forward takes a request over and sends it to the node. Requests of one signer sent to one node
// reach it in the order of the calls. With an error nothing was sent and the request is still the
// caller's: nonce.ErrPeerAway, nonce.ErrOtherVersion or nonce.ErrForwardBusy. If it is nil, the router
// calls of.Return once, from a goroutine of its own. A node that
// the registry did not name yet is reached under url.
func (r *Router) Forward(node, url string, q *nonce.Request, path uint64, of nonce.Forwarded) error {
	err := nonce.ErrPeerAway
	if r.cfg.Forward && node != r.self {
		p := r.known()[node]
		if p == nil {
			p = r.peerFor(node, url)
		}
		if p != nil {
			err = p.send(op{q, path, of})
		}
	}
	switch err {
	case nil:
	case nonce.ErrForwardBusy:
		r.metrics.forwarded.Inc(resultBusy)
	default:
		r.metrics.forwarded.Inc(resultAway)
	}
	return err
}

// peerFor makes a peer of a node that only the store has named so far.
func (r *Router) peerFor(node, url string) *peer {
	if url == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.known()[node]; p != nil || r.stopped {
		return p
	}
	peers := r.copyPeers()
	// It owns a signer, so it takes leases.
	p := r.meetLocked(lease.Node{Holder: lease.Holder{Node: node}, URL: url, Mode: modeWorkerQueue, Live: true}, peers)
	r.peers.Store(&peers)
	return p
}

// Stop ends all links and gives back what is under way: what was not sent as
// bounced, what was as doubtful. From then on Forward refuses. It returns when
// everything is quiet, or with an error when ctx is over before; it may be called
// twice, and without Serve.
func (r *Router) Stop(ctx context.Context) error {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.door.mu.Lock()
	r.door.leaving, r.door.stopped = true, true
	r.door.mu.Unlock()
	r.cancel(errStopped)
	quiet := make(chan struct{})
	go func() {
		r.keepers.Wait()
		r.door.serving.Wait()
		close(quiet)
	}()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cluster: links did not end: %w", context.Cause(ctx))
	}
}

func (r *Router) copyPeers() map[string]*peer {
	peers := make(map[string]*peer)
	maps.Copy(peers, r.known())
	return peers
}

func (r *Router) known() map[string]*peer { return *r.peers.Load() }

// Figures is to how many nodes a link is open, how many it was tried to reach in vain that are live by the
// registry, and how many requests are under way at all.
func (r *Router) Figures() (linked, unreachable, underWay int) {
	for _, p := range r.known() {
		p.mu.Lock()
		switch {
		case p.leaving:
		case p.up:
			linked++
		case p.suspect && p.node.Live && p.listed:
			unreachable++
		}
		underWay += p.inflight.order.Len()
		p.mu.Unlock()
	}
	return linked, unreachable, underWay
}
