package redisevents

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// probeEvery is how often channels that nobody needed are asked about.
	probeEvery = 100 * time.Millisecond
	// fresh is how long after the begin of asking the answer that nobody needs a
	// channel may be relied on; sure is what a subscriber waits. sure is longer by
	// what clocks of two machines may differ in their pace, and more.
	fresh = 300 * time.Millisecond
	sure  = 350 * time.Millisecond
	// linger is how long a channel is served that nobody needs any more.
	linger = 30 * time.Second
	// beatEvery is how often a node says that it is there in a channel that is
	// needed: often enough for who subscribes to hear it before sure is over, since what
	// is left out before it was heard cannot be noticed. silence is after how long it
	// counts as gone.
	beatEvery = 200 * time.Millisecond
	silence   = 5 * time.Second
	// flushTimeout bounds what one flush waits for Redis.
	flushTimeout = time.Second
)

// The bounds of what waits for Redis. A flush takes all that waits, so as much again
// may be under way. Beyond them events are dropped. At 10,000 events a second they
// are most of a second.
const (
	maxQueued      = 8192
	maxQueuedBytes = 4 << 20
)

// Config says who publishes.
type Config struct {
	// Database tells the database of the nonces from others: a word. Nodes of one
	// database get each other's events.
	Database string
	// Node is the id of this node: visible ASCII without spaces.
	Node string
}

// Publisher sends events of this node. Its methods may be called from any
// goroutine.
type Publisher struct {
	client redis.UniversalClient
	log    *slog.Logger
	names  [channels]string
	node   string
	origin string
	began  time.Time

	// idle is when a look began that found that nobody needs the channel, in
	// nanoseconds since began; 0: somebody does, or it is not known.
	idle [channels]atomic.Int64

	metrics *Metrics

	mu    sync.Mutex // guards what follows; nothing is waited for under it
	queue []queued
	bytes int
	next  [channels]uint64 // numbers of the events to come

	wake    chan struct{} // capacity 1
	stop    chan struct{} // closed by Stop
	stopped sync.Once
	done    chan struct{} // closed when run has ended

	heard [channels]time.Time // when somebody last listened; run's alone
	sent  [channels]time.Time // when something was last sent; run's alone
	well  atomic.Bool         // the last flush had its answers
}

// queued is an event that waits.
type queued struct {
	channel int
	number  uint64
	body    []byte
}

// NewPublisher starts a publisher. The client must be one that sends nothing twice
// (see redisdb), and is not closed. m is what the publisher counts in, and its listener.
func NewPublisher(client redis.UniversalClient, cfg Config, m *Metrics, log *slog.Logger) *Publisher {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	p := &Publisher{
		client: client, metrics: m, log: log.With("component", "redis_events"), names: names(cfg.Database),
		node: cfg.Node, origin: hex.EncodeToString(random[:]), began: time.Now(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	p.well.Store(true) // it has just been opened
	go p.run()
	return p
}

// Wanted implements events.Relay.
func (p *Publisher) Wanted(signer string) bool {
	at := p.idle[channelOf(signer)].Load()
	return at == 0 || time.Since(p.began)-time.Duration(at) > fresh
}

// Relay implements events.Relay. Without room the event is dropped; its number is not
// used again, so that listeners notice.
func (p *Publisher) Relay(signer string, event []byte) {
	c := channelOf(signer)
	p.mu.Lock()
	number := p.next[c]
	p.next[c]++
	full := len(p.queue) == maxQueued || p.bytes+len(event) > maxQueuedBytes
	if !full {
		p.queue = append(p.queue, queued{c, number, event})
		p.bytes += len(event)
	}
	p.mu.Unlock()
	if full {
		p.metrics.dropped.Inc()
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Missed implements events.Relay.
func (p *Publisher) Missed(signer string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next[channelOf(signer)] += uint64(n)
	p.metrics.dropped.Add(n)
}

// Stop sends what waits, says goodbye and ends the publisher. What is relayed
// afterwards is dropped. When ctx ends first, the goroutine ends by itself soon. It
// may be called again.
func (p *Publisher) Stop(ctx context.Context) error {
	p.stopped.Do(func() { close(p.stop) })
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop publishing to Redis: %w", context.Cause(ctx))
	}
}

// Waiting is how many events wait for Redis, and how many may.
func (p *Publisher) Waiting() (events, capacity int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue), maxQueued
}

// Well reports whether Redis answers.
func (p *Publisher) Well() bool { return p.well.Load() }

// run flushes: as soon as something waits, and every probeEvery. While Redis
// does not answer, it is asked no sooner than that.
func (p *Publisher) run() {
	defer close(p.done)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		wake := p.wake
		if !p.well.Load() {
			wake = nil
		}
		select {
		case <-wake:
		case <-tick.C:
		case <-p.stop:
			p.flush(true)
			return
		}
		p.flush(false)
	}
}
