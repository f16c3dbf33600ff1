package route

import (
	"maps"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/dgryski/go-rendezvous"
)

// table is what Prefer and Forward look at. It is never changed, only replaced.
type table struct {
	peers map[string]*peer
	// ring is nil when no other node can be preferred. It is made anew on each
	// change: its own Remove is broken, and lookups need no lock this way.
	ring  *rendezvous.Rendezvous
	nodes []string // of the ring
}

// rebuildLocked makes the table follow what is known. The caller holds r.mu.
func (r *Router) rebuildLocked() {
	t := &table{peers: maps.Clone(r.peers)}
	defer r.table.Store(t)
	if !r.cfg.Forward {
		return
	}
	for id, p := range r.peers {
		if p.preferable() {
			t.nodes = append(t.nodes, id)
		}
	}
	if len(t.nodes) == 0 {
		return
	}
	if !r.retired && !r.left {
		t.nodes = append(t.nodes, r.self)
	}
	slices.Sort(t.nodes)
	if old := r.table.Load(); slices.Equal(old.nodes, t.nodes) {
		t.ring = old.ring
		return
	}
	t.ring = rendezvous.New(t.nodes, xxhash.Sum64String)
}

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

// States is every State there is, for metrics that show all of them.
var States = [...]State{Up, Dialling, Suspect, Leaving, Silent, Unlinked}

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
