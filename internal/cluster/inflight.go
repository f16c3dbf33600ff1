package cluster

import (
	"container/list"
	"time"

	"noncegate/nonce"
	"noncegate/nonce/fairness"
)

// stage is how far an op has come on its way to another node.
type stage uint8

const (
	queued  stage = iota // not sent; nobody else touches the op
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
	at    time.Time // of Forward
	id    uint64    // in the protocol
	stage stage
	place *list.Element

	sum  uint64 // of the bytes of the request, once they were written
	gone bool   // the writer's: nobody waits for it, and it is not sent

	verdict nonce.Verdict // once it has ended, with the error it is returned with
	why     error
}

// inflight is what is under way at one node, in the order of Forward, which is also
// that of the deadlines: all ops have the same time. There are never more than Config.Queue.
// A principal may have an equal part of them, as fairness.Shares says. Guarded by peer.mu.
type inflight struct {
	order  list.List        // of *slot
	next   *list.Element    // the first queued one; nil: none. All behind it are queued, too
	byID   map[uint64]*slot // nil: it was sent over the present link and given up, and may still be answered
	lastID uint64

	shares *fairness.Shares // by principal
}

func newInflight(slots int) inflight {
	return inflight{byID: make(map[uint64]*slot), shares: fairness.NewShares(int64(slots), 1, 0)}
}

// add puts op at the end. false: there is no slot for it, or its principal has its share.
func (w *inflight) add(o op, at time.Time) bool {
	if ok, _ := w.shares.Try(o.q.Principal, 1); !ok {
		return false
	}
	w.lastID++
	s := &slot{op: o, at: at, id: w.lastID}
	s.place = w.order.PushBack(s)
	w.byID[s.id] = s
	if w.next == nil {
		w.next = s.place
	}
	return true
}

// first is the oldest, nil when there is none.
func (w *inflight) first() *slot {
	if e := w.order.Front(); e != nil {
		return e.Value.(*slot)
	}
	return nil
}

// takeQueued gives the next queued op to the writer; nil: none is queued.
func (w *inflight) takeQueued() *slot {
	if w.next == nil {
		return nil
	}
	s := w.next.Value.(*slot)
	s.stage, w.next = writing, w.next.Next()
	return s
}

// end takes an op out, to be returned with a verdict.
func (w *inflight) end(s *slot, v nonce.Verdict, why error) *slot {
	if w.next == s.place {
		w.next = w.next.Next()
	}
	w.shares.Release(s.q.Principal, 1)
	w.order.Remove(s.place)
	delete(w.byID, s.id)
	s.verdict, s.why = v, why
	return s
}

// late is how many ops were given up and may still be answered.
func (w *inflight) late() int { return len(w.byID) - w.order.Len() }
