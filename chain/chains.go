package chain

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"noncegate/nonce"
	"noncegate/wire"
)

// Chains are all chains of a gateway. It implements nonce.Chain. All but latest and seldom is never
// changed after Serve.
type Chains struct {
	cfg    ChainsConfig
	log    *slog.Logger
	seldom rate.Sometimes // about signers of other chains
	byID   map[string]*Tracker
	list   []*Tracker
	svc    Service
	latest latest
}

// NewChains puts trackers together, each of another chain.
func NewChains(list []*Tracker, cfg ChainsConfig, log *slog.Logger) *Chains {
	c := &Chains{
		cfg: cfg, log: log.With("component", "chain"), byID: make(map[string]*Tracker, len(list)), list: list,
		seldom: rate.Sometimes{First: 3, Interval: time.Minute},
	}
	for _, t := range list {
		c.byID[t.chain.ID()] = t
	}
	return c
}

var _ nonce.Chain = (*Chains)(nil)

// Serve gives all trackers the service that they work for, and the sink of their events.
func (c *Chains) Serve(svc Service, sink nonce.EventSink) {
	c.svc = svc
	for _, t := range c.list {
		t.Serve(svc, sink)
	}
}

// Run follows all chains until ctx ends.
func (c *Chains) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, t := range c.list {
		all.Go(func() { t.Run(ctx) })
	}
	all.Go(func() { c.watchlist(ctx) })
	all.Wait()
}

// find splits a CAIP-10 name; nil: its chain is not configured.
func (c *Chains) find(name string) (t *Tracker, account string) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return nil, ""
	}
	return c.byID[name[:i]], name[i+1:]
}

// known is the entry of a signer; nil: its chain is not configured, or nothing was asked
// of it. What only reads makes no entries: they are bounded, and nodes are asked about
// each.
func (c *Chains) known(name string) *signer {
	t, account := c.find(name)
	if t == nil {
		return nil
	}
	return t.known(account)
}

// wellFormed reports whether a name is one that clients can give. A node refuses a whole
// batch of questions for one account that is none.
func wellFormed(name string) bool {
	parsed, err := nonce.ParseSigner(name)
	return err == nil && parsed == name
}

// Signer implements nonce.Chain. A signer that is not there is remembered from its first
// View on, or when it is owned.
func (c *Chains) Signer(name string) nonce.ChainSigner {
	t, account := c.find(name)
	if t == nil {
		return nil
	}
	if s := t.known(account); s != nil {
		return s
	}
	if !wellFormed(name) {
		return nil
	}
	return t.newSigner(name, account)
}

// Ready reports whether a request for a signer need not wait for its chain. A signer that was not
// used here waits for nodes that are asked now: done is called once, by another goroutine, when they
// have answered, or when wait is over.
func (c *Chains) Ready(name string, wait time.Duration, done func()) bool {
	return c.ready(name, false, wait, done)
}

// Await implements nonce.Chain. What goes to another node waits there.
func (c *Chains) Await(q *nonce.Request, heard func()) bool {
	return !c.svc.Elsewhere(q.Signer) && !c.ready(q.Signer, q.Kind == nonce.KindRepair, c.cfg.Wait, heard)
}

// ready is Ready. For a repair nodes are asked anew: now, also of a signer that was used, and for what
// they have of its lowest open nonce.
func (c *Chains) ready(name string, anew bool, wait time.Duration, done func()) bool {
	if !anew && c.latest.goesOn(name) {
		return true
	}
	t, account := c.find(name)
	if t == nil {
		return true
	}
	s := t.known(account)
	if s == nil {
		if !wellFormed(name) {
			return true
		}
		s = t.signer(name, account)
	}
	if !anew && s.next.Load() > 0 { // it goes on without nodes
		c.latest.add(s)
		return true
	}
	s.await(wait, anew, done)
	return false
}

// latest are signers that requests looked for last, one at each place.
type latest [4096]atomic.Pointer[signer]

var nameSeed = maphash.MakeSeed()

func hashOf(name string) uint64 { return maphash.String(nameSeed, name) }

// goesOn reports whether a signer goes on without nodes, if that is known without a look at the table, which
// reads some eight lines of memory. Two signers with one hash may be taken for one another: then a request that
// should wait for nodes does not, and is refused.
func (l *latest) goesOn(name string) bool {
	hash := hashOf(name)
	s := l[hash%uint64(len(l))].Load()
	return s != nil && s.hash == hash && s.kept.Load() && s.next.Load() > 0
}

func (l *latest) add(s *signer) { l[s.hash%uint64(len(l))].Store(s) }

// shownFor is how long a signer that this node does not own is looked at after LookAt.
const shownFor = time.Minute

// LookAt has this node look for a gap of a signer for some time, also where another
// node owns the signer, or none does any more; State shows it when it is found, and
// no event tells of it. next is the signer's cursor by the store; one that is 0 has no gap: a
// question about any address takes no entry, and no node is asked about it.
func (c *Chains) LookAt(name string, next int64) {
	t, account := c.find(name)
	if t == nil || next == 0 {
		return
	}
	s := t.signer(name, account)
	if s.owned.Load() {
		return // it is looked at anyway
	}
	s.lookAt.Store(time.Now().UnixNano())
	s.raise(next)
	if v := s.view.Load(); v.Known && s.next.Load() > v.Mined {
		t.watch(s)
	}
}

// State returns what is known of a signer now; ok: its chain is configured, and has
// said something.
func (c *Chains) State(name string) (st nonce.ChainState, ok bool) {
	s := c.known(name)
	if s == nil {
		return st, false
	}
	t, v := s.t, s.view.Load()
	if !v.Known {
		return st, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st = nonce.ChainState{Head: t.number(), Mined: v.Mined, Final: v.Final, Claimed: v.Claimed,
		FinalKnown: s.final > 0 || !s.finalOld, Window: v.Window, Stopped: t.stopped.Load()}
	if s.gap != nil {
		gap := *s.gap
		st.Trouble = &gap
	}
	return st, true
}

// Stopped reports whether the final block of a signer's chain fell, so that nothing is to follow
// by itself from what its nodes say.
func (c *Chains) Stopped(name string) bool {
	t, _ := c.find(name)
	return t != nil && t.stopped.Load()
}

// Words says of each row how far the chain has come with it, in the words of wire.ChainSent; "": nothing is known, or
// there is nothing to say. nil: no chain is configured for the signer. Of a signer that
// is known here nodes are asked what used a nonce, where that is not known.
func (c *Chains) Words(name string, rows []nonce.Row) []string {
	t, _ := c.find(name)
	if t == nil {
		return nil
	}
	words := make([]string, len(rows))
	s := c.known(name)
	if s == nil {
		return words
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range rows {
		words[i] = s.wordLocked(&rows[i])
		if words[i] == wire.ChainUsed {
			t.memory.want(s.askLocked(rows[i].Nonce, &note{hashes: recorded(&rows[i])}))
		}
	}
	return words
}

func (s *signer) wordLocked(row *nonce.Row) string {
	k := s.notes[row.Nonce]
	own := recorded(row)
	sent := row.TxHash != Hash{}
	is, proven := s.minedByLocked(row.Nonce, own)
	switch used := s.known && row.Nonce < s.mined; {
	case used && own != "" && !proven:
		return wire.ChainUsed
	case used && own != "" && !is:
		return wire.ChainExternal
	case used && row.Nonce < s.final:
		return wire.ChainFinal
	case used:
		return wire.ChainMined
	case !sent && row.Status != nonce.Consumed:
		return ""
	case k != nil && k.seen != Absent:
		return wire.ChainSeen
	case k != nil && !k.looked.IsZero():
		return wire.ChainDropped
	case sent:
		return wire.ChainSent
	}
	return ""
}

// Version is that of a signer after the last commit that this node knows of; 0: it knows
// of none.
func (c *Chains) Version(name string) int64 {
	if s := c.known(name); s != nil {
		return s.version.Load()
	}
	return 0
}
