package lease

import "time"

// Shard is the row of a shard: a fixed part of all signers, which has one owner and one
// fencing token.
type Shard struct {
	Shard int
	Owner Holder // zero: nobody
	Token int64
	// Taken is set by Acquire only: this call made the caller the owner. A shard that was the
	// caller's before is taken again, with a higher token.
	Taken bool
	// Pinned is the node at which it should be while that node lives; "": the balance says.
	Pinned string
}

// Term is the shard as its owner believes it to be.
func (s *Shard) Term() ShardTerm { return ShardTerm{Shard: s.Shard, Token: s.Token} }

// ShardTerm is a shard as its owner believes it to be.
type ShardTerm struct {
	Shard int
	Token int64
}

// Renewal is what a heartbeat tells a node.
type Renewal struct {
	Now     time.Time // store clock
	Until   time.Time // the end of the lease
	Counter int64     // heartbeats of this incarnation so far
	Shards  []Shard   // those that the node owns, in this incarnation or one before
}

// Owners is who has which shard.
type Owners struct {
	Now    time.Time // store clock
	Shards []Shard   // in order
	Nodes  []Node    // as Register.Nodes has them
}

// Count fills in how many shards each of the nodes owns.
func (o *Owners) Count() {
	of := make(map[Holder]int)
	for _, s := range o.Shards {
		of[s.Owner]++
	}
	for i := range o.Nodes {
		o.Nodes[i].Shards = of[o.Nodes[i].Holder]
	}
}

// Serving says of each shard which node has it by a lease that runs; "": none.
func (o *Owners) Serving() []string {
	runs := make(map[Holder]bool)
	for _, n := range o.Nodes {
		runs[n.Holder] = n.LeaseUntil.After(o.Now)
	}
	names := make([]string, len(o.Shards))
	for i, s := range o.Shards {
		if runs[s.Owner] {
			names[i] = s.Owner.Node
		}
	}
	return names
}
