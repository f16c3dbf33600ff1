package ethereum

import (
	"context"
	"encoding/json"
	"time"

	"noncegate/chain"
	"noncegate/wire"
)

// announcements are a subscription to new heads, guarded by node.mu. They only say when to poll:
// subscriptions die without a word, and leave out blocks of a reorganization.
type announcements struct {
	subscribed  bool          // it is open
	refused     bool          // the node has none, in this session
	announcedAt time.Time     // when it was opened or told of a block
	announced   chain.Block   // its newest block, as it told by itself
	patience    time.Duration // how long it may be silent while there are blocks; 0: as usual
}

const (
	// silentBlocks is how many blocks' time a subscription may be silent.
	silentBlocks = 3
	// minPatience bounds that from below, maxPatience from above when it grew.
	minPatience = 5 * time.Second
	maxPatience = 30 * time.Minute
)

// subscribeHeads opens the subscription if the node can have one and has none.
func (n *node) subscribeHeads(ctx context.Context, session uint64) {
	n.mu.Lock()
	wanted := !n.subscribed && !n.refused && n.socket
	n.mu.Unlock()
	if !wanted {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, n.c.set.Timeout, errTimeout)
	defer cancel()
	_, refusal, err := n.link.Subscribe(ctx, session, json.RawMessage(`["newHeads"]`), n.onNewHead, func(error) {})
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil: // the connection, which is noticed elsewhere; the next poll tries again
	case refusal != nil:
		n.refused = true
		n.log.Info("node has no subscription to new heads and is polled only", "error", refusal)
	case n.link.Session() == session:
		n.subscribed, n.announcedAt = true, time.Now()
	}
}

// onNewHead is told of a new head, by the goroutine that reads the connection.
func (n *node) onNewHead(raw json.RawMessage) {
	var h header
	if wire.Unmarshal(raw, &h) != nil {
		return
	}
	hash, err := parseHash(h.Hash)
	number, numberErr := parseQuantity(h.Number)
	if err != nil || numberErr != nil {
		return
	}
	n.mu.Lock()
	n.announcedAt, n.announced, n.patience = time.Now(), chain.Block{Number: number, Hash: hash}, 0
	n.mu.Unlock()
	wake(n.c.newHead)
}

// news reports whether the node told of a block that is not kept, the newest so far, nor
// below it. What is below it, the next poll tells.
func (n *node) news(kept chain.Block) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.subscribed && (n.announced.Number > kept.Number || n.announced.Number == kept.Number && n.announced.Hash != kept.Hash)
}

// wakeIfSilent connects anew if the polls see blocks that the subscription does not tell
// of. Each time in a row that this does not help, it waits twice as long.
func (n *node) wakeIfSilent(blockTime time.Duration) {
	usual := max(silentBlocks*blockTime, minPatience)
	n.mu.Lock()
	patience := max(usual, n.patience)
	silent := n.subscribed && n.head.Number > n.announced.Number && n.movedAt.After(n.announcedAt) && time.Since(n.announcedAt) > patience
	if silent {
		n.patience = min(2*patience, maxPatience)
	}
	session := n.verified
	n.mu.Unlock()
	if silent {
		n.log.Warn("subscription to new heads is silent; connecting anew", "for", patience)
		n.link.Reconnect(session, errSilent)
	}
}
