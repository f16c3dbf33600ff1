package lease

import (
	"slices"
	"time"
)

// Fleet is what a node knows of the nodes, and of which should have which shard. It is never changed
// once others see it, only replaced.
type Fleet struct {
	Live   []string // nodes that own shards, and serve now, in order
	Pinned []string // the node that each shard is pinned to; "": none

	nodes  map[string]Node
	assign []int // which of Live should have each shard
	// unserved is since when no node has had each shard by a lease that runs, as this node
	// saw it, by its own clock; zero: one has it.
	unserved []time.Time
}

// NewFleet is the fleet that a store shows, in which nodes of a mode own shards. leaving is a node
// that owns none any more; "": there is none. Shards that no node serves are missed since then, or
// since the time that the fleet before knew; nil: there was none.
func NewFleet(all *Owners, mode, leaving string, before *Fleet, now time.Time) *Fleet {
	f := &Fleet{nodes: make(map[string]Node, len(all.Nodes)), Pinned: make([]string, len(all.Shards))}
	for i, row := range all.Shards {
		f.Pinned[i] = row.Pinned
	}
	for _, n := range all.Nodes {
		f.nodes[n.Node] = n
		if n.Live && n.Mode == mode && n.Node != leaving {
			f.Live = append(f.Live, n.Node)
		}
	}
	f.assign = Assign(f.Live, f.Pinned)
	f.unserved = make([]time.Time, len(all.Shards))
	for i, node := range all.Serving() {
		switch {
		case node != "" || len(f.Live) == 0: // where no node owns shards, none is missed
		case before != nil && !before.unserved[i].IsZero():
			f.unserved[i] = before.unserved[i]
		default:
			f.unserved[i] = now
		}
	}
	return f
}

// Without is the fleet but for a node that serves no more.
func (f *Fleet) Without(node string) *Fleet {
	left := *f
	left.Live = slices.DeleteFunc(slices.Clone(f.Live), func(n string) bool { return n == node })
	left.assign = Assign(left.Live, left.Pinned)
	return &left
}

// URL is where a node is; "": it did not say, or is not known.
func (f *Fleet) URL(node string) string { return f.nodes[node].URL }

// Preferred is the node that should have a shard, "" without any.
func (f *Fleet) Preferred(shard int) string {
	if i := f.assign[shard]; i >= 0 {
		return f.Live[i]
	}
	return ""
}

// Runs reports whether the owner of a shard may hold it still at a time of the store's clock, in
// Unix milliseconds: its lease, of that incarnation, runs.
func (f *Fleet) Runs(owner Holder, now int64) bool {
	n, known := f.nodes[owner.Node]
	return known && n.Incarnation == owner.Incarnation && n.LeaseUntil.UnixMilli() > now
}

// Ownership is what is known of the owner of a shard with that row.
func (f *Fleet) Ownership(row *Shard) Ownership {
	n := f.nodes[row.Owner.Node]
	o := Ownership{Holder: row.Owner, URL: n.URL, Token: row.Token}
	if n.Incarnation == row.Owner.Incarnation {
		o.ExpiresAt = n.LeaseUntil
	}
	return o
}

// Unserved is how many shards no node has by a lease that runs, and for how long that has been so of the
// one that has waited longest.
func (f *Fleet) Unserved() (shards int, longest time.Duration) {
	for _, since := range f.unserved {
		if !since.IsZero() {
			shards, longest = shards+1, max(longest, time.Since(since))
		}
	}
	return shards, longest
}
