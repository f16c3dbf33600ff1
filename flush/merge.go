package flush

import "noncegate/nonce"

// group is what one Apply is told of a signer: consecutive entries merged. Groups of
// one signer are applied one after the other.
type group struct {
	shard   int
	event   nonce.FlushEvent
	entries []Entry
}

// merge makes groups of a shard's entries, which are in the order of their stream:
// for each signer a list, in order. Merging is exact: the group's event leaves a row
// that was at From as its events would have, one after the other. Where that would
// not be so, or where events contradict each other, a new group begins, so that the
// store sees what is wrong.
func merge(shard int, entries []Entry) map[int64][]*group {
	open := make(map[int64]*merger)
	groups := make(map[int64][]*group)
	for _, e := range entries {
		m := open[e.ID]
		if m == nil || !m.add(e) {
			m = newMerger(shard, e)
			open[e.ID] = m
			groups[e.ID] = append(groups[e.ID], &m.group)
		}
	}
	return groups
}

// maxGroupRows is where a group ends that could still grow: one transaction of the
// store holds several groups, and is to stay short.
const maxGroupRows = 4096

// merger is a group that may still grow.
type merger struct {
	group
	at  map[int64]int // where in event.Rows a nonce is; nil while there is one entry
	ids map[string]struct{}
}

func newMerger(shard int, e Entry) *merger {
	return &merger{group: group{shard: shard, event: e.FlushEvent, entries: []Entry{e}}}
}

// add takes the entry into the group, or reports that it does not fit.
func (m *merger) add(e Entry) bool {
	if e.From != m.event.To || m.event.BelowFloor || len(m.event.Rows) >= maxGroupRows {
		return false
	}
	m.index()
	for i := range e.Rows {
		if at, ok := m.at[e.Rows[i].Nonce]; ok && !follows(&m.event.Rows[at], &e.Rows[i]) {
			return false
		}
	}
	for i := range e.Requests {
		if _, twice := m.ids[e.Requests[i].ID]; twice {
			return false
		}
	}
	m.take(e)
	return true
}

// follows reports whether a row that was left as before can be changed to after
// without anything between them being seen by the store. It must see that a repair has
// handed a row out, which is how one that is CONSUMED may change, before it sees the end.
func follows(before, after *nonce.FlushRow) bool {
	repair := before.Status == nonce.Held && before.Reason == nonce.ReasonRepair
	return !after.Fresh && before.Status != nonce.Consumed && !repair && after.Attempt >= before.Attempt
}

func (m *merger) take(e Entry) {
	for _, r := range e.Rows {
		if at, ok := m.at[r.Nonce]; ok {
			r.Fresh = m.event.Rows[at].Fresh
			m.event.Rows[at] = r
			continue
		}
		m.at[r.Nonce] = len(m.event.Rows)
		m.event.Rows = append(m.event.Rows, r)
	}
	for _, r := range e.Requests {
		m.ids[r.ID] = struct{}{}
		m.event.Requests = append(m.event.Requests, r)
	}
	m.event.Token, m.event.To, m.event.At = e.Token, e.To, e.At
	m.event.Next, m.event.Floor, m.event.Held = e.Next, e.Floor, e.Held
	m.event.BelowFloor = e.BelowFloor
	m.entries = append(m.entries, e)
}

// index makes the group ready to grow. Its rows are copied then: they are those of
// its first entry, which stays as it was read.
func (m *merger) index() {
	if m.at != nil {
		return
	}
	m.event.Rows = append(make([]nonce.FlushRow, 0, 4*len(m.event.Rows)), m.event.Rows...)
	m.event.Requests = append(make([]nonce.Remembered, 0, 4*len(m.event.Requests)), m.event.Requests...)
	m.at = make(map[int64]int, 4*len(m.event.Rows))
	m.ids = make(map[string]struct{}, len(m.event.Requests))
	for i := range m.event.Rows {
		m.at[m.event.Rows[i].Nonce] = i
	}
	for i := range m.event.Requests {
		m.ids[m.event.Requests[i].ID] = struct{}{}
	}
}
