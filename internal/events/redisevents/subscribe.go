package redisevents

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// settle is how often is looked whether a new subscription has stood for long
	// enough; watch, how often for nodes that fell silent when there is none.
	settle = 50 * time.Millisecond
	watch  = time.Second
)

// run follows what is wanted. It alone subscribes, and begins and ends sessions.
func (l *Listener) run() {
	defer close(l.done)
	for l.ctx.Err() == nil {
		l.follow()
		wait := watch
		if l.look(time.Now()) {
			wait = settle
		}
		select {
		case <-l.wake:
		case <-time.After(wait):
		case <-l.ctx.Done():
		}
	}
	for _, s := range l.sessions {
		s.end(nil)
		<-s.done
	}
}

// follow subscribes to what is wanted and not subscribed to, and the reverse.
func (l *Listener) follow() {
	for m, s := range l.sessions {
		if s.ended() {
			<-s.done
			delete(l.sessions, m)
			if s.cause != nil {
				l.postpone()
			}
		}
	}
	l.mu.Lock()
	l.failing = l.failing && l.want != 0
	if !l.failing {
		l.pause.Reset()
	}
	var begin, end []int
	for c := range channels {
		switch h := &l.each[c]; {
		case l.want.has(c) && h.session == nil:
			begin = append(begin, c)
		case !l.want.has(c) && h.session != nil:
			end = append(end, c)
		}
	}
	l.mu.Unlock()
	for _, c := range end {
		l.unsubscribe(c)
	}
	if time.Now().Before(l.after) {
		return
	}
	for _, c := range begin {
		if err := l.subscribe(c); err != nil {
			l.failed(err)
			return
		}
	}
	l.endUnused()
}

// endUnused ends the sessions that carry nothing.
func (l *Listener) endUnused() {
	used := make(map[*session]bool)
	l.mu.Lock()
	for c := range channels {
		used[l.each[c].session] = true
	}
	l.mu.Unlock()
	for _, s := range l.sessions {
		if !used[s] {
			s.end(nil)
		}
	}
}

// postpone makes the next try come later than the one before.
func (l *Listener) postpone() { l.after = time.Now().Add(l.pause.NextBackOff()) }

// failed follows a subscription that could not be begun.
func (l *Listener) failed(err error) {
	l.postpone()
	l.servers.Reread(l.ctx)
	l.mu.Lock()
	again := l.failing
	l.failing = true
	l.progressLocked() // who waits need not wait for this
	l.mu.Unlock()
	if !again && l.ctx.Err() == nil {
		l.log.Warn("events of other nodes do not come: Redis is away", "error", err)
	}
}

// subscribe begins to subscribe to a channel, over the connection to its server.
func (l *Listener) subscribe(c int) error {
	ctx, cancel := context.WithTimeout(l.ctx, flushTimeout)
	defer cancel()
	m, err := l.servers.Master(ctx, l.names[c])
	if err != nil {
		return err
	}
	s := l.sessions[m]
	if s == nil || s.ended() {
		if s != nil {
			<-s.done
			delete(l.sessions, m)
		}
		if s, err = l.begin(ctx, m); err != nil {
			return err
		}
		l.sessions[m] = s
	}
	l.mu.Lock()
	l.each[c] = heard{session: s, incomplete: l.each[c].incomplete, origins: l.each[c].origins}
	s.asked[c]++
	l.mu.Unlock()
	if err = s.ps.SSubscribe(ctx, l.names[c]); err == nil {
		return nil
	}
	s.end(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := &l.each[c]; h.session == s { // it had ended before it was given this channel
		h.session, h.incomplete = nil, true
	}
	return err
}

// begin opens a connection to a server. A look whether it answers comes first: the
// connection of a subscription is opened, as go-redis has it, on the first use.
func (l *Listener) begin(ctx context.Context, m *redis.Client) (*session, error) {
	if err := m.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	s := &session{l: l, ps: m.SSubscribe(ctx), dying: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s, nil
}

func (l *Listener) unsubscribe(c int) {
	l.mu.Lock()
	s := l.each[c].session
	l.each[c] = heard{}
	if s != nil {
		s.left[c]++
	}
	l.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, flushTimeout)
	defer cancel()
	if err := s.ps.SUnsubscribe(ctx, l.names[c]); err != nil {
		s.end(err)
	}
}

// look tells of what was missed where it is sure now that no more will be, and of
// nodes that fell silent. pending: it is to be looked again soon.
func (l *Listener) look(now time.Time) (pending bool) {
	var missed, silent set
	l.mu.Lock()
	up := false
	for c := range channels {
		h := &l.each[c]
		up = up || !h.since.IsZero()
		switch {
		case !l.want.has(c):
		case !h.settled(now):
			pending = true
		case h.incomplete:
			h.incomplete = false
			missed |= 1 << c
			fallthrough
		default:
			if h.drop(now) {
				silent |= 1 << c
			}
		}
	}
	if !up {
		l.upSince = time.Time{}
	} else if l.upSince.IsZero() {
		l.upSince = now
	}
	for node, at := range l.nodes {
		if now.Sub(at) > 2*silence {
			delete(l.nodes, node)
		}
	}
	l.progressLocked()
	l.mu.Unlock()
	if silent != 0 {
		l.log.Warn("a node that published events has fallen silent; its last ones may not have come")
	}
	l.lost(missed | silent)
	return pending
}
