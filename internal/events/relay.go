package events

// Relay takes what this node commits to other nodes, in another way than by their
// subscriptions here. Its methods must not block.
type Relay interface {
	// Wanted reports whether another node may want events of the signer. It is
	// asked for every op that nobody here watches, and must be cheap.
	Wanted(signer string) bool
	// Relay hands over one encoded event, those of a signer in the order in which
	// they are delivered here. It is shared and must not be changed.
	Relay(signer string, event []byte)
	// Missed says that n events of the signer, in their place in the order, could
	// not be handed over.
	Missed(signer string, n int)
}

// RelayTo makes the hub hand to r what this node commits. It is called once, before
// the first Publish. What comes from other nodes by Remote is not relayed.
func (h *Hub) RelayTo(r Relay) { h.relay = r }

func (h *Hub) relayed(signer string) bool { return h.relay != nil && h.relay.Wanted(signer) }
