package ethereum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"noncegate/chain"
	"noncegate/chain/ethereum/internal/jsonrpc"
)

// node is one node of the chain: what is known of it, and the way to ask it. Its
// methods may be called by many goroutines.
type node struct {
	c      *Client
	name   string
	socket bool // reached over a WebSocket
	link   jsonrpc.Node
	log    *slog.Logger
	slots  *slots         // of the requests under way, but for polls
	polls  chan pollOrder // to the poller: one at a time
	doubts atomic.Uint64  // errors and contradictions so far, after each of which it is asked for its chain again

	mu            sync.Mutex // guards what follows; no I/O beneath it
	verified      uint64     // the session in which the node said that it is of the chain; 0: none
	otherChain    string     // what it said instead of that; "": nothing
	answered      bool       // the last poll was answered
	onBranch      bool       // its head is on the branch that counts
	distrusted    bool       // its head is not believed
	head          chain.Block
	movedAt       time.Time // when head was another one before
	lag           int64
	pauses        [uses]pause
	maxBatch      int
	batchAt       time.Time          // when maxBatch became smaller
	batchSaid     bool               // the log has it
	lacks         map[string]bool    // own methods that it said it does not have, in this session
	byHash        support            // counts at a block hash (EIP-1898), in this session
	byNumber      support            // counts at the number of a block, and not its pool's for each, in this session
	noPending     int                // questions in a row in which it refused pending counts
	pendingSaid   bool               // the log has it
	faults        [abouts]fault      // in what it contradicts the others
	cleared       uint64             // doubts up to the last time that it said so
	verifiedDials uint64             // connections of no session up to the last question for its chain
	checks        singleflight.Group // questions for its chain that others wait for
	lastErr       string
	announcements
}

// support says whether a node can do something.
type support uint8

const (
	supportUnknown support = iota
	supported
	unsupported
)

const (
	// parallelBatches is how many requests one question may have under way at a node.
	parallelBatches = 4
	// growBatch is how long a node that refused a batch gets smaller ones.
	growBatch = 10 * time.Minute
)

func newNode(c *Client, i int) *node {
	n := &node{
		c: c, name: c.set.names[i], socket: c.set.endpoints[i].WebSocket(),
		log:      c.log.With("node", c.set.names[i]),
		slots:    newSlots(c.set.MaxInflight, c.set.MaxWaiting),
		polls:    make(chan pollOrder, 1),
		maxBatch: c.set.MaxBatch,
		lacks:    map[string]bool{},
		movedAt:  time.Now(),
		pauses:   newPauses(),
	}
	n.link = jsonrpc.Open(c.set.endpoints[i], jsonrpc.Config{
		Dial: c.set.Dial, MaxInflight: c.set.MaxInflight, MaxAnswer: c.set.MaxAnswerBytes,
		Timeout: c.set.Timeout, MaxPause: maxPause, Changed: n.changed,
	})
	return n
}

// changed is told of a WebSocket that was connected or lost.
func (n *node) changed(why error) {
	n.mu.Lock()
	n.forgetSessionLocked()
	n.mu.Unlock()
	if why != nil {
		if !errors.Is(why, jsonrpc.ErrClosed) {
			n.failed(why)
		}
		return
	}
	wake(n.c.back)
}

// forgetSessionLocked drops what was found out in a session.
func (n *node) forgetSessionLocked() {
	n.verified, n.byHash, n.byNumber = 0, supportUnknown, supportUnknown
	clear(n.lacks)
	n.announcements = announcements{patience: n.patience}
}

func (n *node) upLocked() bool {
	return n.verified != 0 && n.answered && n.verified == n.link.Session()
}

// eligible reports whether the node may be asked for counts and reads: it is up, on the
// branch that counts, and not far behind. It may want to be left alone with a use.
func (n *node) eligible() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.currentLocked() && !n.wrongLocked()
}

// current is eligible for a node that may contradict the others.
func (n *node) current() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.currentLocked()
}

func (n *node) currentLocked() bool {
	return n.upLocked() && n.onBranch && n.lag <= int64(n.c.set.Lag)
}

// beside reports whether the node is not on the branch that counts, as far as is known, or
// contradicts the others.
func (n *node) beside() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.onBranch || n.wrongLocked()
}

// failed notes what went wrong, and that the node is not up. It logs when that changes,
// and when the node has never answered, once.
func (n *node) failed(err error) {
	n.mu.Lock()
	was := n.answered || n.lastErr == "" && !errors.Is(err, errOtherChain) // which verify has logged
	n.answered, n.verified, n.onBranch = false, 0, false
	n.noteLocked(err)
	n.mu.Unlock()
	if was {
		n.log.Warn("node of the chain does not answer", "error", err)
	}
}

// note keeps the error for Status.
func (n *node) note(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.noteLocked(err)
}

func (n *node) noteLocked(err error) {
	n.lastErr = err.Error()
	n.doubts.Add(1) // behind the same connection there may be another chain now
}

// ready returns the session in which the node may be asked for a use. If it is not known to
// be of the chain, it is asked that first. again asks also a node that was of another chain.
func (n *node) ready(ctx context.Context, u use, again bool) (session uint64, err error) {
	if n.paused(u) {
		return 0, errBackingOff
	}
	return n.session(ctx, again)
}

// session is ready for a node that may want to be left alone.
func (n *node) session(ctx context.Context, again bool) (session uint64, err error) {
	session = n.link.Session()
	n.mu.Lock()
	verified, other, sure := n.verified, n.otherChain, n.cleared == n.doubts.Load()
	n.mu.Unlock()
	switch {
	case session == 0:
		return 0, errNotConnected
	case other != "" && !again:
		return 0, errOtherChain
	case session == verified && (sure || again): // a poll asks for it itself
		return session, nil
	case session == verified:
		return session, n.check(ctx, session)
	}
	return session, n.verify(ctx, session)
}

// failure is why a call has no result.
func failure(c *jsonrpc.Call) error {
	switch {
	case c.Fail != nil:
		return c.Fail
	case c.Err != nil:
		return fmt.Errorf("%s: %w", c.Method, c.Err)
	}
	return nil
}

// lacksMethod reports whether the node said that it does not have an own method.
func (n *node) lacksMethod(method string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lacks[method]
}

// learn notes what a refusal says about the node: that it does not have the method.
func (n *node) learn(c *jsonrpc.Call) (lacking bool) {
	if c.Err == nil || (c.Err.Code != -32601 && !n.c.table.noWay.MatchString(c.Err.Message)) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lacks[c.Method] = true
	return true
}
