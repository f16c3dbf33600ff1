package history

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"
)

// machine is one signer as clients know it: what the gateway's rules say, without time. A hold that has passed its deadline may
// count as released at any moment from then on, so HELD here means held or expired, and the deadline is looked at only when the
// nonce is handed out again, by the store's clock of that commit.
//
// A machine is never changed once it was made.
type machine struct {
	next, floor int64
	rows        []cell // by nonce; those that a floor skipped have no status
	slack       int64  // milliseconds by which a hand-out may be before the end of a hold; below 0: must be after it
}

// cell is the state of one nonce.
type cell struct {
	status  string // "": never handed out
	attempt int64
	tx      string        // the newest of a consumed one; "": by the floor
	before  string        // those that it replaced, oldest first, with commas between
	until   int64         // of a hold: deadline by the store's clock in ms
	given   time.Duration // of a hold: when it can have begun
	by      string        // the request id of the last hand-out
}

// longAgo is the deadline of a hold that nobody was told about.
const longAgo = math.MinInt64

func (m *machine) equal(o *machine) bool {
	return m.next == o.next && m.floor == o.floor && slices.Equal(m.rows, o.rows)
}

// hash need not tell everything apart; what it leaves out equal compares.
func (m *machine) hash(seed maphash.Seed) uint64 {
	b := make([]byte, 0, 16+10*len(m.rows))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.next))
	b = binary.LittleEndian.AppendUint64(b, uint64(m.floor))
	for i := range m.rows {
		b = append(b, byte(len(m.rows[i].status)), byte(m.rows[i].attempt))
	}
	return maphash.Bytes(seed, b)
}

// String is what a picture shows of a state.
func (m *machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "next %d floor %d:", m.next, m.floor)
	for n, c := range m.rows {
		if c.status != "" && c.status != Consumed {
			fmt.Fprintf(&b, " %d/%d %s", n, c.attempt, c.status[:1])
		}
	}
	return b.String()
}

// copy makes a machine that may be changed until it is returned.
func (m *machine) copy() *machine {
	c := *m
	c.rows = slices.Clone(m.rows)
	return &c
}

func (m *machine) at(n int64) cell {
	if n < 0 || n >= int64(len(m.rows)) {
		return cell{}
	}
	return m.rows[n]
}

// maxNonce bounds what a history may hand out; the machine keeps a cell for each.
const maxNonce = 1 << 20

// step reports whether st can happen in this state, and the state after it.
func (m *machine) step(st *step) (bool, any) {
	switch {
	case st.orphan != nil:
		return m.allocate([]Given{*st.orphan}, &step{endedBy: whenever}, longAgo, "")
	case st.stored != nil:
		return m.isStored(st.stored), m
	}
	c := st.call
	switch c.Outcome {
	case Refused:
		return m.explains(c), m
	case Unknown:
		ok, after := m.effect(c)
		if !ok && !st.must {
			return true, m // it may never take effect
		}
		return ok, after
	case Happened:
	}
	return m.happened(c, st)
}

// whenever is endedBy of a hand-out of which nobody knows when it was.
func whenever(time.Duration) int64 { return math.MaxInt64 / 2 }

func (m *machine) happened(c *Call, st *step) (bool, any) {
	switch c.Kind {
	case Allocate:
		if m.repeats(c) {
			return true, m
		}
		return m.allocate(c.Nonces, st, c.HeldUntil, c.RequestID)
	case Status:
		return m.next == c.Next && m.floor == c.FloorNow, m
	case SetFloor:
		ok, after := m.effect(c)
		return ok && after.next == c.Next && after.floor == c.FloorNow, after
	case MarkUsed, MarkRecyclable:
		ok, after := m.effect(c)
		return ok && after.at(c.Nonce).status == c.State, after
	}
	return false, m
}

// repeats reports whether a request id is answered what it got before.
func (m *machine) repeats(c *Call) bool {
	return c.RequestID != "" && len(c.Nonces) > 0 && !slices.ContainsFunc(c.Nonces, func(g Given) bool {
		row := m.at(g.Nonce)
		return row.status != Held || row.attempt != g.Attempt || row.by != c.RequestID
	})
}

// allocate hands out exactly these nonces.
func (m *machine) allocate(nonces []Given, st *step, until int64, by string) (bool, *machine) {
	for _, g := range nonces {
		row := m.at(g.Nonce)
		fresh := g.Nonce >= m.next
		switch {
		case fresh && g.Attempt != 1, !fresh && g.Attempt != row.attempt+1, g.Nonce < m.floor, g.Nonce >= maxNonce:
			return false, m
		case !fresh && row.status == Released:
		case !fresh && !(row.status == Held && row.until <= st.endedBy(row.given)+m.slack):
			return false, m
		}
	}
	if by != "" && slices.ContainsFunc(m.rows, func(c cell) bool { return c.by == by }) {
		return false, m // it was answered already
	}
	after := m.copy()
	for _, g := range nonces {
		if g.Nonce >= after.next {
			if g.Nonce != after.next {
				return false, m
			}
			after.next++
			after.grow()
		}
		after.rows[g.Nonce] = cell{status: Held, attempt: g.Attempt, until: until, given: st.given, by: by}
	}
	return true, after
}

func (m *machine) grow() {
	for int64(len(m.rows)) < m.next {
		m.rows = append(m.rows, cell{})
	}
}

// effect is what a mark or a floor does, whatever was answered. false: in this state it would be refused.
func (m *machine) effect(c *Call) (bool, *machine) {
	row := m.at(c.Nonce)
	switch c.Kind {
	case SetFloor:
		return true, m.raise(c.Floor)
	case MarkUsed:
		switch {
		case row.status == "" || row.attempt != c.Attempt:
			return false, m
		case row.status == Consumed && row.recorded(c.TxHash):
			return true, m
		case row.status == Consumed && row.tx != "" && strings.Count(row.before, ",")+2 >= maxHashes && row.before != "":
			return false, m
		}
		after := cell{status: Consumed, attempt: row.attempt, tx: c.TxHash, by: row.by}
		if row.status == Consumed {
			after.before = join(row.before, row.tx)
		}
		return true, m.with(c.Nonce, after)
	case MarkRecyclable:
		switch {
		case row.status == "" || row.attempt != c.Attempt:
			return false, m
		case row.status == Consumed:
			return row.tx == "", m
		case c.Nonce < m.floor:
			return true, m.with(c.Nonce, cell{status: Consumed, attempt: row.attempt, by: row.by})
		case row.status == Released:
			return true, m
		}
		return true, m.with(c.Nonce, cell{status: Released, attempt: row.attempt, by: row.by})
	}
	return false, m
}

// recorded reports whether a transaction is the newest, or one that it replaced.
func (c *cell) recorded(tx string) bool {
	return tx == c.tx || slices.Contains(strings.Split(c.before, ","), tx)
}

func join(list, tx string) string {
	if list == "" {
		return tx
	}
	return list + "," + tx
}

func (m *machine) with(n int64, c cell) *machine {
	after := m.copy()
	after.rows[n] = c
	return after
}

// raise consumes what is released below the floor; what is held stays.
func (m *machine) raise(floor int64) *machine {
	if floor <= m.floor || floor >= maxNonce {
		return m
	}
	after := m.copy()
	after.floor, after.next = floor, max(m.next, floor)
	after.grow()
	for n := range after.rows[:floor] {
		if row := &after.rows[n]; row.status == Released {
			*row = cell{status: Consumed, attempt: row.attempt, by: row.by}
		}
	}
	return after
}

// explains reports whether a refusal tells the truth about this state.
func (m *machine) explains(c *Call) bool {
	row := m.at(c.Nonce)
	if c.Seen == nil {
		return row.status == "" // not_found
	}
	if row.status == "" && c.Nonce < m.next { // a floor has skipped it, so it is consumed
		return c.Seen.Status == Consumed && c.Seen.Attempt == 0
	}
	if row.attempt != c.Seen.Attempt || !m.shows(c.Nonce, row, c.Seen.Status, c.Seen.TxHash) {
		return false
	}
	// And the call would indeed be refused.
	ok, _ := m.effect(c)
	return !ok || row.status == Held && c.Seen.Status == Consumed
}

// shows reports whether a nonce in this state may be seen as that: a hold may have ended by itself.
func (m *machine) shows(n int64, row cell, status, tx string) bool {
	switch status {
	case Consumed:
		return row.status == Consumed && row.tx == tx || row.status == Held && n < m.floor && tx == ""
	case Released:
		return row.status == Released || row.status == Held && n >= m.floor
	}
	return row.status == status
}

func (m *machine) isStored(s *StoredSigner) bool {
	if m.next != s.Next || m.floor != s.Floor {
		return false
	}
	with := 0
	for i := range m.rows {
		if m.rows[i].status != "" {
			with++
		}
	}
	if with != len(s.Rows) {
		return false
	}
	for i := range s.Rows {
		r := &s.Rows[i]
		if row := m.at(r.Nonce); row.attempt != r.Attempt || !m.shows(r.Nonce, row, r.Status, r.TxHash) || row.before != strings.Join(r.Replaced, ",") {
			return false
		}
	}
	return true
}
