package chain

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
	Do(ctx context.Context, op *nonce.Op) error
	WorkerIndex(signer string) int
	// Watched are signers of this node's shards that the store lists as watched, at most limit,
	// in order of ID and above after.
	Watched(ctx context.Context, after int64, limit int) ([]nonce.WatchEntry, error)
	// Tend has this node own a signer of one of its shards, and the store list it as its chain
	// says now.
	Tend(ctx context.Context, signer string) error
}

// Tracker keeps, in memory only, what one chain says of the signers that this node
// serves: how far their accounts are, what the nodes have seen, which nonce blocks
// others. It answers plans from memory (nonce.ChainSigner), and what follows from the
// chain it does by ordinary ops.
//
// It promises that a count only falls with a reorganization, that nothing is called
// external or unseen while a node could not be asked, and that the memory is bounded.
// It does not promise that a gap is reported once: after a take-over two nodes may both report it.
//
// Goroutines: Run starts four and waits for them. starter asks where new signers
// stand, follower follows heads and asks for counts, watcher looks at what is open;
// the fourth is the Chain's own Run.
//
// Locks: Tracker.mu guards the tables, signer.mu one signer. Nobody who has one of
// them takes the other, and no question is asked under either.
type Tracker struct {
	chain   Chain
	cfg     Config
	log     *slog.Logger
	metrics *metrics

	svc  Service
	sink nonce.EventSink // nil: nobody wants events

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

// pending is what several heads come to.
type pending struct {
	heads   int
	uses    []Use
	skipped bool
	reorg   *Reorg // the deepest
}

// maxUses bounds the uses that wait for the follower; with more of them counts are
// asked for.
const maxUses = 10_000

// New makes the tracker of a chain. Serve must be called before Run.
func New(c Chain, cfg Config, reg prometheus.Registerer, log *slog.Logger) (*Tracker, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	t := &Tracker{
		chain: c, cfg: cfg, log: log.With("component", "chain", "chain", c.ID()),
		signers: make(map[string]*signer), open: make(map[*signer]bool),
		seldom: rate.Sometimes{Interval: time.Minute}, silent: rate.Sometimes{Interval: time.Minute},
		memory:   newMemory(),
		startNow: make(chan struct{}, 1), headNow: make(chan struct{}, 1),
	}
	t.clock.Store(time.Now().Unix())
	t.metrics = newMetrics(t, reg)
	return t, nil
}

// Serve gives the tracker whom it works for. sink may be nil.
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
	if s.kept.Load() || s.began.Load() == 0 {
		t.askLocked(s)
	}
	t.mu.Unlock()
	s.mustCount()
	return s.kept.Load()
}

func (t *Tracker) enterLocked(s *signer) {
	is := t.signers[s.account]
	switch {
	case is == s:
		return
	case is != nil: // of somebody who waits for a first answer, which goes on
		is.kept.Store(false)
		delete(t.open, is)
	case len(t.signers) >= t.cfg.MaxSigners && !t.evictLocked():
		return
	}
	t.signers[s.account] = s
	t.byName.Store(s.account, s)
	s.kept.Store(true)
}

// askStart makes the starter ask where the signer stands.
func (t *Tracker) askStart(s *signer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.askLocked(s)
}

// askLocked makes the starter ask where the signer stands.
func (t *Tracker) askLocked(s *signer) {
	if s.asked || len(t.asking) >= t.cfg.MaxSigners {
		return
	}
	s.asked = true
	t.asking = append(t.asking, s)
	signal(t.startNow)
}

// evictSome is how many entries are looked at for one that can be forgotten.
const evictSome = 64

// An entry may be forgotten that nobody used for so long. In mode basic nobody says that
// a signer is not owned any more; a worker that still has one makes it an entry again.
const (
	evictAfter      = time.Minute
	evictOwnedAfter = 15 * time.Minute
)

// evictLocked forgets an entry that nobody uses.
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

// watch puts a signer among those that the watcher looks at.
func (t *Tracker) watch(s *signer) {
	if s.watched.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signers[s.account] == s {
		s.watched.Store(true)
		t.open[s] = true
	}
}

// unwatch takes it out again.
func (t *Tracker) unwatch(s *signer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.watched.Store(false)
	delete(t.open, s)
}

// starter asks again and again where signers stand that are new here.
func (t *Tracker) starter(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.startNow:
		case <-pause.C:
		}
		if !t.startSome(ctx) {
			pause.Reset(startAgain)
		}
	}
}

const (
	startBatch = 100
	startAgain = 500 * time.Millisecond // after a question that nobody answered
)

// startSome asks for everybody who waits, and returns false when some have to wait
// on.
func (t *Tracker) startSome(ctx context.Context) bool {
	for {
		t.mu.Lock()
		n := min(len(t.asking), startBatch)
		asked := t.asking[:n:n]
		for _, s := range asked {
			s.asked = false
		}
		t.asking = t.asking[n:]
		t.mu.Unlock()
		if n == 0 {
			return true
		}
		if left, err := t.start(ctx, asked); err != nil {
			t.mu.Lock()
			for _, s := range left {
				if !s.asked {
					s.asked = true
					t.asking = append(t.asking, s)
				}
			}
			t.mu.Unlock()
			if !errors.Is(err, context.Canceled) {
				t.silent.Do(func() {
					t.log.Warn("no node says where accounts stand, so that new signers cannot begin", "accounts", len(left), "error", err)
				})
			}
			return false
		}
	}
}

// start asks where signers stand. With an error some are left to be asked for again: all, or new ones
// about which the nodes disagree.
func (t *Tracker) start(ctx context.Context, asked []*signer) (left []*signer, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	accounts := make([]string, len(asked))
	for i, s := range asked {
		accounts[i] = s.account
	}
	sent := time.Now()
	starts, err := t.chain.Start(ctx, accounts)
	if err != nil {
		t.said.Store(said(err))
		return asked, err
	}
	var doubt error
	var begun []*signer
	for i, s := range asked {
		if starts[i].Doubt != nil && s.next.Load() == 0 {
			left, doubt = append(left, s), starts[i].Doubt
			continue
		}
		begun = append(begun, s)
		t.report(s, s.begin(starts[i]))
		signal(t.headNow) // which settles what it began with
	}
	t.said.Store(said(doubt))
	if err := t.lookAnew(ctx, begun); err != nil {
		return asked, err
	}
	for _, s := range begun {
		s.answered(sent)
	}
	return left, doubt
}

// said is an error of the nodes as a client may be told it.
func said(err error) *string {
	if err == nil {
		return nil
	}
	text := strings.Map(func(r rune) rune {
		switch {
		case r == '"', r == '\\':
			return '\''
		case r < ' ', r > '~', r == '<', r == '>', r == '&':
			return ' '
		}
		return r
	}, err.Error())
	text = text[:min(len(text), nonce.MaxSaid)]
	return &text
}

// lookAnew asks what nodes have of the lowest open nonces of those of whom somebody wants to know.
func (t *Tracker) lookAnew(ctx context.Context, asked []*signer) error {
	var of []*signer
	var asks []Ask
	for _, s := range asked {
		s.mu.Lock()
		if s.anew {
			of, asks = append(of, s), append(asks, s.askLocked(s.mined, s.lookLocked(s.mined)))
		}
		s.mu.Unlock()
	}
	if len(of) == 0 {
		return nil
	}
	found, err := t.chain.Lookup(ctx, asks)
	if err != nil {
		return err
	}
	at := t.number()
	for i, s := range of {
		s.sighted(asks[i].Nonce, &found[i], at)
		s.mu.Lock()
		s.anew = false
		if found[i].Seen == Mined {
			s.hintLocked(asks[i].Nonce + 1)
		}
		s.mu.Unlock()
	}
	return nil
}

// tell hands events of one signer to who subscribed.
func (t *Tracker) tell(s *signer, events ...nonce.Event) {
	if t.sink == nil || len(events) == 0 || !t.sink.Watched(s.name) {
		return
	}
	now := time.Now()
	for i := range events {
		events[i].Signer, events[i].Version, events[i].At = s.name, s.version.Load(), now
	}
	t.sink.Publish(t.svc.WorkerIndex(s.name), false, events)
}

// gapAfter is how long something waits behind a nonce until that is called a gap.
func (t *Tracker) gapAfter() time.Duration { return t.blocksAtLeast(t.cfg.GapAfter) }

// blocksAtLeast is a time, or as long as gapBlocks take.
func (t *Tracker) blocksAtLeast(d time.Duration) time.Duration {
	return max(d, gapBlocks*time.Duration(t.block.Load()))
}
