package traffic

import (
	"sync"
	"time"
)

// causes matches events with the requests that caused them. Either may come
// first: the answer to a request and its event leave the gateway independently.
// It remembers a bounded number of both; the oldest are forgotten, and an event
// whose request is not found then counts as unmatched. Its methods may be called
// by any goroutine.
type causes struct {
	subscribers int
	signers     Signers
	parts       [16]causePart
}

type causePart struct {
	mu     sync.Mutex // guards what follows
	known  map[event]*cause
	order  []event // a ring of what became known, some of it forgotten since
	oldest int     // its slot in order
	count  int
	early  int // arrivals that wait for their request
}

// What a part remembers: all of them together some seconds of a fast gateway.
const (
	maxCauses = 1 << 15
	maxEarly  = 1 << 15
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
	for i := range c.parts {
		c.parts[i].known = make(map[event]*cause)
	}
	return c
}

func (c *causes) part(e event) *causePart {
	return &c.parts[uint64(e.account*31+e.nonce)%uint64(len(c.parts))]
}

// caused says when the request that caused e was due.
func (c *causes) caused(e event, due time.Duration) {
	p := c.part(e)
	p.mu.Lock()
	entry := p.entryLocked(e)
	entry.due, entry.known = due, true
	arrived := entry.early
	entry.early = nil
	p.early -= len(arrived)
	p.forgetSeenLocked(e, entry, c.subscribers)
	p.mu.Unlock()
	for _, a := range arrived {
		a.shard.arrive(due, a.at)
	}
}

// arrived says that a subscriber received e.
func (c *causes) arrived(e event, s *shard, at time.Duration) {
	p := c.part(e)
	p.mu.Lock()
	entry := p.entryLocked(e)
	entry.seen++
	due, known := entry.due, entry.known
	if !known {
		entry.early = append(entry.early, early{s, at})
		p.early++
	}
	p.forgetSeenLocked(e, entry, c.subscribers)
	p.mu.Unlock()
	if known {
		s.arrive(due, at)
	}
}

// entryLocked finds or makes the cause of e.
func (p *causePart) entryLocked(e event) *cause {
	if entry := p.known[e]; entry != nil {
		return entry
	}
	for p.count == maxCauses || p.early >= maxEarly && p.count > 0 {
		p.forgetOldestLocked()
	}
	if at := p.oldest + p.count; at < maxCauses && at == len(p.order) {
		p.order = append(p.order, e)
	} else {
		p.order[at%maxCauses] = e
	}
	p.count++
	entry := new(cause)
	p.known[e] = entry
	return entry
}

// forgetOldestLocked makes room. There is one at least.
func (p *causePart) forgetOldestLocked() {
	e := p.order[p.oldest]
	p.oldest = (p.oldest + 1) % maxCauses
	p.count--
	if entry := p.known[e]; entry != nil {
		p.unmatchedLocked(entry)
		delete(p.known, e)
	}
}

// unmatchedLocked counts the arrivals whose request is not known.
func (p *causePart) unmatchedLocked(c *cause) {
	for _, a := range c.early {
		a.shard.unmatch(a.at)
	}
	p.early -= len(c.early)
	c.early = nil
}

// forgetSeenLocked forgets a cause that every subscriber has seen. Its slot in the
// order stays until it is the oldest.
func (p *causePart) forgetSeenLocked(e event, entry *cause, subscribers int) {
	if entry.known && entry.seen >= subscribers {
		delete(p.known, e)
	}
}

// pending reports whether a request is known whose event has not come to all.
func (c *causes) pending() bool {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, entry := range p.known {
			if entry.known {
				p.mu.Unlock()
				return true
			}
		}
		p.mu.Unlock()
	}
	return false
}

// end counts the events whose request was never found.
func (c *causes) end() {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, entry := range p.known {
			p.unmatchedLocked(entry)
		}
		clear(p.known)
		p.mu.Unlock()
	}
}
