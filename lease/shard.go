package lease

import "time"

// Shard is the row of a shard: a fixed part of all signers, which has one owner and one
// fencing token.
type Shard struct {
	Shard int
	Owner Holder // zero: it has none
	Token int64
	// Taken is set by Acquire only: this call made the caller the owner. A shard that was the
	// caller's before is taken again, with a higher token.
	Taken bool
	// Pinned is the node at which it should be while that node lives; "": the balance says.
	Pinned string
	Engine
}

// Engine is what the row of a shard says of its log; see nonce.ShardLog. Times are of the
// store's clock, in Unix milliseconds.
type Engine struct {
	Performance bool   // a batch is answered when the log has it, and the rows follow
	Identity    string // of the server that has the log
	Shipped     int64  // the number of the last record that the rows have
	GrantUntil  int64  // when hand-outs by the log alone must have ended
	Epoch       int64  // how often a log of the shard was lost with what it had
	DoubtUntil  int64  // until when what the last one of them may have handed out is in doubt
	Rehearsed   int64  // the change of goal for which the shard has kept up with a rehearsal
}

// LostUntil is until when a log of the shard that was lost may still give its nonces, by the
// store's clock, in Unix milliseconds; 0: none was lost, or that is long over at now.
func (e *Engine) LostUntil(now int64) int64 {
	if e.DoubtUntil <= now {
		return 0
	}
	return e.GrantUntil
}

// Term is what its owner believes.
func (s *Shard) Term() ShardTerm {
	return ShardTerm{Shard: s.Shard, Token: s.Token, Performance: s.Performance}
}

// ShardTerm is a shard as its owner believes it to be. The store compares the token, so that a
// release or a commit of an old term cannot touch a newer one.
type ShardTerm struct {
	Shard       int
	Token       int64
	Performance bool // it has a log in front of its rows
}

// Renewal is what a heartbeat tells a node.
type Renewal struct {
	Now     time.Time // store clock
	Until   time.Time // the end of the lease
	Counter int64     // heartbeats of this incarnation so far
	Shards  []Shard   // those that the node owns, in this incarnation or one before
}

// Owners says which node has which shard.
type Owners struct {
	Now    time.Time // store clock
	Shards []Shard   // in order
	Nodes  []Node    // as Registry.Nodes has them
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
