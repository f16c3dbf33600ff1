// Package events delivers committed events to their subscribers: the clients of this
// node, and the other nodes, which pass them on to their own clients.
//
// It promises:
//   - A subscriber gets the events of one signer in the order in which they arrived
//     here, which is commit order for the events of one node.
//   - An event is encoded once at each node, however many of its clients want it.
//   - Missed events are counted, and the next event that a subscriber gets says how
//     many it missed.
//   - No event is offered before Subscription.Start was called or after Subscription.Close returned.
//   - Events of another node are offered to clients only, so that no event circulates.
//
// It costs a commit one atomic load while there are no subscribers.
//
// It does not promise that every event arrives: an event is lost if its subscriber
// refuses it or the post-DB pool is full. A client that needs every change must read
// the signer's state again when it missed something.
//
// The hub starts no goroutine. Tasks of the post-DB pool deliver the events, one queue
// per worker of the service; the pool's owner stops it, and with it the last delivery.
// A subscriber that hangs blocks only its queue. Locks: nothing is called under Hub.mu;
// Subscription.mu is held during Take, so Take must not close the subscription.
//
// Where to begin reading: hub.go, subscription.go, subscription_index.go, remote.go.
package events

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"noncegate/nonce"
	"noncegate/postdb"
	"noncegate/wire"
)

// MaxSigners bounds the signers of one subscription: Subscribe's caller looks at it. Who
// wants more subscribes to all.
const MaxSigners = 1024

// Event is an event on its way to its subscribers.
type Event struct {
	*nonce.Event
	json []byte
}

// JSON is its wire form, which is made once, shared, and must not be changed.
func (e *Event) JSON() []byte {
	if e.json == nil {
		e.json = encode(e.Event)
	}
	return e.json
}

// Subscriber receives events.
type Subscriber interface {
	// Take is handed one event, and the number of events missed before it. false: not taken. It
	// is called from tasks of the post-DB pool, for one subscription by one at a
	// time, and must not block nor close its subscription.
	Take(e *Event, missed int64) bool
}

// Selective is a Subscriber that may not have every event it asked for. May is asked
// of each event just before it is offered, or counted as missed, and must not
// block. What it may not have was never meant for it: it is not missed.
type Selective interface{ May(signer string) bool }

// Hub is a nonce.EventSink. Its methods may be called from any goroutine.
type Hub struct {
	pool *postdb.Pool
	drop func(events int)

	changed func() // see OnInterest; nil: nobody asks

	open atomic.Int64 // subscriptions that are open, so that none costs one load

	mu    sync.RWMutex         // guards what follows; nobody is called under it
	wants [2]subscriptionIndex // of clients, which hear of every node's commits, and of other nodes
}

// The indices of Hub.wants. Other nodes hear of this one's commits only, as each asks every node.
const ofClients, ofNodes = 0, 1

var _ nonce.EventSink = (*Hub)(nil)

// New makes a hub that delivers on the queues of pool. dropped is told how many
// events found the pool full; it must not block.
func New(pool *postdb.Pool, dropped func(events int)) *Hub {
	return &Hub{pool: pool, drop: dropped, wants: [2]subscriptionIndex{newSubscriptionIndex(), newSubscriptionIndex()}}
}

// Watched reports whether anybody subscribed to the signer, another node included.
func (h *Hub) Watched(signer string) bool {
	return h.wanted(signer, h.wants[:])
}

func (h *Hub) wanted(signer string, by []subscriptionIndex) bool {
	if h.open.Load() == 0 {
		return false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return slices.ContainsFunc(by, func(w subscriptionIndex) bool { return w.any(signer) })
}

// Subscriptions is how many are open, those of other nodes included.
func (h *Hub) Subscriptions() int { return int(h.open.Load()) }

// Reserve takes a post-DB slot for the events of one op, at its admission.
// false: the queue has its share, or the pool is full.
func (h *Hub) Reserve(queue int) bool { return h.pool.Queue(queue).TryReserve() }

// Unreserve gives a slot back that was not handed to Publish.
func (h *Hub) Unreserve(queue int) { h.pool.Queue(queue).Unreserve() }

// Publish implements nonce.EventSink. It keeps events.
func (h *Hub) Publish(queue int, placed bool, events []nonce.Event) {
	if len(events) > 0 && h.Watched(events[0].Signer) {
		h.queue(queue, placed, events, h.wants[:])
	} else if placed {
		h.Unreserve(queue)
	}
}

// queue has events of one signer delivered to those who want them then, or drops them for want of a slot.
func (h *Hub) queue(queue int, placed bool, events []nonce.Event, to []subscriptionIndex) {
	q := h.pool.Queue(queue)
	if !placed && !q.TryReserve() {
		h.drop(len(events))
		for _, s := range h.matching(events[0].Signer, to) {
			s.missed.Add(int64(len(events)))
		}
		return
	}
	q.Submit(func() {
		subs := h.matching(events[0].Signer, to)
		for i := range events {
			e := Event{Event: &events[i]}
			for _, s := range subs {
				s.offer(&e)
			}
		}
	}, time.Now())
}

// matching returns the subscriptions that want events of the signer just now, and may have them.
func (h *Hub) matching(signer string, of []subscriptionIndex) []*Subscription {
	return slices.DeleteFunc(h.wanting(signer, of), func(s *Subscription) bool {
		some, ok := s.to.(Selective)
		return ok && !some.May(signer)
	})
}

func (h *Hub) wanting(signer string, of []subscriptionIndex) (subs []*Subscription) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, w := range of {
		subs = slices.AppendSeq(slices.AppendSeq(subs, maps.Keys(w.all)), maps.Keys(w.bySigner[signer]))
	}
	return subs
}

func encode(e *nonce.Event) []byte {
	return wire.AppendEvent(nil, &wire.Event{
		Type: e.Type.String(), Signer: e.Signer, Nonce: e.Nonce, Attempt: e.Attempt,
		TxHash: e.TxHash.String(), Reason: e.Reason, Version: e.Version, At: wire.Time(e.At), Gap: Gap(e.Gap),
	})
}

// Gap is the wire form of a gap; nil for nil.
func Gap(g *nonce.Gap) *wire.Gap {
	if g == nil {
		return nil
	}
	w := &wire.Gap{
		Nonce: g.Nonce, Since: wire.Time(g.Since), Attempt: g.Attempt, TxHash: g.TxHash.String(), Blocked: g.Blocked,
	}
	switch {
	case g.Unknown:
		w.Status = wire.StatusUnknown
	case g.Status != 0:
		w.Status = g.Status.String()
	}
	return w
}
