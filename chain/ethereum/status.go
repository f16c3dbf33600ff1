package ethereum

import (
	"time"

	"noncegate/chain"
)

// Status is what is known of a chain and its nodes at one moment, for people to read.
type Status struct {
	Head, Final chain.Block  // zero Hash: none yet
	HeadAt      time.Time    // when Head was seen; before the first, when Run or New was called
	Nodes       []NodeStatus // in the order of Config.Nodes
}

// NodeStatus is what is known of one node.
type NodeStatus struct {
	Name string
	// Up says that the node answered when it was asked last, and is of the chain.
	Up bool
	// OtherChain is what the node said its chain is, when that is another one. It is not
	// asked for anything else until it says the right one.
	OtherChain string
	// OnBranch says that its newest block is on the branch that counts as the chain.
	OnBranch bool
	// Wrong says that it contradicts the others in a count or the final block, and is left out.
	Wrong bool
	Head  int64 // the number of its newest block
	Lag   int64 // how many blocks it is behind
	// Subscribed says that it tells of new blocks by itself.
	Subscribed bool
	// BackingOffUntil is when it is asked again for everything after it wanted fewer requests
	// of some use; zero: now.
	BackingOffUntil time.Time
	// LastError is the last thing that went wrong; it may be long over. It has no
	// credentials.
	LastError string
}

// Status returns what is known now. It asks no node.
func (c *Client) Status() Status {
	c.mu.Lock()
	s := Status{Head: c.head, Final: c.final, HeadAt: c.headAt}
	c.mu.Unlock()
	for _, n := range c.nodes {
		s.Nodes = append(s.Nodes, n.status())
	}
	return s
}

func (n *node) status() NodeStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := NodeStatus{
		Name: n.name, Up: n.upLocked(), OtherChain: n.otherChain, OnBranch: n.onBranch, Head: n.head.Number, Lag: n.lag,
		Subscribed: n.subscribed, Wrong: n.wrongLocked(), LastError: n.lastErr,
	}
	for u := range uses {
		if until := n.pausedUntilLocked(u); until.After(s.BackingOffUntil) {
			s.BackingOffUntil = until
		}
	}
	if !s.Up {
		s.Lag = 0
	}
	return s
}
