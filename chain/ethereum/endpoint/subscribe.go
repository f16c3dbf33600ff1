package endpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"noncegate/chain/ethereum"
	"noncegate/internal/access"
	"noncegate/internal/relay"
	"noncegate/nonce"
	"noncegate/wire"
)

// streams are the subscriptions that are passed on.
var streams = []string{"newHeads", "logs", "newPendingTransactions"}

// subscribe answers eth_subscribe.
func (e *Endpoint) subscribe(ctx context.Context, c *relay.Call) relay.Answer {
	list, bad := elements(c.Params, 1, 2)
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	if kind, ok := text(list[0]); !ok || !slices.Contains(streams, kind) {
		return relay.Answer{Err: invalid("params[0]", `must be "newHeads", "logs" or "newPendingTransactions"`)}
	}
	if bad := e.mayRead(c); bad != nil {
		return relay.Answer{Err: bad}
	}
	m := &member{feeds: &e.feeds, principal: c.Principal(), may: c.MayLater()}
	stream, bad := c.Open(notification, m.leave)
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	m.stream = stream
	f, bad := e.feeds.join(ctx, m, c.Params)
	switch {
	case bad != nil:
		return relay.Answer{Err: bad}
	case f.err != nil, f.refusal != nil:
		return unanswered(f.refusal, f.err)
	}
	return result(stream.ID())
}

// unsubscribe answers eth_unsubscribe.
func (e *Endpoint) unsubscribe(c *relay.Call) relay.Answer {
	list, bad := elements(c.Params, 1, 1)
	if bad != nil {
		return relay.Answer{Err: bad}
	}
	id, _ := text(list[0])
	if !c.Close(id) {
		return relay.Answer{Err: wire.Errorf(wire.CodeNotFound, "this connection has no such subscription")}
	}
	return relay.Answer{Result: []byte("true")}
}

// feeds are the subscriptions at nodes. Clients that want the same share one.
type feeds struct {
	e *Endpoint

	mu     sync.Mutex // guards what follows, and the feeds; no I/O under it
	byKey  map[feedKey]*feed
	bytes  int                          // of the params of all feeds that have members
	usages map[nonce.Principal]feedsUse // of principals that hold any
}

// feedKey is the hash of what a feed was asked for with: the nodes' client keeps the params themselves.
type feedKey [sha256.Size]byte

// feedsUse is what one principal holds, however many of its connections share it.
type feedsUse struct{ feeds, bytes int }

// feed is one subscription at a node, as long as it has members.
type feed struct {
	key     feedKey
	bytes   int                     // of its params
	members []*member               // replaced when it changes
	holders map[nonce.Principal]int // whose members there are, and how many
	opened  chan struct{}           // closed when it is known whether the node takes it
	refusal *ethereum.RPCError
	err     error
	end     func() // ends it at the node; nil: it is not open
	over    bool   // it takes no members any more
}

// member is one client's subscription to a feed.
type member struct {
	feeds     *feeds
	principal nonce.Principal
	may       func(right access.Right, signer string) bool
	stream    *relay.Stream
	feed      *feed // guarded by feeds.mu; nil: none
	left      bool  // guarded by feeds.mu
}

func (fs *feeds) len() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.byKey)
}

// join makes m a member of the feed with such params, opens it if there is none, and returns
// it when it is known whether the node takes it.
func (fs *feeds) join(ctx context.Context, m *member, params []byte) (*feed, *wire.Error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, params); err != nil {
		return nil, invalid("params", "must be JSON") // it was read as JSON before
	}
	f, first, bad := fs.enter(m, sha256.Sum256(compact.Bytes()), compact.Len())
	if bad != nil {
		return nil, bad
	}
	if first {
		fs.open(ctx, f, bytes.Clone(compact.Bytes())) // without the room of what was left out
	}
	select {
	case <-f.opened:
		return f, nil
	case <-ctx.Done():
		return nil, errOfNodes(context.Cause(ctx)) // the stream ends with the connection, and the member with it
	}
}

// enter makes m a member, if its principal may have one more. first: it is the one to open
// the feed.
func (fs *feeds) enter(m *member, key feedKey, bytes int) (f *feed, first bool, bad *wire.Error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f = fs.byKey[key]
	if f == nil {
		f, first = &feed{key: key, bytes: bytes, holders: make(map[nonce.Principal]int), opened: make(chan struct{})}, true
	}
	if !m.left {
		if bad := fs.holdLocked(f, m.principal); bad != nil {
			return nil, false, bad
		}
		m.feed = f
		f.members = append(slices.Clone(f.members), m)
	}
	if first {
		fs.byKey[key] = f
	}
	return f, first, nil
}

// holdLocked counts a feed for a principal, once for all of its members. Without
// authentication there is but one, which has no share.
func (fs *feeds) holdLocked(f *feed, p nonce.Principal) *wire.Error {
	if f.holders[p] == 0 {
		use, share := fs.usages[p], 1
		if p != 0 {
			share = shareOfPrincipal
		}
		use.feeds++
		use.bytes += f.bytes
		total := fs.bytes
		if len(f.holders) == 0 {
			total += f.bytes
		}
		switch cfg := &fs.e.cfg; {
		case use.feeds > cfg.MaxFeeds/share:
			return errFeeds("this principal has %d subscriptions at the nodes of the chain, as many as it may have", cfg.MaxFeeds/share)
		case use.bytes > cfg.MaxFilterBytes/share:
			return errFeeds("the filters of this principal's subscriptions would be longer than the %d bytes that they may have together",
				cfg.MaxFilterBytes/share)
		case total > cfg.MaxFilterBytes:
			return errFeeds("the filters of all clients' subscriptions would be longer than the %d bytes that they may have together",
				cfg.MaxFilterBytes)
		}
		fs.usages[p], fs.bytes = use, total
	}
	f.holders[p]++
	return nil
}

// releaseLocked undoes one holdLocked.
func (fs *feeds) releaseLocked(f *feed, p nonce.Principal) {
	f.holders[p]--
	if f.holders[p] > 0 {
		return
	}
	delete(f.holders, p)
	use := fs.usages[p]
	use.feeds--
	use.bytes -= f.bytes
	if fs.usages[p] = use; use.feeds == 0 {
		delete(fs.usages, p)
	}
	if len(f.holders) == 0 {
		fs.bytes -= f.bytes
	}
}

// open opens a feed at a node. It is done for all clients that want it meanwhile, so it does not
// end with the one that came first. They do not wait for ever if a mistake of ours ends it.
func (fs *feeds) open(ctx context.Context, f *feed, params json.RawMessage) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	var end func()
	var refusal *ethereum.RPCError
	err := errNotOpened
	defer func() {
		fs.mu.Lock()
		f.end, f.refusal, f.err = end, refusal, err
		if end == nil || len(f.members) == 0 {
			fs.forgetLocked(f)
		}
		unwanted := end != nil && len(f.members) == 0
		fs.mu.Unlock()
		close(f.opened)
		if unwanted {
			end()
		}
	}()
	err = fs.e.patiently(ctx, func() (err error) {
		end, refusal, err = fs.e.nodes.Subscribe(ctx, params,
			func(event json.RawMessage) { fs.deliver(f, event) }, func(reason error) { fs.lost(f, reason) })
		return err
	})
}

var errNotOpened = errors.New("the gateway met an error of its own")

// forgetLocked lets no client join the feed any more.
func (fs *feeds) forgetLocked(f *feed) {
	f.over = true
	if fs.byKey[f.key] == f {
		delete(fs.byKey, f.key)
	}
}

// deliver hands an event of a node to all members that may still read.
func (fs *feeds) deliver(f *feed, event []byte) {
	fs.mu.Lock()
	members := f.members
	fs.mu.Unlock()
	for _, m := range members {
		if m.may(access.RightChain, access.ChainOf(fs.e.nodes.ID())) {
			m.stream.Notify(event)
		}
	}
}

// lost ends a feed whose events are lost. Its members are told by the end of their connections.
func (fs *feeds) lost(f *feed, reason error) {
	fs.mu.Lock()
	members := f.members
	f.members = nil
	fs.forgetLocked(f)
	fs.mu.Unlock()
	for _, m := range members {
		m.stream.Lost("events of a subscription are lost: " + clipTo(reason.Error(), maxCloseText))
	}
}

// maxCloseText bounds the reason in a close frame, which may have 123 bytes.
const maxCloseText = 80

// leave ends a member's subscription, and that at the node with the last one.
func (m *member) leave() {
	fs := m.feeds
	fs.mu.Lock()
	m.left = true
	f := m.feed
	var end func()
	if f != nil {
		m.feed = nil
		fs.releaseLocked(f, m.principal)
		f.members = slices.DeleteFunc(slices.Clone(f.members), func(other *member) bool { return other == m })
		if len(f.members) == 0 && f.end != nil && !f.over {
			fs.forgetLocked(f)
			end = f.end
		}
	}
	fs.mu.Unlock()
	if end != nil {
		end()
	}
}
