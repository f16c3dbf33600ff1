package chain

import (
	"sync"
	"sync/atomic"
	"time"

	"noncegate/nonce"
)

// signer is one account as the chain sees it. What plans ask for is atomic; the rest
// is guarded by mu.
type signer struct {
	// Plans, requests and commits go through thousands of signers, and what they read costs as much as the lines of
	// memory that it is on. So theirs is first: the atomic ones fill one line of 64 bytes, what commits use the next.
	t       *Tracker
	view    atomic.Pointer[nonce.ChainView]
	next    atomic.Int64 // the highest cursor of a plan, or behind a hand-out
	used    atomic.Int64 // when it was asked for last, Unix seconds
	began   atomic.Int64 // when the last answer to Start came, Unix nanoseconds; 0: never
	hint    atomic.Int64 // a count above mined that a node gives lately; 0: none does
	hash    uint64       // of name, as Chains.latest has it
	kept    atomic.Bool  // it is in Tracker.signers
	watched atomic.Bool  // it is in Tracker.open

	mu       sync.Mutex
	known    bool
	mined    int64
	final    int64
	notes    map[int64]*note // of nonces from final on; nil: none
	holdings []holding       // nonces of which the chain has shown nothing, ascending; none has a note

	version       atomic.Int64 // of the last commit that was seen
	name, account string
	owned         atomic.Bool
	asked         bool         // it is in Tracker.asking; guarded by Tracker.mu
	lookAt        atomic.Int64 // when LookAt was called last, Unix nanoseconds

	minedAt   int64     // number of the block at which that was so
	guessed   bool      // mined is of no block: a node that was ahead, or on a branch that lost, may have said so
	stale     bool      // the count must be asked for, whatever blocks said
	risen     time.Time // when a count raised mined
	lower     int       // settled counts in a row that were below mined
	fell      bool      // a reorganization may have lowered mined: the next count counts, even a lower one
	finalOld  bool      // mined passed final since it was asked for
	start     int64
	startAt   time.Time // when an answer said so last
	delegated bool
	anew      bool        // a repair waits for what nodes have of the lowest open nonce
	claim     int64       // a count that one node gives and none contradicts; it is settled neither way
	claimAt   int64       // number of the block at which that was so
	ahead     int64       // the greatest count that a node gave, as a hint
	aheadAt   time.Time   // and since when it is above mined
	touched   time.Time   // when the watcher read its open nonces last
	gap       *nonce.Gap  // what keeps the lowest open nonce from being mined; nil: nothing that is known
	gapTold   bool        // this node has told of gap
	trouble   nonce.Watch // the same as the store is to have it
	untold    bool        // and does not have it yet
	stuck     stuck
	outside   []outsider           // at most maxTold
	allowed   []authorized         // at most maxAllowed, of blocks whose count is not settled yet
	waiting   map[*waiter]struct{} // those to be told of the next answer to Start
}

// several reports whether the word of one node settles nothing.
func (s *signer) several() bool { return s.t.chain.Several() }

var _ nonce.ChainSigner = (*signer)(nil)

func (s *signer) lastUsed() time.Time { return time.Unix(s.used.Load(), 0) }

// View implements nonce.ChainSigner.
func (s *signer) View(next int64) nonce.ChainView {
	if now := s.t.clock.Load(); s.used.Load() != now {
		s.used.Store(now)
	}
	kept := s.kept.Load() || s.t.keep(s)
	v := *s.view.Load()
	s.raise(next)
	next = s.next.Load()
	if v.Known && next > v.Mined {
		s.t.watch(s)
	}
	switch {
	case next > 0 || !v.Known:
	case s.t.stopped.Load():
		v.StartOld = true // no signer begins by what the nodes say now, or said before
	case s.RepairOld():
		v.StartOld = true
		s.t.askStart(s)
	}
	if said := s.t.said.Load(); said != nil && (!v.Known || v.StartOld) {
		v.Said = *said
	}
	if ahead := s.hint.Load(); ahead > v.Mined {
		v.Ahead = ahead
	}
	if !kept {
		v.Window = 0 // the tracker does not follow how far the account has come since
	}
	return v
}

// RepairOld implements nonce.ChainSigner.
func (s *signer) RepairOld() bool { return time.Since(time.Unix(0, s.began.Load())) > startUsable }

// raise raises the cursor. A plan that has not read it says 0.
func (s *signer) raise(next int64) {
	for was := s.next.Load(); was < next && !s.next.CompareAndSwap(was, next); was = s.next.Load() {
	}
}

// mustCount makes the count be asked for at the next head.
func (s *signer) mustCount() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = s.stale || s.known
}

// Unseen implements nonce.ChainSigner.
func (s *signer) Unseen(n, attempt int64) bool {
	if s.t.stopped.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.notes[n]
	if k != nil && k.unknown && !k.claimed && n < max(s.mined, s.claim, s.hint.Load()) { // of one node, which may lie for ever
		k.claimed, k.hinted = true, time.Now()
	}
	if k == nil || !k.hinted.IsZero() && time.Since(k.hinted) < s.t.cfg.UnknownFor {
		return false // what one of several nodes had may still be somewhere
	}
	return k.unknown && k.attempt == attempt && !k.found && k.seen == Absent &&
		k.lookedN > k.since && time.Since(k.looked) < unseenFresh
}

// UsedBy implements nonce.ChainSigner.
func (s *signer) UsedBy(n int64) Hash {
	if s.t.stopped.Load() {
		return Hash{} // a block of another history may have shown it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.notes[n]; k != nil && k.seen == Mined {
		return k.settledTx()
	}
	return Hash{}
}

// unseenFresh is how old the look may be on which a hold is released.
const unseenFresh = time.Minute

// Owned implements nonce.ChainSigner.
func (s *signer) Owned(owned bool) {
	if s.owned.Swap(owned) == owned || !owned {
		return
	}
	// Others may have written since this node owned it, and not all of what blocks said
	// was heard.
	s.mu.Lock()
	s.stale, s.touched = s.stale || s.known, time.Time{}
	s.gap, s.gapTold, s.trouble, s.untold = nil, false, nonce.Watch{}, false // found for LookAt: it has to be told now
	s.publishLocked()
	s.mu.Unlock()
	if !s.kept.Load() {
		s.t.keep(s)
	}
	s.t.watch(s)
}

// Committed implements nonce.ChainSigner.
func (s *signer) Committed(events []nonce.Event) {
	if len(events) == 0 {
		return
	}
	s.version.Store(events[0].Version)
	s.mu.Lock()
	look := false
	if events[0].Version == 1 {
		s.touched = time.Now() // the store had nothing of it before
	}
	for i := range events {
		look = s.noteLocked(&events[i]) || look
	}
	s.mu.Unlock()
	if look {
		s.t.watch(s)
	}
}

// number is that of the last head, 0 before the first.
func (t *Tracker) number() int64 {
	if h := t.head.Load(); h != nil {
		return h.Latest.Number
	}
	return 0
}

// publishLocked makes the view what is known now. After the final block fell it stays as it was:
// nothing is to follow from what the nodes say of another history. A new signer may be published without the lock, before
// it is in a table.
func (s *signer) publishLocked() {
	if s.view.Load() != nil && s.t.stopped.Load() {
		return
	}
	v := &nonce.ChainView{
		Known: s.known, Guessed: s.guessed, Mined: s.mined, Final: s.final, Start: s.start, Claimed: s.claimLocked(),
		Window: s.t.cfg.window(s.name, s.delegated), UnknownFor: max(0, s.t.cfg.UnknownFor), Trouble: s.trouble,
	}
	s.view.Store(v)
}

// claimLocked is a count above mined that one node claims while the others are away or behind; 0:
// there is none.
func (s *signer) claimLocked() int64 {
	if s.claim <= s.mined {
		return 0
	}
	return s.claim
}

// windowFromLocked is where the window begins: new nonces are below it plus the window.
func (s *signer) windowFromLocked() int64 { return max(s.mined, min(s.claim, s.next.Load())) }

// hintLocked follows a count that a node gives, and which nothing has settled: it keeps a nonce from
// being repaired, and not for longer than a gap needs to be called one, because the node may be wrong.
func (s *signer) hintLocked(used int64) {
	switch {
	case used <= s.mined:
		s.ahead, used = 0, 0
	case s.ahead <= s.mined:
		s.ahead, s.aheadAt = used, time.Now()
	case time.Since(s.aheadAt) >= s.t.gapAfter():
		used = 0
	}
	s.hint.Store(used)
}
