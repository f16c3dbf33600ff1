package main

import (
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// state is what is known of a journalled transaction.
type state int

const (
	prepared  state = iota // signed, given to nobody yet
	sending                // may have been given to a node
	void                   // given to nobody, and never will be
	dead                   // its nonce was used by another transaction, for good
	mined                  // on the chain, for good
	abandoned              // its worker has given it up although a node may have it
)

// entry is a line of the journal: a signed transaction and its replacements, all of one
// payment and one nonce. The journal guards its fields but the first four, which stay.
type entry struct {
	owner   int      // the worker
	payment *payment // nil: it cancels
	account int
	ticket  ticket

	state   state
	txs     []*types.Transaction // the newest last
	busy    bool                 // the worker that has written it is still at it
	orphan  bool                 // it was left before it was sent
	bump    bool                 // its worker means to replace it
	tries   int
	sent    time.Time // the last time
	written time.Time
}

// journal is where workers write signed transactions before they send them. It survives
// crashes, and the watcher reads it, too. Its methods may be called from any goroutine.
type journal struct {
	mu      sync.Mutex // guards what follows, and the entries
	byOwner map[int][]*entry
	byNonce map[place][]*entry
}

type place struct {
	account int
	nonce   uint64
}

func newJournal() *journal {
	return &journal{byOwner: make(map[int][]*entry), byNonce: make(map[place][]*entry)}
}

// write makes an entry of a transaction that is about to be sent.
func (j *journal) write(e *entry, tx *types.Transaction) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.txs, e.written, e.busy = []*types.Transaction{tx}, time.Now(), true
	j.byOwner[e.owner] = append(j.byOwner[e.owner], e)
	at := place{e.account, tx.Nonce()}
	j.byNonce[at] = append(j.byNonce[at], e)
	return e
}

// replace adds a replacement that is about to be sent.
func (j *journal) replace(e *entry, tx *types.Transaction) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.txs = append(e.txs, tx)
}

// toSend says that the entry is given to a node from now on, and returns its newest
// transaction; nil where that must not be.
func (j *journal) toSend(e *entry) *types.Transaction {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.toSendLocked(e)
}

func (j *journal) toSendLocked(e *entry) *types.Transaction {
	if e.state != prepared && e.state != sending {
		return nil
	}
	e.state, e.sent, e.orphan = sending, time.Now(), false
	e.tries++
	return e.txs[len(e.txs)-1]
}

// toRepair is toSend of the entry of a nonce that is best known; nil where nobody has one.
func (j *journal) toRepair(at place, known []string) (*entry, *types.Transaction) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var best *entry
	for _, e := range j.byNonce[at] {
		if e.state != prepared && e.state != sending {
			continue
		}
		if best == nil || slices.ContainsFunc(e.txs, func(tx *types.Transaction) bool { return slices.Contains(known, tx.Hash().Hex()) }) {
			best = e
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, j.toSendLocked(best)
}

// drop makes an entry void that was given to nobody. With refused it was given to nodes,
// and each of them has said that it did not take it. false: somebody else has sent it.
func (j *journal) drop(e *entry, refused bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.state == prepared || refused && e.state == sending && e.tries == 1 {
		e.state = void
	}
	return e.state == void
}

// end says what became of an entry.
func (j *journal) end(e *entry, s state) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.state = s
}

// crashed has all entries of a worker that were not sent be orphans, and returns which of
// its payments have an entry that may still be mined.
func (j *journal) crashed(owner int) map[*payment]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	live := make(map[*payment]bool)
	for _, e := range j.byOwner[owner] {
		if e.state == prepared || e.state == sending {
			e.busy, e.orphan = false, true
			live[e.payment] = true
		}
	}
	return live
}

// glance is an entry as it was at a moment.
type glance struct {
	*entry
	nonce   uint64
	hashes  []common.Hash
	state   state
	orphan  bool
	bump    bool
	tries   int
	sent    time.Time
	written time.Time
}

// live are the entries of a worker that may still be mined, and that it is not at. Those that have ended are
// forgotten.
func (j *journal) live(owner int) (gs []glance) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.byOwner[owner] = slices.DeleteFunc(j.byOwner[owner], func(e *entry) bool { return e.state != prepared && e.state != sending })
	for _, e := range j.byOwner[owner] {
		if e.busy {
			continue
		}
		g := glance{entry: e, nonce: e.txs[0].Nonce(), state: e.state, orphan: e.orphan, bump: e.bump, tries: e.tries, sent: e.sent, written: e.written}
		for _, tx := range e.txs {
			g.hashes = append(g.hashes, tx.Hash())
		}
		gs = append(gs, g)
	}
	return gs
}

// leave says that the worker has done with a payment what it could in one go, and reports
// whether there is an entry of it that may still be mined. The worker follows that.
func (j *journal) leave(p *payment, owner int) (live bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range j.byOwner[owner] {
		if e.payment == p && (e.state == prepared || e.state == sending) {
			e.busy, e.orphan = false, e.state == prepared
			live = true
		}
	}
	return live
}

// bumped says that the one replacement of an entry was tried.
func (j *journal) bumped(e *entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.bump = false
}
