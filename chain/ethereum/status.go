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
	Name            string
	Up              bool      // it answered last, and is of the chain
	OtherChain      string    // what it said its chain is, when that is another one
	OnBranch        bool      // its newest block is on the branch that counts as the chain
	Wrong           bool      // it contradicts the others in a count or the final block, and is left out
	Head            int64     // the number of its newest block
	Lag             int64     // how many blocks it is behind
	Subscribed      bool      // it tells of new blocks by itself
	BackingOffUntil time.Time // when it is asked again for everything; zero: now
	LastError       string    // may be long over; it has no credentials
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
