package cluster

import (
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

// stage is how far an op has come on its way to another node.
type stage uint8

const (
	free    stage = iota // the slot holds no op
	queued               // not sent; nobody else touches the op
	writing              // the writer reads the op
	sent                 // handed to the network, or about to be
)

// op is a request that the router took over.
type op struct {
	q    *nonce.Request
	path uint64
	of   nonce.Forwarded
}

// slot is one op under way: a request, and whose it is.
type slot struct {
	op
	at         time.Time // of Forward
	id         uint64    // in the protocol: what tells uses of the slot apart, and its index
	stage      stage
	sum        uint64 // of the bytes of the request, once they were written
	prev, next int32
}

// slotBits of an id are the index of its slot.
const slotBits = 18

// inflight is what is under way at one node, in the order of Forward, which is also
// that of the deadlines: all ops have the same time. Slots are used again, and
// there are never more than Config.Queue. A principal may have an equal part of them, as
// fairness.Shares says. Guarded by peer.mu.
type inflight struct {
	// slots[0] holds no op: it is the ring's beginning and end. Those that are
	// free hang together by next.
	slots []slot
	free  int32
	next  int32 // the first queued one; 0: none. All behind it are queued, too
	n     int

	shares *fairness.Shares // of the slots, by principal
}

func newInflight(slots int) inflight {
	return inflight{shares: fairness.NewShares(int64(slots), 1, 0)}
}

// add puts op at the end. false: there is no slot for it, or its principal has its share.
func (w *inflight) add(o op, at time.Time) bool {
	if ok, _ := w.shares.Try(o.q.Principal, 1); !ok {
		return false
	}
	if len(w.slots) == 0 {
		w.slots = make([]slot, 1, 16)
	}
	i := w.free
	if i == 0 {
		i = int32(len(w.slots))
		w.slots = append(w.slots, slot{id: uint64(i)})
	} else {
		w.free = w.slots[i].next
	}
	s, last := &w.slots[i], w.slots[0].prev
	s.op, s.at, s.stage, s.id = o, at, queued, s.id+1<<slotBits
	s.prev, s.next = last, 0
	w.slots[last].next, w.slots[0].prev = i, i
	if w.next == 0 {
		w.next = i
	}
	w.n++
	return true
}

// find returns the slot of id, nil when its op has ended.
func (w *inflight) find(id uint64) *slot {
	i := id & (1<<slotBits - 1)
	if i == 0 || i >= uint64(len(w.slots)) || w.slots[i].id != id || w.slots[i].stage == free {
		return nil
	}
	return &w.slots[i]
}

// first is the oldest, nil when there is none.
func (w *inflight) first() *slot {
	if w.n == 0 {
		return nil
	}
	return &w.slots[w.slots[0].next]
}

// takeQueued gives the next queued op to the writer; nil: none is queued.
func (w *inflight) takeQueued() *slot {
	if w.next == 0 {
		return nil
	}
	s := &w.slots[w.next]
	s.stage, w.next = writing, s.next
	return s
}

// remove ends the use of a slot.
func (w *inflight) remove(s *slot) {
	i := int32(s.id & (1<<slotBits - 1))
	if w.next == i {
		w.next = s.next
	}
	w.shares.Release(s.q.Principal, 1)
	w.slots[s.prev].next, w.slots[s.next].prev = s.next, s.prev
	s.op, s.stage = op{}, free
	s.next, w.free = w.free, i
	w.n--
}
