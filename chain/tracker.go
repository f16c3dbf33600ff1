package chain

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"noncegate/nonce"
)

// Service is what a Tracker asks of the nonce service: it reads, and ends holds of
// which the chain has decided. service.Service is one.
type Service interface {
	Do(ctx context.Context, q *nonce.Request) (nonce.Result, error)
	WorkerIndex(signer string) int
	// Watched are signers of this node's shards that the store lists as watched, at most limit,
	// in order of ID and above after.
	Watched(ctx context.Context, after int64, limit int) ([]nonce.WatchEntry, error)
	// Tend has this node own a signer of one of its shards, and the store list it as its chain
	// says now.
	Tend(ctx context.Context, signer string) error
	// OwnerOf is the node that owns a signer as this one sees it: this one, or another and its URL; "": none.
	OwnerOf(signer string) (node, url string, mine bool)
	// Elsewhere reports whether a request for the signer goes to another node.
	Elsewhere(signer string) bool
}

// Tracker keeps, in memory only, what one chain says of the signers that this node serves, and does what
// follows from that by ordinary ops.
type Tracker struct {
	chain   Chain
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	svc  Service
	sink nonce.EventSink

	mu      sync.Mutex
	signers map[string]*signer     // by account
	byName  sync.Map               // account to *signer, as signers is: what requests look at, without mu
	open    map[*signer]bool       // that have something open, or are to be looked at
	asking  []*signer              // that are to be asked for with Start
	pending pending                // what heads said since the follower looked last
	stopped atomic.Bool            // the final block fell: nothing is done by itself any more
	head    atomic.Pointer[Head]   // the last one, without its uses; nil: none yet
	block   atomic.Int64           // about how long a block takes, nanoseconds
	clock   atomic.Int64           // about now, Unix seconds: what plans note, twice a second
	said    atomic.Pointer[string] // why nodes did not answer Start lately; nil: they did

	seldom, silent rate.Sometimes // lines about counts that are not believed, and of no answer

	memory *memory

	startNow, headNow chan struct{} // capacity 1
}

// New makes the tracker of a chain. Serve must be called before Run.
func New(c Chain, cfg Config, reg prometheus.Registerer, log *slog.Logger) *Tracker {
	cfg.complete()
	t := &Tracker{
		chain: c, cfg: cfg, log: log.With("component", "chain", "chain", c.ID()),
		signers: make(map[string]*signer), open: make(map[*signer]bool),
		seldom: rate.Sometimes{Interval: time.Minute}, silent: rate.Sometimes{Interval: time.Minute},
		memory:   newMemory(),
		startNow: make(chan struct{}, 1), headNow: make(chan struct{}, 1),
	}
	t.clock.Store(time.Now().Unix())
	t.metrics = newMetrics(t, reg)
	return t
}

// Serve gives the tracker the service that it works for, and the sink of its events.
func (t *Tracker) Serve(svc Service, sink nonce.EventSink) { t.svc, t.sink = svc, sink }

// Run follows the chain until ctx ends, and returns when all is quiet.
func (t *Tracker) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { t.chain.Run(ctx, t.heard) })
	all.Go(func() { t.starter(ctx) })
	all.Go(func() { t.follower(ctx) })
	all.Go(func() { t.watcher(ctx) })
	all.Wait()
	t.mu.Lock()
	left := t.asking
	t.asking = nil
	t.mu.Unlock()
	for _, s := range left {
		s.answered(time.Now())
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// known is the entry of an account; nil: there is none.
func (t *Tracker) known(account string) *signer {
	s, _ := t.byName.Load(account)
	entry, _ := s.(*signer)
	return entry
}

// newSigner makes a signer that is in no table and that no node is asked about.
func (t *Tracker) newSigner(name, account string) *signer {
	s := &signer{t: t, name: name, account: account, hash: hashOf(name)}
	s.used.Store(time.Now().Unix())
	s.publishLocked()
	return s
}

// signer finds or makes the entry of a signer. One beyond the bound is not kept.
func (t *Tracker) signer(name, account string) *signer {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.signers[account]
	if s == nil {
		s = t.newSigner(name, account)
		t.enterLocked(s)
		t.askLocked(s)
	}
	return s
}

// keep makes a signer that plans use the entry of its account, where there is room, and
// reports whether it is. It may have been forgotten, and has then missed what blocks said.
func (t *Tracker) keep(s *signer) bool {
	t.mu.Lock()
	t.enterLocked(s)
	t.mu.Unlock()
	s.mustCount() // before the nodes are asked, whose answer has the count asked for
	if s.kept.Load() || s.began.Load() == 0 {
		t.askStart(s)
	}
	return s.kept.Load()
}

func (t *Tracker) enterLocked(s *signer) {
	is := t.signers[s.account]
	switch {
	case is == s:
		return
	case is != nil: // a request waits for its first answer, which goes on
		is.kept.Store(false)
		delete(t.open, is)
	case len(t.signers) >= t.cfg.MaxSigners && !t.evictLocked():
		return
	}
	t.signers[s.account] = s
	t.byName.Store(s.account, s)
	s.kept.Store(true)
}

// evictSome is how many entries are looked at for one that can be forgotten.
const evictSome = 64

// An entry that was not used for so long may be forgotten. In mode basic no worker says that
// a signer is not owned any more; one that still has it makes it an entry again.
const (
	evictAfter      = time.Minute
	evictOwnedAfter = 15 * time.Minute
)

// evictLocked forgets an entry that is not used.
func (t *Tracker) evictLocked() bool {
	looked := 0
	for account, s := range t.signers {
		looked++
		if looked > evictSome {
			return false
		}
		idle := time.Since(s.lastUsed())
		if !t.open[s] && (idle > evictOwnedAfter || idle > evictAfter && !s.owned.Load()) {
			delete(t.signers, account)
			t.byName.Delete(account)
			s.kept.Store(false)
			return true
		}
	}
	return false
}
