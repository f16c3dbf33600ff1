package chain

import (
	"cmp"
	"slices"
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
	anew      bool        // somebody waits for what nodes have of the lowest open nonce
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
	past      []pastUse            // what used nonces that are forgotten, ascending; at most keepPast
	waiting   map[*waiter]struct{} // those to be told of the next answer to Start
}

// note is what this node has seen of one nonce. It is not all: other nodes, and this
// one before it remembered, may have done more.
type note struct {
	status  nonce.Status
	attempt int64
	unknown bool
	hashes  nonce.TxHashes // recorded ones, newest first
	free    bool           // given back by its holder, so that whoever used it then was not one
	tx      Hash           // the transaction that a block used the nonce with
	sure    bool           // that is settled; else one of several nodes says so
	at      int64          // about the number of that block
	seen    Seen           // the last sighting
	offer   Offer
	since   int64     // number of the block at which it became unknown
	found   bool      // since then it is settled that there is a transaction
	shown   Hash      // which one; zero if nodes did not say, or the count fell since
	hinted  time.Time // when a node, or its block, has shown one last, or a count has delayed it
	claimed bool      // since then a count that is not settled has delayed the release, once
	hint    Hash      // which one a node showed
	asked   time.Time // when nodes were asked for it last, as it is unknown
	looked  time.Time // the last look at all nodes in which none failed and none saw it
	lookedN int64     // and the block of then
}

// several reports whether the word of one node settles nothing.
func (s *signer) several() bool { return s.t.chain.Several() }

// holding is a hand-out and what its holder has said of it. It stands for a note as long as the chain has
// shown nothing of the nonce, and has no pointer, for there are many.
type holding struct {
	nonce, attempt int64
	status         nonce.Status // Held or Consumed
	tx             Hash         // that is recorded; zero: none
}

func (h *holding) note() *note {
	k := &note{status: h.status, attempt: h.attempt}
	if h.tx != (Hash{}) {
		k.hashes = nonce.TxHashes(h.tx[:])
	}
	return k
}

// holdLocked remembers a holding, and reports that it could without a note: it is above all of
// which there is one, and nothing was known of it.
func (s *signer) holdLocked(h holding) bool {
	last := len(s.holdings) - 1
	if len(s.notes) > 0 && s.notes[h.nonce] != nil || len(s.holdings)+len(s.notes) >= maxNotes || last >= 0 && s.holdings[last].nonce >= h.nonce {
		return false
	}
	s.holdings = append(s.holdings, h)
	return true
}

// saidLocked adds to a holding what its holder says, and reports that it could without a note.
func (s *signer) saidLocked(e *nonce.Event) bool {
	i, ok := s.holdingAtLocked(e.Nonce)
	if !ok || e.Type != nonce.EventUsed && e.Type != nonce.EventSigned || s.holdings[i].attempt != e.Attempt {
		return false
	}
	h := &s.holdings[i]
	if e.TxHash != (Hash{}) && e.Reason != nonce.ReasonMined {
		if h.tx != (Hash{}) && h.tx != e.TxHash {
			return false
		}
		h.tx = e.TxHash
	}
	if e.Type == nonce.EventUsed {
		h.status = nonce.Consumed
	}
	return true
}

// holdingAtLocked is the place of a nonce among the holdings. Most often there is one of each nonce up to
// the last, which was made just now.
func (s *signer) holdingAtLocked(n int64) (int, bool) {
	if last := int64(len(s.holdings)) - 1; last >= 0 {
		if i := last - (s.holdings[last].nonce - n); i >= 0 && i <= last && s.holdings[i].nonce == n {
			return int(i), true
		}
	}
	return slices.BinarySearchFunc(s.holdings, n, func(h holding, n int64) int { return cmp.Compare(h.nonce, n) })
}

// learnedLocked takes over what the store says of a nonce, and reports that it could without a note.
func (s *signer) learnedLocked(row *nonce.Row) bool {
	hashes := recorded(row)
	if row.Status == nonce.Released || row.Reason != "" || row.Unknown() || hashes.Len() > 1 {
		return false
	}
	h := holding{nonce: row.Nonce, attempt: row.Attempt, status: row.Status, tx: row.TxHash}
	if i, ok := s.holdingAtLocked(row.Nonce); ok && s.holdings[i].attempt == row.Attempt {
		s.holdings[i] = h
		return true
	}
	return s.holdLocked(h)
}

// lookLocked is the note of a nonce, as far as there is one: nil, or one that nobody keeps.
func (s *signer) lookLocked(n int64) *note {
	if k := s.notes[n]; k != nil {
		return k
	}
	if i, ok := s.holdingAtLocked(n); ok {
		return s.holdings[i].note()
	}
	return nil
}

// stuck is for how long the lowest open nonce has been the same.
type stuck struct {
	nonce   int64
	since   time.Time // when it was first seen to be the lowest one
	above   time.Time // when something above it was first seen to be sent or held
	looked  time.Time // when nodes were asked for it last
	seen    bool      // and one had it
	pooled  time.Time // since when nodes have had a transaction of it; zero: they have not
	dropped bool      // it was told that none has it
}

// maxNotes bounds the notes of one signer. keepUsed of those that the chain has used stay
// while it does not say that they are final; the open ones need the room.
const (
	maxNotes = 1024
	keepUsed = 128
)

// noteOfLocked finds or makes the note of a nonce; nil: there are too many.
func (s *signer) noteOfLocked(n int64) *note {
	k := s.notes[n]
	if k != nil {
		return k
	}
	if len(s.notes)+len(s.holdings) >= maxNotes {
		s.forgetBelowLocked(s.mined - keepUsed)
	}
	i, holds := s.holdingAtLocked(n)
	if len(s.notes)+len(s.holdings) >= maxNotes && !holds {
		return nil
	}
	if s.notes == nil {
		s.notes = make(map[int64]*note)
	}
	k = new(note)
	if holds {
		k = s.holdings[i].note()
		s.holdings = slices.Delete(s.holdings, i, i+1)
	}
	s.notes[n] = k
	return k
}

// forgetBelowLocked forgets nonces, but for what used the last of them.
func (s *signer) forgetBelowLocked(below int64) {
	for n, k := range s.notes {
		if n >= below {
			continue
		}
		if tx := k.settledTx(); k.seen == Mined && tx != (Hash{}) {
			s.past = append(s.past, pastUse{nonce: n, tx: endOf(tx)})
		}
		delete(s.notes, n)
	}
	s.trimPastLocked()
	i, _ := s.holdingAtLocked(below)
	s.holdings = slices.Delete(s.holdings, 0, i)
}

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
		v.StartOld = true // nobody begins by what the nodes say now, or said before
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
		v.Window = 0 // nobody tells how far the account has come since
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
	if !s.kept.Load() {
		s.t.keep(s)
	}
	// Others may have written since this node owned it, and not all of what blocks said
	// was heard.
	s.mu.Lock()
	s.stale, s.touched = s.stale || s.known, time.Time{}
	s.gap, s.gapTold, s.trouble, s.untold = nil, false, nonce.Watch{}, false // found for LookAt: it has to be told now
	s.publishLocked()
	s.mu.Unlock()
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

// noteLocked follows one event, and reports whether the watcher has to look.
func (s *signer) noteLocked(e *nonce.Event) bool {
	if e.Type == nonce.EventFloor || e.Nonce < s.final {
		return false
	}
	open := false
	if e.Type == nonce.EventAllocated {
		s.raise(e.Nonce + 1) // the next plan may be long in coming
		open = s.known && e.Nonce >= s.mined
		if s.holdLocked(holding{nonce: e.Nonce, attempt: e.Attempt, status: nonce.Held}) {
			return open
		}
	}
	if s.saidLocked(e) {
		return false
	}
	k := s.noteOfLocked(e.Nonce)
	if k == nil {
		return open
	}
	k.attempt = e.Attempt
	switch e.Type {
	case nonce.EventAllocated:
		// What was recorded for it before a repair may still be mined.
		was := *k
		*k = note{attempt: e.Attempt, status: nonce.Held, tx: was.tx, sure: was.sure, hashes: was.hashes}
		if e.Reason == nonce.ReasonRepair { // it has to outbid what may still be there
			k.offer, k.seen = was.offer, was.seen
		}
	case nonce.EventUsed, nonce.EventReplaced, nonce.EventSigned:
		k.unknown = false
		if e.TxHash != (Hash{}) && e.Reason != nonce.ReasonMined && !k.hashes.Contains(e.TxHash) {
			if k.hashes == "" && !k.free && e.Nonce < s.mined && k.tx != (Hash{}) && k.tx != e.TxHash { // its holder says it late
				s.outsideLocked(outsider{nonce: e.Nonce, tx: k.tx, sure: k.sure, told: true})
				open = true
			}
			k.hashes = nonce.TxHashes(e.TxHash[:]) + k.hashes[:min(len(k.hashes), (maxHashes-1)*len(e.TxHash))]
		}
		if e.Type == nonce.EventUsed {
			k.status = nonce.Consumed
		}
	case nonce.EventReleased, nonce.EventExpired:
		k.status, k.unknown, k.hashes = nonce.Released, false, ""
		k.free = e.Type == nonce.EventReleased || e.Reason == nonce.ReasonNotRecorded
	case nonce.EventUnknown:
		k.status, k.unknown, k.since, k.looked = nonce.Held, true, s.t.number(), time.Time{}
		k.found, k.shown, k.hinted = k.sure || k.seen != Absent && !s.several(), k.settledTx(), time.Time{}
		k.claimed = false
		if k.seen != Absent {
			k.hinted = time.Now()
		}
		return true
	}
	return open
}

// maxHashes bounds the hashes of a note: those of two attempts.
const maxHashes = 2 * nonce.MaxHashes

// number is that of the last head, 0 before the first.
func (t *Tracker) number() int64 {
	if h := t.head.Load(); h != nil {
		return h.Latest.Number
	}
	return 0
}

// publishLocked makes the view what is known now. After the final block fell it stays as it was:
// nothing is to follow from what the nodes say of another history. It may also be called while
// nobody else has s yet.
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

// begin takes the first answer, or a later one. It names no block, so that the count at
// the next one replaces it.
func (s *signer) begin(st Start) (events []nonce.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.known {
		s.known, s.mined, s.guessed, s.stale, s.finalOld = true, st.Latest, true, true, true
		if s.gap != nil && s.gap.Nonce < s.mined {
			events = s.closeGapLocked()
		}
	}
	s.hintLocked(st.Latest)
	// A lower answer may be of a node that is behind, or of a pool that has lost something.
	if start := max(st.Latest, st.Pending); start >= s.start || time.Since(s.startAt) > startUsable {
		s.start, s.startAt = start, time.Now()
	}
	s.delegated = st.Delegated
	s.publishLocked()
	s.began.Store(time.Now().UnixNano())
	return events
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

// startUsable is how old the answer may be with which a new signer begins when it is planned: what
// is in pools may not be ours.
const startUsable = 30 * time.Second

// waiter is somebody who waits for an answer to Start. done is called once.
type waiter struct {
	since time.Time
	once  sync.Once
	timer *time.Timer
	done  func()
}

// await calls done when nodes that are asked from now on have answered, or when wait is over. Then
// what they said before is too old for a signer to begin with, and for a repair.
func (s *signer) await(wait time.Duration, anew bool, done func()) {
	w := &waiter{since: time.Now(), done: done}
	s.mu.Lock()
	if s.waiting == nil {
		s.waiting = make(map[*waiter]struct{})
	}
	s.waiting[w] = struct{}{}
	s.anew = s.anew || anew
	w.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		if _, waits := s.waiting[w]; waits {
			delete(s.waiting, w)
			s.began.Store(0)
		}
		s.mu.Unlock()
		w.once.Do(w.done)
	})
	s.mu.Unlock()
	s.t.askStart(s)
}

// answered calls those who wait for an answer to a question that was sent at a time. Who came later
// waits for the next one.
func (s *signer) answered(sent time.Time) {
	s.mu.Lock()
	var told []*waiter
	for w := range s.waiting {
		if !w.since.After(sent) {
			told = append(told, w)
			delete(s.waiting, w)
		}
	}
	s.mu.Unlock()
	for _, w := range told {
		w.timer.Stop()
		w.once.Do(w.done)
	}
}
