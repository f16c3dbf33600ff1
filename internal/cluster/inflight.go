package cluster

import (
	"time"

	"noncegate/nonce"
)

// stage is how far an op has come on its way to another node.
type stage uint8

const (
	free    stage = iota // the slot holds no op
	queued               // not sent; nobody else touches the op
	writing              // the writer reads the op
	sent                 // handed to the network, or about to be
)

// slot is one op under way.
type slot struct {
	op         *op
	at         time.Time // of Forward
	id         uint64    // in the protocol: what tells uses of the slot apart, and its index
	stage      stage
	of         nonce.Principal
	prev, next int32
}

// slotBits of an id are the index of its slot. What is above them stays, for any
// number of uses a process will see, within the 2^53 that every JSON reader knows.
const slotBits = 18

// inflight is what is under way at one node, in the order of Forward, which is also
// that of the deadlines: all ops have the same time. Slots are used again, and
// there are never more than Config.Queue. Guarded by peer.mu.
type inflight struct {
	// slots[0] holds no op: it is the ring's beginning and end. Those that are
	// free hang together by next.
	slots []slot
	free  int32
	next  int32 // the first queued one; 0: none. All behind it are queued, too
	n     int
	of    map[nonce.Principal]int // those of each principal; nobody's are not counted
}

// spareRoom is the part of the slots that a principal who is alone leaves to those
// who come.
const spareRoom = 8

// room reports whether one more op of a principal has a slot among so many. While
// several principals have any, each may have an equal part. Ops without a principal have
// no share: they are taken as long as there is a slot.
func (w *inflight) room(p nonce.Principal, slots int) bool {
	has, all := w.of[p], len(w.of)
	switch {
	case w.n >= slots:
		return false
	case p == 0:
		return true
	case has == 0:
		all++
	}
	if all == 1 {
		return has < slots-slots/spareRoom
	}
	return has < max(1, slots/all)
}

// add puts op at the end. The caller has looked that there is room for it.
func (w *inflight) add(op *op, at time.Time) {
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
	s.op, s.at, s.stage, s.of, s.id = op, at, queued, op.Principal, s.id+1<<slotBits
	s.prev, s.next = last, 0
	w.slots[last].next, w.slots[0].prev = i, i
	if w.next == 0 {
		w.next = i
	}
	w.n++
	if s.of == 0 {
		return
	}
	if w.of == nil {
		w.of = make(map[nonce.Principal]int)
	}
	w.of[s.of]++
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
	w.slots[s.prev].next, w.slots[s.next].prev = s.next, s.prev
	s.op, s.stage = nil, free
	s.next, w.free = w.free, i
	w.n--
	if s.of == 0 {
		return
	}
	w.of[s.of]--
	if w.of[s.of] == 0 {
		delete(w.of, s.of)
	}
}
