package redisevents

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// sending is a message on its way.
type sending struct {
	channel int
	events  int
	answer  *redis.IntCmd // how many listeners it reached
}

// flush sends all that waits in one pipeline, and with it a message without events
// to each channel in which it is time for one. last: it says goodbye.
func (p *Publisher) flush(last bool) {
	waiting, next := p.take()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	pipe := p.client.Pipeline()
	var under []sending
	send := func(channel int, m message) {
		m.origin, m.node = p.origin, p.node
		under = append(under, sending{channel, len(m.events), pipe.SPublish(ctx, p.names[channel], m.append(nil))})
		p.sent[channel] = began
	}
	for channel, events := range byChannel(waiting) {
		for len(events) > 0 {
			m, rest := cut(events)
			send(channel, m)
			events = rest
		}
	}
	for channel := range channels {
		if last {
			send(channel, message{first: next[channel], bye: true})
		} else if p.due(channel, began) {
			send(channel, message{first: next[channel]})
		}
	}
	if len(under) == 0 {
		return
	}
	_, err := pipe.Exec(ctx)
	p.learn(under, began)
	p.say(err)
}

// take empties the queue. Every number below next is in what was taken, now or
// before, or will never be sent.
func (p *Publisher) take() (waiting []queued, next [channels]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting = p.queue
	p.queue, p.bytes = nil, 0
	return waiting, p.next
}

func byChannel(waiting []queued) map[int][]queued {
	all := make(map[int][]queued)
	for _, q := range waiting {
		all[q.channel] = append(all[q.channel], q)
	}
	return all
}

// cut makes a message of the first events: as many as follow each other without a
// gap, and have room.
func cut(events []queued) (m message, rest []queued) {
	m.first = events[0].number
	n, bytes := 0, 0
	for n < len(events) && events[n].number == m.first+uint64(n) && (n == 0 || bytes+len(events[n].body) <= messageBytes) {
		m.events = append(m.events, events[n].body)
		bytes += len(events[n].body)
		n++
	}
	return m, events[n:]
}

// due reports whether a channel is to be told that we are there, or asked about.
func (p *Publisher) due(channel int, now time.Time) bool {
	if p.lingers(channel, now) {
		return now.Sub(p.sent[channel]) >= beatEvery
	}
	return now.Sub(p.sent[channel]) >= probeEvery*9/10 // a tick may come a little early
}

func (p *Publisher) lingers(channel int, now time.Time) bool {
	return !p.heard[channel].IsZero() && now.Sub(p.heard[channel]) < linger
}

// learn reads the answers. An error leaves it open whether a message was sent: it is
// not sent again, and listeners who got it are not harmed by hearing that they
// missed it.
func (p *Publisher) learn(under []sending, began time.Time) {
	for _, s := range under {
		listeners, err := s.answer.Result()
		switch {
		case err != nil:
			p.metrics.failed.Add(s.events)
			p.sent[s.channel] = time.Time{} // the gap is told as soon as it can be
			continue
		case listeners > 0:
			p.heard[s.channel] = began
			p.idle[s.channel].Store(0)
		case !p.lingers(s.channel, began):
			p.idle[s.channel].Store(max(1, int64(began.Sub(p.began))))
		}
		p.metrics.published.Add(s.events)
	}
}

// say notes how Redis is, and says so when it changed.
func (p *Publisher) say(err error) {
	if well := err == nil; p.well.Swap(well) == well {
		return
	}
	if err != nil {
		p.log.Warn("Redis does not take events for other nodes; their subscribers will be told that they missed some", "error", err)
	} else {
		p.log.Info("Redis takes events again")
	}
}
