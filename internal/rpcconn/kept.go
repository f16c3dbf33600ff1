package rpcconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Kept is a connection over all its lives. The goroutine of Run alone dials; the others
// wait in Acquire.
type Kept struct {
	cfg     *Config
	targets targets        // Run's, and before that Dial's
	lives   sync.WaitGroup // connections that run

	mu       sync.Mutex // guards what follows
	cur      *Conn      // the latest, which may be dead; nil before the first
	why      error      // why there is no live one; of the last attempt
	final    error      // there will be no other
	sessions uint64
	news     chan struct{} // closed when any of these changes
}

// NewKept returns one that is not connected yet.
func NewKept(cfg *Config) *Kept {
	k := &Kept{cfg: cfg, why: errNotConnected, news: make(chan struct{})}
	for _, url := range cfg.URLs {
		k.targets.list = append(k.targets.list, target{url: url})
	}
	return k
}

// Dial makes the first connection, trying each URL once. Run must follow, unless it
// fails.
func (k *Kept) Dial(ctx context.Context) error {
	var errs []error
	for range k.cfg.URLs {
		c, err := k.attempt(ctx)
		if err == nil {
			k.publish(c)
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Run keeps it connected until ctx ends, for the reason given, or Config.Final forbids
// it; then it waits for all goroutines. A connection that is being left serves until its
// successor is there.
func (k *Kept) Run(ctx context.Context, closed error) {
	defer k.lives.Wait()
	live := func(c *Conn) { k.lives.Go(func() { c.Run(ctx, closed) }) }
	pace := Pace(k.cfg.BackoffMin, k.cfg.BackoffMax)
	cur := k.Latest()
	if cur != nil {
		live(cur)
	}
	for {
		if cur != nil {
			k.watch(cur)
			if time.Since(cur.born) >= k.cfg.BackoffMax {
				pace.Reset()
			}
		}
		next, err := k.replace(ctx, cur, pace)
		if next == nil {
			if ctx.Err() != nil {
				err = closed
			}
			k.set(func() { k.final = err })
			return
		}
		live(next)
		k.publish(next)
		k.cfg.Changed(next, nil)
		if cur != nil {
			cur.Retire()
		}
		cur = next
	}
}

// watch waits until c is to be replaced.
func (k *Kept) watch(c *Conn) {
	select {
	case <-c.dead:
		k.set(func() { k.why = c.Err() })
		k.cfg.Changed(c, c.Err())
	case <-c.leaving:
		k.cfg.Changed(c, ErrLeaving)
	}
}

// replace dials, target after target, until one answers. It returns nil when that must
// not be, or ctx has ended.
func (k *Kept) replace(ctx context.Context, cur *Conn, pace backoff.BackOff) (*Conn, error) {
	for first := cur == nil; ; first = false {
		if cur != nil && k.cfg.Final != nil && !cur.Alive() && k.cfg.Final(cur.Err()) {
			return nil, cur.Err()
		}
		if !first && !pause(ctx, pace.NextBackOff()) {
			return nil, nil
		}
		next, err := k.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return next, nil
		}
		k.set(func() { k.why = err })
		k.cfg.Changed(nil, err)
	}
}

// attempt dials the target whose turn it is, once that wants it.
func (k *Kept) attempt(ctx context.Context) (*Conn, error) {
	t, wait := k.targets.pick(time.Now())
	if !pause(ctx, wait) {
		return nil, k.cfg.NotDialled(t.url, Why(ctx))
	}
	c, err := k.cfg.dial(ctx, t.url)
	if err == nil {
		return c, nil
	}
	if status, ok := errors.AsType[*StatusError](err); ok {
		t.notBefore = time.Now().Add(status.RetryAfter)
	}
	return nil, k.cfg.NotDialled(t.url, err)
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// set changes the guarded fields and tells those that wait.
func (k *Kept) set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	close(k.news)
	k.news = make(chan struct{})
}

func (k *Kept) publish(c *Conn) {
	k.set(func() {
		k.sessions++
		c.Session, k.cur, k.why = k.sessions, c, nil
	})
}

// Latest returns the latest connection, which may be dead; nil before the first.
func (k *Kept) Latest() *Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cur
}

// Live returns the live connection, with another session than 0 only that one. The error
// is a *NotSentError.
func (k *Kept) Live(session uint64) (*Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	why := k.final
	switch {
	case why != nil:
	case k.cur == nil:
		why = k.why
	case !k.cur.Alive():
		why = cmp.Or(k.why, k.cur.Err())
	case session != 0 && k.cur.Session != session:
		why = errNewSession
	default:
		return k.cur, nil
	}
	return nil, &NotSentError{Err: why}
}

// Acquire returns the live connection, waiting for one. Its error has that of the last
// attempt in it.
func (k *Kept) Acquire(ctx context.Context) (*Conn, error) {
	for {
		k.mu.Lock()
		cur, why, final, news := k.cur, k.why, k.final, k.news
		k.mu.Unlock()
		switch {
		case final != nil:
			return nil, final
		case cur != nil && cur.Alive():
			return cur, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			if why == nil {
				return nil, Why(ctx)
			}
			return nil, fmt.Errorf("%w: %w", Why(ctx), why)
		}
	}
}

// targets are the addresses of a peer, taken in turn.
type targets struct {
	list []target
	next int
}

type target struct {
	url       string
	notBefore time.Time // it asked to stay away until then
}

// pick returns the target whose turn it is, skipping those to stay away from, and how
// long to wait for it when all are.
func (t *targets) pick(now time.Time) (best *target, wait time.Duration) {
	for i, at := 0, t.next; i < len(t.list); i, at = i+1, (at+1)%len(t.list) {
		away := max(0, t.list[at].notBefore.Sub(now))
		if best == nil || away < wait {
			best, wait, t.next = &t.list[at], away, (at+1)%len(t.list)
		}
	}
	return best, wait
}
