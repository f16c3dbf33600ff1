package redisevents

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// quiet is after how long without a word a server is asked whether it is there; it
// has as long again to answer.
const quiet = time.Second

// session is one connection to one server, by which some channels are subscribed
// to. When anything about it is not as expected it ends, and what it carried is
// subscribed to anew: go-redis would connect again by itself and say nothing.
type session struct {
	l  *Listener
	ps *redis.PubSub

	asked, left [channels]int // answers to come; guarded by l.mu

	once  sync.Once
	cause error         // why it ended; set before dying is closed
	dying chan struct{} // closed by end
	done  chan struct{} // closed when run has ended
}

// end makes the session end, because of err; nil: it is not needed any more.
func (s *session) end(err error) {
	s.once.Do(func() {
		s.cause = err
		close(s.dying)
		_ = s.ps.Close() // it ends what waits for it; there is nothing else to say of it
	})
}

func (s *session) ended() bool {
	select {
	case <-s.dying:
		return true
	default:
		return false
	}
}

// run reads until the session ends.
func (s *session) run() {
	defer close(s.done)
	asked := false
	for !s.ended() {
		v, err := s.ps.ReceiveTimeout(s.l.ctx, quiet)
		switch {
		case err == nil:
			asked = false
			err = s.take(v)
		case timedOut(err) && !asked:
			asked = true
			err = s.ask()
		}
		if err != nil {
			s.end(err)
		}
	}
	s.l.broke(s)
}

func (s *session) ask() error {
	ctx, cancel := context.WithTimeout(s.l.ctx, quiet)
	defer cancel()
	return s.ps.Ping(ctx)
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// take follows one thing that the server said.
func (s *session) take(v any) error {
	switch v := v.(type) {
	case *redis.Message:
		s.l.message(s, v.Channel, v.Payload)
	case *redis.Subscription:
		return s.l.subscription(s, v)
	}
	return nil
}

// subscription follows a confirmation. One counts only if it is the last that is to
// come for its channel.
func (l *Listener) subscription(s *session, v *redis.Subscription) error {
	c, ok := l.channel[v.Channel]
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h := &l.each[c]; {
	case v.Kind == "sunsubscribe" && s.left[c] == 0:
		return errUnasked
	case v.Kind == "sunsubscribe":
		s.left[c]--
	case v.Kind == "ssubscribe":
		s.asked[c]--
		if h.session != s || s.asked[c] > 0 || s.left[c] > 0 {
			break
		}
		now := time.Now()
		h.since = now
		for _, o := range h.origins {
			o.heard = now // they could not be heard meanwhile
		}
		if l.failing {
			l.failing = false
			l.log.Info("events of other nodes come again")
		}
		l.nudge()
	}
	return nil
}

// broke follows the end of a session: what it carried may be missed from now on, and
// that is told now and again when it is sure that no more is.
func (l *Listener) broke(s *session) {
	var was set
	l.mu.Lock()
	for c := range channels {
		h := &l.each[c]
		if h.session != s {
			continue
		}
		if !h.since.IsZero() {
			was |= 1 << c
		}
		h.session, h.since, h.incomplete = nil, time.Time{}, true
	}
	over := s.cause == nil || l.ctx.Err() != nil
	again := l.failing
	l.failing = l.failing || !over
	l.progressLocked()
	l.mu.Unlock()
	if over {
		return
	}
	l.servers.Reread(l.ctx)
	if !again {
		l.log.Warn("lost the connection to Redis that events of other nodes come by; subscribers will be told", "error", s.cause)
	}
	l.lost(was)
	l.nudge()
}
