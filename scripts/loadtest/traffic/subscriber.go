package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"noncegate/scripts/loadtest/verify"
	"noncegate/wire"
)

// subscriber is a connection that receives events. Its goroutine runs loop.
type subscriber struct {
	*socket
	shard  *shard
	clock  clock
	causes *causes

	mu    sync.Mutex // guards what follows, and is held to write
	ended bool
	lost  error
}

func subscribe(ctx context.Context, r *runner, url string, i int) (*subscriber, error) {
	s, err := dial(ctx, url, r.load.Access, 0)
	if err != nil {
		return nil, err
	}
	sub := &subscriber{socket: s, shard: r.meter.shard(i), clock: r.clock, causes: r.causes}
	stop := context.AfterFunc(ctx, func() { s.conn.SetDeadline(time.Now()) })
	defer stop()
	s.conn.SetDeadline(time.Now().Add(dialTimeout))
	if err := sub.subscribe(); err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("subscribe at %s: %w", url, err)
	}
	if stop() {
		s.conn.SetDeadline(time.Time{})
	}
	return sub, nil
}

// subscribe asks for all events. The answer comes before the first of them.
func (s *socket) subscribe() error {
	rep, err := s.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":[%q]}`, firstID, wire.MethodSubscribe, wire.TopicEvents))
	if err == nil && rep.failed {
		err = rep.refused()
	}
	return err
}

func (s *subscriber) loop() {
	defer s.conn.Close()
	err := s.receive() // what came with the answer
	if err == nil {
		err = s.follow(s.receive)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.lost = fmt.Errorf("subscriber: %s", reason(err))
	}
}

func (s *subscriber) receive() error {
	now := s.clock.now()
	for {
		op, payload, ok := s.next()
		if !ok {
			return nil
		}
		if op == finText {
			if err := s.notified(payload, now); err != nil {
				return err
			}
			continue
		}
		s.mu.Lock()
		err := s.control(op, payload)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (s *subscriber) notified(payload []byte, now time.Duration) error {
	n, err := parseNotice(payload)
	if err != nil {
		return err
	}
	if n.missed > 0 {
		s.shard.miss(now, n.missed)
	}
	if n.ours && s.causes.signers.has(n.account) {
		s.causes.arrived(n.event, s.shard, now)
	}
	return nil
}

// stop ends the connection in an orderly way.
func (s *subscriber) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.goodbye()
	s.conn.Close()
}

func (s *subscriber) lostFor() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// event is what a request causes and a subscriber is told.
type event struct {
	account, nonce, attempt int64
	method                  Method
}

type notice struct {
	event
	missed int64 // before it
	ours   bool  // of a signer and a type that a load causes
}

var errNoEvent = errors.New("a message that is no event")

// eventTypes are the types that requests of a load cause.
var eventTypes = [...]struct {
	name   string
	method Method
}{
	{wire.EventAllocated, Allocate}, {wire.EventUsed, MarkUsed}, {wire.EventReleased, MarkRecyclable},
}

// parseNotice reads a notification. What it looks for stands in the order in
// which the gateway writes it; another one is an error.
func parseNotice(payload []byte) (notice, error) {
	rest := payload
	kind, rest := quoted(rest, `"type":"`)
	signer, rest := quoted(rest, `"signer":"`)
	nonce, ok := field(rest, `"nonce":`)
	attempt, ok2 := field(rest, `"attempt":`)
	if kind == nil || signer == nil || !ok || !ok2 {
		return notice{}, errNoEvent
	}
	n := makeNotice(string(kind), string(signer), nonce, attempt)
	if at := bytes.LastIndex(rest, []byte(`,"missed":`)); at >= 0 {
		n.missed, _ = field(rest[at:], `,"missed":`)
	}
	return n, nil
}

// quoted is the string after a name, and what follows it; nil when there is none.
func quoted(text []byte, name string) (value, rest []byte) {
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return nil, text
	}
	value, rest, ok := bytes.Cut(text[at+len(name):], []byte{'"'})
	if !ok {
		return nil, text
	}
	return value, rest
}

func makeNotice(kind, signer string, nonce, attempt int64) notice {
	n := notice{event: event{nonce: nonce, attempt: attempt}}
	account, ok := accountOf(signer)
	if !ok {
		return n
	}
	n.account = account
	for _, t := range eventTypes {
		if t.name == kind {
			n.method, n.ours = t.method, true
		}
	}
	return n
}

// accountOf is the number of an account by its name; false: it is not one of a
// load.
func accountOf(signer string) (int64, bool) {
	number, ok := strings.CutPrefix(signer, signerPrefix)
	if !ok || len(number) != signerDigits {
		return 0, false
	}
	account, err := strconv.ParseInt(number, 16, 64)
	return account, err == nil && verify.Signer(account) == signer
}

// causes matches events with the requests that caused them. Either may come
// first: the answer to a request and its event leave the gateway independently.
// It remembers a bounded number of both; the oldest are forgotten, and an event
// whose request is not found then counts as unmatched. Its methods may be called
// by any goroutine.
type causes struct {
	subscribers int
	signers     Signers

	mu    sync.Mutex                    // guards what follows
	known *simplelru.LRU[event, *cause] // is only peeked at, so that it forgets the oldest
	early int                           // arrivals that wait for their request
}

// What is remembered: some seconds of a fast gateway.
const (
	maxCauses = 1 << 19
	maxEarly  = 1 << 19
)

// cause is an event that is awaited, or whose request is.
type cause struct {
	due   time.Duration // of the request
	known bool          // due is
	seen  int           // arrivals so far
	early []early       // arrivals before due was known
}

// early is an arrival that waits for its request.
type early struct {
	shard *shard
	at    time.Duration
}

func newCauses(subscribers int, signers Signers) *causes {
	c := &causes{subscribers: subscribers, signers: signers}
	// What is forgotten with arrivals has them counted: their request is not known.
	c.known, _ = simplelru.NewLRU(maxCauses, func(_ event, entry *cause) { // fails for a size below 1
		for _, a := range entry.early {
			a.shard.unmatch(a.at)
		}
		c.early -= len(entry.early)
	})
	return c
}

// caused says when the request that caused e was due.
func (c *causes) caused(e event, due time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entryLocked(e)
	entry.due, entry.known = due, true
	for _, a := range entry.early {
		a.shard.arrive(due, a.at)
	}
	c.early -= len(entry.early)
	entry.early = nil
	c.forgetSeenLocked(e, entry)
}

// arrived says that a subscriber received e.
func (c *causes) arrived(e event, s *shard, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entryLocked(e)
	entry.seen++
	if entry.known {
		s.arrive(entry.due, at)
	} else {
		entry.early = append(entry.early, early{s, at})
		c.early++
	}
	c.forgetSeenLocked(e, entry)
}

func (c *causes) entryLocked(e event) *cause {
	if entry, ok := c.known.Peek(e); ok {
		return entry
	}
	for c.early >= maxEarly {
		c.known.RemoveOldest()
	}
	entry := new(cause)
	c.known.Add(e, entry)
	return entry
}

// forgetSeenLocked forgets a cause that every subscriber has seen.
func (c *causes) forgetSeenLocked(e event, entry *cause) {
	if entry.known && entry.seen >= c.subscribers {
		c.known.Remove(e)
	}
}

// pending reports whether a request is known whose event has not come to all.
func (c *causes) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.known.Values(), func(entry *cause) bool { return entry.known })
}

// end counts the events whose request was never found.
func (c *causes) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known.Purge()
}
