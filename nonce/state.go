package nonce

import (
	"container/list"
	"slices"
	"time"

	"noncegate/lease"
)

const (
	// maxHeldRows bounds the HELD rows remembered of one signer. A mark of one
	// that is not remembered costs a read.
	maxHeldRows = 2048
	// maxReleased bounds the RELEASED rows remembered of one signer, the lowest
	// ones. More are read when those are used up.
	maxReleased = 2048
	// loadReleased is how many RELEASED rows are read ahead.
	loadReleased = 128
	// loadDue bounds the overdue holds ended by one commit.
	loadDue = 512
)

// freeNonce is a RELEASED row: what allocate needs of it.
type freeNonce struct {
	nonce, attempt int64
	holder         Principal // of that attempt, who may still mark it used
	unseen         bool      // it was unknown for long; whoever gets it is told
}

// state is what a worker remembers of one signer. While owned, it is what the
// store has at (term.Token, version), as far as it goes: memory chooses what to
// try, the store's condition on token and version says whether it was right.
// Guarded by the shard's turn.
type state struct {
	signer string
	id     int64
	owned  bool // false: acquire before use; token, version and next are what was last seen
	halted bool // the store showed less than was seen; only a new floor helps

	safeFloor int64 // while halted: the least floor that helps, the cursor last seen

	term     lease.Term
	standing Standing
	doubting bool // when it was loaded, nonces below standing.DoubtBelow were in doubt
	version  int64
	next     int64
	floor    int64
	pruned   int64 // nonces below it have no row any more and are CONSUMED
	heldRows holds // some of the HELD rows
	held     int64 // how many HELD rows there are

	released     []freeNonce // the lowest RELEASED rows at or above the floor, ascending
	releasedMore bool        // there are more than those
	dueAt        time.Time   // store clock; no remembered hold ends before it; zero: none remembered
	notedDue     time.Time   // store clock; the same of holds that have a hash or a reason, which are not remembered

	chain      ChainSigner // what its chain says; nil: no chain is configured for it, or it was not asked
	chainAsked bool

	// Loaded for the round under way, and dropped after it.
	details   map[int64]Row
	requests  map[string]Request
	due       []Row
	detailsAt time.Time // store clock of the load

	owner      string    // the node that was last seen to own the signer; "": not known
	ownerURL   string    // what the store says is its URL, "" when not known
	ownerUntil time.Time // monotonic; when to stop believing that
	away       *trail    // its ops that are under way at another node, nil: none
	servedAt   int64     // atomic; when another node last answered ok, since the start of the service in nanoseconds

	grantTrusted time.Time // monotonic; until then this node may hand out from Redis
	handed       int64     // nonces handed out since the last block was asked for
	handedFrom   time.Time // monotonic; when that was
	reserving    bool      // a block is being asked for
	mirror       *mirror   // nil: Redis is not kept equal
	mirrorAfter  time.Time // monotonic; not before then is a copy begun, or a move tried
	parkAfter    time.Time // monotonic; not before then is it set aside for its copy

	disbelievedAt time.Time // monotonic; when the owner was last forgotten because it cannot be reached

	active   *group        // while a batch is being sorted
	lastUsed time.Time     // monotonic
	place    *list.Element // in the shard's list, most recently used first
}

// row finds an existing allocation: loaded for this round, or remembered.
func (st *state) row(n int64) (Row, bool) {
	if row, ok := st.details[n]; ok {
		return row, true
	}
	if row, ok := st.heldRows.row(n); ok {
		return row, true
	}
	if f, ok := st.free(n); ok {
		return Row{Nonce: n, Status: Released, Attempt: f.attempt, Holder: f.holder}, true
	}
	return Row{}, false
}

func (st *state) free(n int64) (freeNonce, bool) {
	i, ok := slices.BinarySearchFunc(st.released, freeNonce{nonce: n}, compareFree)
	if !ok {
		return freeNonce{}, false
	}
	return st.released[i], true
}

// knows reports whether a mark of n can be judged without reading: it is
// remembered, was never handed out, or was pruned.
func (st *state) knows(n int64) bool {
	if n >= st.next || n < st.pruned {
		return true
	}
	_, ok := st.row(n)
	return ok
}

// fill replaces what is remembered with a snapshot.
func (st *state) fill(s *Snapshot) {
	st.dropLoaded()
	st.id, st.version, st.next, st.floor, st.held, st.pruned = s.ID, s.Version, s.Next, s.Floor, s.Held, s.Pruned
	st.standing, st.doubting = s.Standing, s.Now.Before(s.DoubtUntil)
	st.heldRows, st.dueAt, st.notedDue, st.mirror = nil, time.Time{}, time.Time{}, nil
	st.loaded(s)
	st.setFree(s)
	for i := range s.Rows {
		if row := &s.Rows[i]; row.Status == Held {
			st.hold(row)
		}
	}
}

// setFree replaces the RELEASED rows that are remembered.
func (st *state) setFree(s *Snapshot) {
	st.released, st.releasedMore = make([]freeNonce, 0, len(s.Released)), s.ReleasedMore
	for _, n := range s.Released {
		row := st.details[n]
		st.released = append(st.released, freeNonce{n, row.Attempt, row.Holder, row.Reason == ReasonUnseen})
	}
}

// loaded keeps what a round asked for, until drop.
func (st *state) loaded(s *Snapshot) {
	st.detailsAt, st.due = s.Now, s.Due
	for _, row := range s.Rows {
		if st.details == nil {
			st.details = make(map[int64]Row, len(s.Rows))
		}
		st.details[row.Nonce] = row
	}
	for _, req := range s.Requests {
		if st.requests == nil {
			st.requests = make(map[string]Request, len(s.Requests))
		}
		st.requests[req.ID] = req
	}
}

func (st *state) dropLoaded() {
	st.details, st.requests, st.due = nil, nil, nil
}

// hold remembers a HELD row. One with a hash or a reason is read when it is wanted. When
// the bound is reached all are forgotten rather than one searched for: each costs one
// read if it is marked after all.
func (st *state) hold(row *Row) {
	if st.doubting && row.Nonce < st.standing.DoubtBelow {
		return // it is not swept now
	}
	if st.dueAt.IsZero() || row.HeldUntil.Before(st.dueAt) {
		st.dueAt = row.HeldUntil
	}
	if row.TxHash != (TxHash{}) || row.Reason != "" {
		st.heldRows.drop(row.Nonce)
		st.noted(row.HeldUntil)
		return
	}
	if len(st.heldRows) >= maxHeldRows {
		st.heldRows = st.heldRows[:0]
	}
	st.heldRows.put(heldRow{row.Nonce, row.Attempt, row.HeldUntil.UnixMicro(), row.Holder})
}

// noted keeps the earliest deadline of the holds that are not remembered.
func (st *state) noted(until time.Time) {
	if st.notedDue.IsZero() || until.Before(st.notedDue) {
		st.notedDue = until
	}
}

// committed follows a draft whose commit succeeded at now.
func (st *state) committed(d *draft, now time.Time) {
	c := &d.change
	st.next, st.floor, st.held = c.Next, c.Floor, c.Held
	if !c.Check {
		st.version++
	}
	st.released = d.released
	if len(st.released) > maxReleased {
		st.released, st.releasedMore = slices.Clone(st.released[:maxReleased]), true
	}
	for i := range c.Rows {
		rc := &c.Rows[i]
		if rc.Status == Held {
			st.hold(&Row{
				Nonce: rc.Nonce, Attempt: rc.Attempt, Holder: rc.Holder, HeldUntil: now.Add(rc.Hold), TxHash: rc.TxHash, Reason: rc.Reason,
			})
		} else {
			st.heldRows.drop(rc.Nonce)
		}
	}
}

// swept finds the earliest deadline of the remembered holds after a sweep at
// now. A store that says a hold is not due yet is asked again a little later.
// more says that there may be overdue holds beyond those the sweep could take.
func (st *state) swept(now time.Time, more bool) {
	st.dueAt = time.Time{}
	if more {
		st.dueAt = now.Add(-time.Second)
		return
	}
	if first := st.heldRows.first(); first != 0 {
		st.dueAt = latest(time.UnixMicro(first), now.Add(5*time.Millisecond))
	}
	if !st.notedDue.After(now) {
		st.notedDue = time.Time{} // they are ended, or the sweeps of the store find them
	}
	if !st.notedDue.IsZero() && (st.dueAt.IsZero() || st.notedDue.Before(st.dueAt)) {
		st.dueAt = st.notedDue
	}
}

// wentBack reports whether a snapshot shows less than was seen: commits that
// were acknowledged are gone. token is the least the row must carry. After a loss of
// Redis the cursor is above all that was handed out, and a floor that only Redis had
// may be above that.
func (st *state) wentBack(s *Snapshot, token int64) bool {
	if st.id == 0 {
		return false
	}
	sameEpoch := EpochOf(s.Version) == EpochOf(st.version)
	return !s.Exists || s.Version < st.version || sameEpoch && s.Next < st.next || s.Lease.Token < token
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
