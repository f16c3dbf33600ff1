package cluster

import (
	"maps"
	"slices"
)

// table is what Reaches and Forward look at. It is never changed, only replaced.
type table struct{ peers map[string]*peer }

// rebuildLocked makes the table follow what is known.
func (r *Router) rebuildLocked() { r.table.Store(&table{peers: maps.Clone(r.peers)}) }

// rebuild makes the table follow a change of a peer.
func (r *Router) rebuild() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rebuildLocked()
}

// State is how this node sees another one: a label of metrics.
type State string

// The states of a peer.
const (
	// Up: there is a link.
	Up State = "up"
	// Dialling: the first link is being opened; ops wait for it.
	Dialling State = "dialling"
	// Suspect: the link was lost, or could not be opened, and is tried again.
	Suspect State = "suspect"
	// Leaving: the node drains, or has left.
	Leaving State = "leaving"
	// Silent: the registry has heard nothing of the node for too long.
	Silent State = "silent"
	// Unlinked: no link is wanted.
	Unlinked State = "unlinked"
)

// Peer is a node as this one sees it.
type Peer struct {
	Node     string
	URL      string
	State    State
	UnderWay int // ops
}

// Peers is what is known of the other nodes, in the order of their ids.
func (r *Router) Peers() []Peer {
	peers := r.table.Load().peers
	list := make([]Peer, 0, len(peers))
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, peers[id].snapshot())
	}
	return list
}
