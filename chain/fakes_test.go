package chain

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/nonce"
)

const (
	alice = "eip155:1:0x00000000000000000000000000000000000000aa"
	bob   = "eip155:1:0x00000000000000000000000000000000000000bb"
)

func account(signer string) string { return signer[len("eip155:1:"):] }

// fakeChain says what the test wants. Its fields are guarded by mu.
type fakeChain struct {
	heads chan Head

	mu      sync.Mutex
	away    bool
	doubt   bool // about what accounts have pending
	mined   map[string]int64
	final   map[string]int64
	pending map[string]int64
	code    map[string]bool // delegated
	quarrel bool            // nodes disagree
	alone   bool            // one node answers, and the others are away
	nodes   int             // how many there are; 0: one
	pool    map[int64]Sighting
	byHash  map[int64]bool // of pool: nodes show it only by its hash
	failed  bool           // a node cannot be asked
	starts  int
	counts  int // questions
	asked   []Ask
}

func newFakeChain() *fakeChain {
	return &fakeChain{
		heads: make(chan Head), mined: make(map[string]int64), final: make(map[string]int64),
		pending: make(map[string]int64), code: make(map[string]bool), pool: make(map[int64]Sighting), byHash: make(map[int64]bool),
	}
}

func (c *fakeChain) ID() string { return "eip155:1" }

func (c *fakeChain) Several() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes > 1
}

func (c *fakeChain) Run(ctx context.Context, on func(Head)) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-c.heads:
			on(h)
		}
	}
}

func (c *fakeChain) Counts(_ context.Context, at Block, accounts []string) ([]Count, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts++; c.away {
		return nil, ErrUnreachable
	}
	out := make([]Count, len(accounts))
	for i, a := range accounts {
		out[i] = Count{Used: c.mined[a], Nodes: max(c.nodes, 1)}
		if at.Hash[0] == 'f' {
			out[i].Used = c.final[a]
		}
		if c.quarrel {
			out[i] = Count{}
		}
		if c.alone {
			out[i] = Count{Hint: out[i].Used}
		}
	}
	return out, nil
}

func (c *fakeChain) Start(_ context.Context, accounts []string) ([]Start, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.starts++; c.away {
		return nil, ErrUnreachable
	}
	out := make([]Start, len(accounts))
	for i, a := range accounts {
		out[i] = Start{Latest: c.mined[a], Pending: max(c.mined[a], c.pending[a]), Delegated: c.code[a]}
		if c.doubt {
			out[i].Doubt = errors.New("one node alone gives more")
		}
	}
	return out, nil
}

func (c *fakeChain) Lookup(_ context.Context, asks []Ask) ([]Sighting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return nil, ErrUnreachable
	}
	c.asked = append(c.asked, asks...)
	out := make([]Sighting, len(asks))
	for i, a := range asks {
		f := c.pool[a.Nonce]
		if c.byHash[a.Nonce] && !slices.Contains(a.Hashes, f.Tx) && !slices.Contains(a.Claims, f.Tx) {
			f = Sighting{}
		}
		if c.nodes <= 1 { // its word settles
			f.Settled, f.SettledTx = f.Seen, f.Tx
		}
		f.Nodes, f.Failed = max(c.nodes, 1), c.failed
		out[i] = f
	}
	return out, nil
}

func (*fakeChain) Decode([]byte) (Tx, error)            { return Tx{}, nil }
func (*fakeChain) Send(context.Context, []byte) Verdict { return Verdict{} }

func (c *fakeChain) questions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts
}

func (c *fakeChain) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// fakeService keeps the ops it is given, and answers lists with rows.
type fakeService struct {
	mu   sync.Mutex
	ops  []nonce.Request
	rows []nonce.Row
	err  error
	away bool // lists are refused
	asks int  // lists, those refused too

	owner     string // the node that owns all signers; "": this one
	ownerAway bool
	chains    *Chains
	listed    []nonce.WatchEntry
	next      int64    // of all signers
	tended    []string // signers, one after the other
}

// lists takes how often lists were asked for so far.
func (s *fakeService) lists() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.asks
	s.asks = 0
	return n
}

func (s *fakeService) refuseLists(refuse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = refuse
}

func (s *fakeService) Do(_ context.Context, op *nonce.Request) (r nonce.Result, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op.Kind == nonce.KindList {
		if s.asks++; s.away {
			return r, nonce.ErrBusy
		}
		r.Page = nonce.ListPage{NextFrom: -1}
		for _, row := range s.rows {
			if row.Nonce >= op.List.From {
				r.Page.Rows = append(r.Page.Rows, row)
			}
		}
		return r, nil
	}
	s.ops = append(s.ops, *op)
	return r, s.err
}

// Watched and Tend are the store's list, and what is done for one of it: what the tracker says then
// is in the list from then on.
func (s *fakeService) Watched(_ context.Context, after int64, limit int) (list []nonce.WatchEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.listed {
		if e.ID > after && len(list) < limit {
			list = append(list, e)
		}
	}
	return list, nil
}

func (s *fakeService) Tend(_ context.Context, signer string) error {
	s.mu.Lock()
	if s.away {
		s.mu.Unlock()
		return nonce.ErrBusy
	}
	s.tended = append(s.tended, signer)
	chains, next := s.chains, s.next
	s.mu.Unlock()
	cs := chains.Signer(signer)
	cs.Owned(true)
	v := cs.View(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.listed {
		if e := &s.listed[i]; e.Signer == signer && v.Trouble.Kind != nonce.WatchAsIs {
			e.Watch = v.Trouble
		}
	}
	return nil
}

func (*fakeService) WorkerIndex(string) int { return 0 }

// OwnerOf is another node where the test says so.
func (s *fakeService) OwnerOf(string) (node, url string, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner, "", s.owner == ""
}

func (s *fakeService) Elsewhere(string) bool { _, _, mine := s.OwnerOf(""); return !mine }

// ask is what the other node says, unless it is away.
func (s *fakeService) ask(node, _ string, _ nonce.Request) (*nonce.ChainSaid, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ownerAway {
		return nil, nonce.ErrPeerAway
	}
	said := []nonce.ChainWord{{Nonce: 7, Attempt: 1, Word: "said by " + node}}
	return &nonce.ChainSaid{State: &nonce.ChainState{Mined: 77}, Words: said}, nil
}

// Signers and List are what the store has.
func (s *fakeService) Signers(context.Context, nonce.SignersQuery) (list []nonce.SignerFigures, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.listed {
		list = append(list, nonce.SignerFigures{Signer: e.Signer, Watch: e.Watch})
	}
	return list, nil
}

// stored are the rows of the store.
func (s *fakeService) stored() []nonce.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows
}

func (s *fakeService) List(ctx context.Context, q nonce.ListQuery) (nonce.ListPage, error) {
	r, err := s.Do(ctx, &nonce.Request{Kind: nonce.KindList, List: q})
	return r.Page, err
}

// fakeSink keeps events.
type fakeSink struct {
	mu     sync.Mutex
	events []nonce.Event
}

func (*fakeSink) Watched(string) bool { return true }
func (*fakeSink) Unreserve(int)       {}

func (s *fakeSink) Publish(_ int, _ bool, events []nonce.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, events...)
}

// world is a tracker with everything around it, in a synctest bubble.
type world struct {
	t      *testing.T
	chain  *fakeChain
	svc    *fakeService
	sink   *fakeSink
	chains *Chains
	reg    *prometheus.Registry
	number int64

	planned map[string]nonce.Signer // rows, as plans left them
	waited  chan time.Duration      // how long each waited that was not ready at once
}

// inWorld runs a test with a tracker that runs, whose chain is at block 100.
func inWorld(t *testing.T, cfg Config, f func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, chain: newFakeChain(), svc: new(fakeService), sink: new(fakeSink), reg: prometheus.NewRegistry(), number: 99,
			waited: make(chan time.Duration, 10)}
		w.chains = NewChains([]*Tracker{New(w.chain, cfg, w.reg, slog.New(slog.DiscardHandler))},
			ChainsConfig{Wait: time.Second, Store: w.svc, Ask: w.svc.ask}, slog.New(slog.DiscardHandler))
		w.svc.chains = w.chains
		w.chains.Serve(w.svc, w.sink)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.chains.Run(ctx); close(done) }()
		w.block()
		f(w)
		cancel()
		<-done
	})
}

// block makes the next block, 12 s after the one before, with these uses.
func (w *world) block(uses ...Use) {
	w.t.Helper()
	w.number++
	w.chain.set(func() { // what blocks show, counts show too, and all nodes
		for _, u := range uses {
			if w.chain.nodes > 1 {
				w.chain.pool[u.Nonce] = Sighting{Seen: Mined, Tx: u.Tx, Settled: Mined, SettledTx: u.Tx}
			}
			if !u.Authorization && !u.Unread {
				w.chain.mined[u.Account] = max(w.chain.mined[u.Account], u.Nonce+1)
			}
		}
	})
	w.head(Head{Latest: Block{Number: w.number, Time: time.Unix(12*w.number, 0)}, Uses: uses})
}

func (w *world) head(h Head) {
	w.t.Helper()
	if h.Agreed == (Block{}) {
		h.Agreed = h.Latest
	}
	w.chain.heads <- h
	w.after(0)
}

// after lets time pass until everything rests.
func (w *world) after(d time.Duration) {
	time.Sleep(d) // in the bubble's time
	synctest.Wait()
}

// signer is a signer that this node owns, with a plan at that cursor.
func (w *world) signer(name string, next int64) nonce.ChainSigner {
	s := w.chains.Signer(name)
	s.Owned(true)
	w.after(0)
	s.View(next)
	return s
}

// told takes the events that were told so far.
func (w *world) told() []nonce.Event {
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	events := w.sink.events
	w.sink.events = nil
	return events
}

// rows makes the store show these.
func (w *world) rows(rows []nonce.Row) {
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	w.svc.rows = rows
}

// did takes the ops that were asked for so far.
func (w *world) did() []nonce.Request {
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	ops := w.svc.ops
	w.svc.ops = nil
	return ops
}
