package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

var errDialTimeout = fmt.Errorf("Config.DialTimeout is over: %w", context.DeadlineExceeded)

// link is the main connection, over all its lives. Its goroutine, keep, alone
// dials; the others wait in acquire.
type link struct {
	c       *Client
	targets targets // keep's, and before that Dial's

	mu      sync.Mutex // guards what follows
	cur     *conn      // may be dead
	final   error      // there will be no other connection
	dialErr error      // of the last attempt, nil after a success
	changed chan struct{}
}

func newLink(c *Client) *link {
	l := &link{c: c, changed: make(chan struct{})}
	for _, url := range c.cfg.URLs {
		l.targets.list = append(l.targets.list, target{url: url})
	}
	return l
}

// current returns the latest connection, which may be dead.
func (l *link) current() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cur
}

// acquire returns the live connection, waiting for one.
func (l *link) acquire(ctx context.Context) (*conn, error) {
	for {
		l.mu.Lock()
		cur, final, dialErr, changed := l.cur, l.final, l.dialErr, l.changed
		l.mu.Unlock()
		switch {
		case final != nil:
			return nil, final
		case cur.alive():
			return cur, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if dialErr == nil {
				return nil, ctxError(ctx)
			}
			return nil, fmt.Errorf("%w: %w", ctxError(ctx), dialErr)
		}
	}
}

// set changes the guarded fields and tells those who wait.
func (l *link) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) publish(conn *conn) { l.set(func() { l.cur, l.dialErr = conn, nil }) }

// keep replaces the connection whenever it is lost or told to leave, until the
// client is closed or a close code forbids it. A connection that leaves serves
// until its successor is there.
func (l *link) keep(cur *conn) {
	pace := l.c.cfg.pace(l.c.cfg.BackoffMax)
	for {
		select {
		case <-cur.dead:
			if err := cur.cause(); !errors.Is(err, ErrClosed) { // which nobody lost
				l.c.cfg.Logger.Info("connection lost", "url", cur.url, "error", err)
			}
		case <-cur.leaving:
			l.c.cfg.Logger.Info("gateway is draining", "url", cur.url)
		}
		if time.Since(cur.born) >= l.c.cfg.BackoffMax {
			pace.Reset()
		}
		next, err := l.replace(cur, pace)
		if err != nil {
			l.set(func() { l.final = err })
			return
		}
		l.c.cfg.Logger.Info("connected", "url", next.url)
		l.publish(next)
		cur.retire()
		cur = next
	}
}

// replace dials, target after target, until one answers. The error is final.
func (l *link) replace(cur *conn, pace backoff.BackOff) (*conn, error) {
	for {
		if err := finalCause(cur); err != nil {
			return nil, err
		}
		if err := l.c.pause(l.c.ctx, pace.NextBackOff()); err != nil {
			return nil, err
		}
		next, err := l.dialNext(l.c.ctx)
		if err == nil {
			return next, nil
		}
		l.c.cfg.Logger.Info("not connected", "error", err)
		l.set(func() { l.dialErr = err })
	}
}

// dialNext makes one attempt with the target whose turn it is.
func (l *link) dialNext(ctx context.Context) (*conn, error) {
	t, wait := l.targets.pick(time.Now())
	if err := l.c.pause(ctx, wait); err != nil {
		return nil, &DialError{URL: t.url, Err: err}
	}
	conn, err := l.c.dial(ctx, t.url)
	if de, ok := errors.AsType[*DialError](err); ok && de.RetryAfter > 0 {
		t.notBefore = time.Now().Add(de.RetryAfter)
	}
	return conn, err
}

// finalCause is why a dead connection must not be replaced, nil when it may.
func finalCause(c *conn) error {
	err := c.cause()
	if ce, ok := errors.AsType[*CloseError](err); ok && ce.Final() {
		return err
	}
	if errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}
