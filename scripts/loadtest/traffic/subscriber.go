package traffic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	goclient "noncegate/client"
	"noncegate/wire"
)

// eventBuffer is how many events wait for a subscriber's goroutine before some are dropped.
const eventBuffer = 1 << 14

// subscribe opens a client that receives all events, in a goroutine that ends with it.
func (r *runner) subscribe(ctx context.Context, i int) (*goclient.Client, error) {
	url := r.load.URLs[i%len(r.load.URLs)]
	c, err := goclient.Dial(ctx, url, r.load.Access.client(goclient.Config{EventBuffer: eventBuffer, Logger: r.noticed.logger()}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	sub, err := c.Subscribe(ctx)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("subscribe at %s: %w", url, err)
	}
	r.receiving.Go(func() {
		for e := range sub.Events() {
			r.receive(e)
		}
	})
	return c, nil
}

// eventTypes are the types that requests of a load cause.
var eventTypes = map[string]Method{wire.EventAllocated: Allocate, wire.EventUsed: MarkUsed, wire.EventReleased: MarkRecyclable}

func (r *runner) receive(e goclient.Event) {
	now := r.meter.now()
	if e.Missed > 0 {
		r.meter.miss(now, e.Missed)
	}
	account, ours := r.load.Signers.accountOf(e.Signer)
	if method, caused := eventTypes[e.Type]; ours && caused {
		r.causes.arrived(event{nonceOf{account, e.Nonce, e.Attempt}, method}, now)
	}
}

// event is what a request causes and a subscriber is told.
type event struct {
	nonceOf
	method Method
}

// causes brings events together with the requests that caused them, whichever is told of first. What it remembers is bounded: an arrival
// that is forgotten is one whose request is not known.
type causes struct {
	meter       *meter
	subscribers int

	mu    sync.Mutex // guards what follows
	known *simplelru.LRU[event, *cause]
	early int // arrivals that wait for their request
}

const (
	maxCauses = 1 << 19
	maxEarly  = 1 << 19
)

// cause is an event that is awaited, or whose request is.
type cause struct {
	due   time.Duration // of the request
	known bool          // due is
	seen  int           // arrivals so far
	early []time.Duration
}

func newCauses(m *meter, subscribers int) *causes {
	c := &causes{meter: m, subscribers: subscribers}
	c.known, _ = simplelru.NewLRU(maxCauses, func(_ event, entry *cause) { // fails for a size below 1
		for _, at := range entry.early {
			m.unmatch(at)
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
	for _, at := range entry.early {
		c.meter.arrive(due, at)
	}
	c.early -= len(entry.early)
	entry.early = nil
	c.forgetLocked(e, entry)
}

func (c *causes) arrived(e event, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry := c.entryLocked(e)
	entry.seen++
	if entry.known {
		c.meter.arrive(entry.due, at)
	} else {
		entry.early = append(entry.early, at)
		c.early++
	}
	c.forgetLocked(e, entry)
}

func (c *causes) entryLocked(e event) *cause {
	entry, ok := c.known.Peek(e)
	if !ok {
		for c.early >= maxEarly {
			c.known.RemoveOldest()
		}
		entry = new(cause)
		c.known.Add(e, entry)
	}
	return entry
}

// forgetLocked forgets a cause that every subscriber has seen.
func (c *causes) forgetLocked(e event, entry *cause) {
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
