package events

import (
	"maps"
	"slices"

	"noncegate/nonce"
)

// Interest is what the clients of this node want to hear of. The zero Interest is
// nothing.
type Interest struct {
	All     bool
	Signers []string // sorted, each once, at most MaxSigners; nil with All
}

// Interest is what the clients want just now, those included whose subscription
// was not started yet: what other nodes are to be asked for. Subscriptions of
// other nodes are none of it. The signers of many subscriptions that are more than
// MaxSigners together come to all.
func (h *Hub) Interest() Interest {
	h.mu.RLock()
	defer h.mu.RUnlock()
	w := &h.wants[ofClients]
	if w.everything() {
		return Interest{All: true}
	}
	return Interest{Signers: slices.Sorted(maps.Keys(w.bySigner))}
}

// OnInterest makes changed be called whenever Interest has become another one,
// before the Subscribe or Close returns that made it so. Several calls may run at
// a time; what is wanted is read by Interest, not told in their order. It is
// called once, before the first Subscribe; changed must not block.
func (h *Hub) OnInterest(changed func()) { h.changed = changed }

// Remote hands an event over that another node committed to the clients who want it, on a queue:
// best that of this node's own commits for the signer, so that they keep their order when it moves here.
// missed is how many events that node could not tell us of before this one, whatever their
// signers. It does not block: without a slot in the post-DB pool the event is dropped, and counted as missed.
func (h *Hub) Remote(queue int, e nonce.Event, missed int64) {
	if missed > 0 {
		h.missEverywhere(missed)
	}
	if h.wanted(e.Signer, h.wants[:ofNodes]) { // else its last subscriber has just left
		h.queue(queue, false, []nonce.Event{e}, h.wants[:ofNodes])
	}
}

// Lost says that events of another node got lost and nobody knows how many, nor
// of whom: the next event that a client gets says that it missed one.
func (h *Hub) Lost() { h.missEverywhere(1) }

// missEverywhere counts events as missed by every client's subscription: any of
// them may have wanted them.
func (h *Hub) missEverywhere(n int64) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	w := &h.wants[ofClients]
	for s := range w.all {
		s.missed.Add(n)
	}
	for signer, wanting := range w.bySigner {
		for s := range wanting {
			if s.signers[0] == signer { // once for each, however many it names
				s.missed.Add(n)
			}
		}
	}
}
