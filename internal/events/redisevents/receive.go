package redisevents

import "time"

// maxOrigins bounds how many publishers of one channel are told apart. Each start of
// a node is one, until it has been silent for a while; there are no such numbers of
// nodes, so what comes beyond is nobody of ours.
const maxOrigins = 1024

// maxGap bounds what one gap may count as: numbers are only as good as who wrote
// them.
const maxGap = 1 << 32

// sequence is how far the events of one publisher have come in one channel.
type sequence struct {
	next  uint64 // the number that should come next
	heard time.Time
	gone  bool // it said goodbye
}

// advance follows n events from number first on. skip of them have come already, or
// count as missed already because what came meanwhile was later; missed did not come.
func (s *sequence) advance(first uint64, n int, now time.Time) (skip int, missed uint64) {
	s.heard = now
	end := first + uint64(n)
	switch {
	case first > s.next:
		missed = min(first-s.next, maxGap)
	case end <= s.next:
		return n, 0
	default:
		skip = int(s.next - first)
	}
	s.next = end
	return skip, missed
}

// drop forgets who has been silent for too long, and reports whether there was one.
func (h *heard) drop(now time.Time) (silent bool) {
	for id, o := range h.origins {
		if now.Sub(o.heard) > silence {
			delete(h.origins, id)
			silent = silent || !o.gone
		}
	}
	return silent
}

// follow notes a message in its channel. ok: it is to be taken. Of who is not heard until
// the channel is settled, and has published before, something may have been missed.
func (h *heard) follow(m *message, now time.Time) (skip int, missed uint64, ok bool) {
	o := h.origins[m.origin]
	if o == nil {
		if len(h.origins) == maxOrigins {
			return 0, 0, false
		}
		if h.origins == nil {
			h.origins = make(map[string]*sequence)
		}
		o = &sequence{next: m.first}
		if m.first > 0 && h.settled(now) {
			o.next-- // nobody knows how many
		}
		h.origins[m.origin] = o
	}
	skip, missed = o.advance(m.first, len(m.events), now)
	o.gone = m.bye
	return skip, missed, true
}

// message takes a message that came in a session.
func (l *Listener) message(s *session, name, payload string) {
	c, ok := l.channel[name]
	if !ok {
		return
	}
	m, body, err := parseHead(payload)
	if err == nil && m.origin == l.origin {
		return
	}
	var signers []string
	if err == nil {
		m.events, signers, err = parseEvents(c, body)
	}
	if err != nil {
		l.ignore(name, err)
		return
	}
	now := time.Now()
	l.mu.Lock()
	h := &l.each[c]
	if h.session != s || h.since.IsZero() { // it came too late, or too early to count
		l.mu.Unlock()
		return
	}
	skip, missed, ok := h.follow(&m, now)
	if len(l.nodes) < maxOrigins {
		l.nodes[m.node] = now
	}
	l.mu.Unlock()
	if !ok {
		l.ignore(name, errHead)
		return
	}
	if missed > 0 {
		l.metrics.missed.Add(int(missed))
		l.sink.MissedOf(int64(missed), set(1<<c).of())
	}
	for i := skip; i < len(m.events); i++ {
		l.metrics.received.Inc()
		l.sink.Remote(signers[i], m.events[i], 0)
	}
}

// ignore counts what no node of ours wrote, and says so once a second at most.
func (l *Listener) ignore(name string, err error) {
	l.metrics.garbled.Inc()
	l.garbledLog.Do(func() {
		l.log.Warn("ignored a message on a channel of ours: somebody else publishes there", "channel", name, "reason", err)
	})
}
