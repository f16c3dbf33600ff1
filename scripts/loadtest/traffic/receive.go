package traffic

import (
	"fmt"
	"time"
)

// tally is a run of equal acknowledgements of one read, to be counted by one
// lock.
type tally struct {
	method Method
	due    time.Duration
	n      int
}

// receive looks at what one read brought, and sends what may leave now. An error
// is the end of the connection.
func (c *client) receive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.now()
	var t tally
	for {
		op, payload, ok := c.next()
		if !ok {
			break
		}
		if op != finText {
			if err := c.control(op, payload); err != nil {
				c.shard.acknowledge(t.method, t.due, now, t.n)
				return err
			}
			continue
		}
		if err := c.answeredLocked(payload, now, &t); err != nil {
			c.shard.acknowledge(t.method, t.due, now, t.n)
			return err
		}
	}
	c.shard.acknowledge(t.method, t.due, now, t.n)
	c.proceedLocked(now)
	return nil
}

// proceedLocked sends what may leave now that answers have come.
func (c *client) proceedLocked(now time.Duration) {
	switch {
	case c.ended:
	case c.stopping:
		if c.sent == 0 {
			c.closeLocked()
		}
	case c.load.Rate == 0:
		if c.sent == 0 {
			c.sendLocked(now)
		}
	default:
		for c.sent < c.load.window() && !c.backlog.empty() && !c.ended {
			due, _ := c.backlog.pop()
			c.sendLocked(due)
		}
	}
}

// answeredLocked settles one request.
func (c *client) answeredLocked(payload []byte, now time.Duration, t *tally) error {
	rep, err := parseReply(payload)
	if err != nil {
		return err
	}
	i := rep.id - firstID
	if i < 0 || i >= len(c.requests) || !c.requests[i].open {
		return fmt.Errorf("an answer to a request that was not asked")
	}
	r, b := &c.requests[i], &c.bursts[i/c.load.Inflight]
	if err := c.judgeLocked(r, &rep, b.due); err != nil {
		return err
	}
	r.open = false
	switch {
	case r.repeat: // not part of the load
	case rep.failed:
		c.shard.refuse(r.method, b.due, rep.refusal())
	default:
		if t.n > 0 && (t.due != b.due || t.method != r.method) {
			c.shard.acknowledge(t.method, t.due, now, t.n)
			t.n = 0
		}
		t.method, t.due, t.n = r.method, b.due, t.n+1
	}
	b.left--
	if b.left == 0 {
		c.free = append(c.free, i/c.load.Inflight)
		c.sent--
	}
	return nil
}

// judgeLocked tells those who want to know what an answer says. An error is an answer
// that cannot be read.
func (c *client) judgeLocked(r *request, rep *reply, due time.Duration) error {
	switch {
	case c.plain:
		return nil
	case r.repeat:
		return c.repeatedLocked(r, rep)
	case rep.failed:
		return nil
	}
	return c.acknowledgedLocked(r, rep, due)
}

// acknowledgedLocked keeps what a result says.
func (c *client) acknowledgedLocked(r *request, rep *reply, due time.Duration) error {
	switch r.method {
	case Allocate:
		a, err := rep.handedOut()
		if err != nil {
			return err
		}
		r.nonce, r.attempt = a.nonce, a.attempt
		// A hold lasts from its commit, which is later than when it was due.
		until := due + time.Duration(a.holdMs)*time.Millisecond
		if !c.load.Mix.allocatesOnly() {
			c.holds.push(hold{r.account, r.nonce, r.attempt, until, r.sample})
		}
		if v := c.load.Verify; v != nil {
			v.Allocated(r.account, r.nonce, r.attempt)
			if r.sample != nil {
				v.Answered(r.sample, r.nonce, r.attempt, c.clock.start.Add(until))
			}
		}
	case MarkUsed, MarkRecyclable:
		if r.sample != nil {
			r.sample.Ended()
		}
		if c.load.Verify != nil && r.method == MarkUsed {
			c.load.Verify.Used(r.account, r.nonce, r.attempt)
		}
	}
	if c.causes != nil && r.method != Status {
		c.causes.caused(event{r.account, r.nonce, r.attempt, r.method}, due)
	}
	return nil
}

// repeatedLocked judges the answer to a repeat, which is not part of the load.
func (c *client) repeatedLocked(r *request, rep *reply) error {
	if rep.failed {
		c.load.Verify.RepeatedRefusal(r.sample, rep.refused(), time.Now())
		return nil
	}
	a, err := rep.handedOut()
	if err != nil {
		return err
	}
	c.load.Verify.RepeatedResult(r.sample, r.ended, a.nonce, a.attempt)
	return nil
}
