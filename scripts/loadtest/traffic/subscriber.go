package traffic

import (
	"context"
	"fmt"
	"sync"
	"time"

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

// subscribe opens a connection and subscribes to all events.
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

// loop reads until the connection ends.
func (s *subscriber) loop() {
	defer s.conn.Close()
	err := s.receive() // what came with the answer
	for err == nil {
		if err = s.read(); err == nil {
			err = s.receive()
		}
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
