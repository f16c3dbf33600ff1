package chain

import (
	"cmp"
	"slices"
	"time"

	"noncegate/nonce"
)

// note is what this node has seen of one nonce. It is not all: other nodes, and this
// one before it remembered, may have done more.
type note struct {
	status  nonce.Status
	attempt int64
	unknown bool
	hashes  nonce.TxHashes // recorded ones, newest first
	free    bool           // given back by its holder, which then did not use it
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
	switch {
	case len(s.notes) > 0 && s.notes[h.nonce] != nil, len(s.holdings)+len(s.notes) >= maxNotes,
		last >= 0 && s.holdings[last].nonce >= h.nonce:
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

// lookLocked is the note of a nonce, as far as there is one. nil: nothing is known. Changes to
// one that was made of a holding are not kept.
func (s *signer) lookLocked(n int64) *note {
	if k := s.notes[n]; k != nil {
		return k
	}
	if i, ok := s.holdingAtLocked(n); ok {
		return s.holdings[i].note()
	}
	return nil
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

// forgetBelowLocked forgets nonces, but for what used them.
func (s *signer) forgetBelowLocked(below int64) {
	for n, k := range s.notes {
		if n >= below {
			continue
		}
		if tx := k.settledTx(); k.seen == Mined && tx != (Hash{}) {
			s.t.memory.used(s.account, n, tx)
		}
		delete(s.notes, n)
	}
	i, _ := s.holdingAtLocked(below)
	s.holdings = slices.Delete(s.holdings, 0, i)
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

// learnLocked takes over what the store says of open nonces, which other nodes, or
// this one before it remembered the signer, may have written.
func (s *signer) learnLocked(rows []nonce.Row) {
	for i := range rows {
		row := &rows[i]
		if s.learnedLocked(row) {
			continue
		}
		k := s.noteOfLocked(row.Nonce)
		switch {
		case k == nil || k.attempt > row.Attempt: // what was committed since the read is newer
			continue
		case k.attempt < row.Attempt:
			*k = note{attempt: row.Attempt, since: s.t.number(), tx: k.tx, sure: k.sure, offer: k.offer, seen: k.seen}
		}
		k.status, k.hashes = row.Status, recorded(row)
		unmarked := []string{nonce.ReasonExpired, nonce.ReasonUnseen, nonce.ReasonInDoubt} // its holder may have used it
		k.free = row.Status == nonce.Released && !slices.Contains(unmarked, row.Reason)
		if k.unknown = row.Unknown(); k.unknown && k.since == 0 {
			k.since = s.t.number()
		}
	}
}

// recorded are the transactions that holders of a nonce recorded, the newest first. Of one that no
// mark ended the first is the chain's.
func recorded(row *nonce.Row) nonce.TxHashes {
	switch {
	case row.TxHash == Hash{}, row.Reason == nonce.ReasonMined && row.Replaced == "":
		return ""
	case row.Reason == nonce.ReasonMined:
		return nonce.TxHashes(row.TxHash[:]) + row.Replaced[len(row.TxHash):]
	}
	return nonce.TxHashes(row.TxHash[:]) + row.Replaced
}

// uses takes the transaction that a block used the nonce with.
func (n *note) uses(tx Hash, at int64, sure bool) {
	n.tx, n.sure, n.at, n.seen, n.hinted = tx, sure, at, Mined, time.Now()
	n.found = n.found || sure
}

// settledTx is the transaction that a block used the nonce with, as far as that is settled. The block
// of one node is enough for one that is recorded: the count settles that the nonce is used.
func (n *note) settledTx() Hash {
	if n.sure || n.hashes.Contains(n.tx) {
		return n.tx
	}
	return Hash{}
}
