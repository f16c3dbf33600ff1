package redisevents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

// Sink takes what other nodes committed. Its methods are called from several
// goroutines, for one channel by one at a time, and must not block.
type Sink interface {
	// Remote hands over one event; the bytes are the sink's. missed is 0.
	Remote(signer string, event []byte, missed int64)
	// MissedOf says that n events got lost, of signers for which of is true.
	MissedOf(n int64, of func(signer string) bool)
}

// Servers finds the Redis server of a key. *redisdb.DB is one.
type Servers interface {
	// Master is a client of the server that has the key's slot; it is not closed.
	Master(ctx context.Context, key string) (*redis.Client, error)
	// Reread says that a server was not where it should be.
	Reread(ctx context.Context)
}

// set is some channels, one bit each.
type set uint64

func (s set) has(channel int) bool { return s&(1<<channel) != 0 }

// of is the signers of the channels.
func (s set) of() func(string) bool {
	return func(signer string) bool { return s.has(channelOf(signer)) }
}

const all = ^set(0)

// Listener receives events of other nodes. Its methods may be called from any
// goroutine.
type Listener struct {
	servers Servers
	sink    Sink
	log     *slog.Logger
	names   [channels]string
	channel map[string]int // by name
	origin  string         // of this node's own events, which are left out

	changing sync.Mutex // held while what is wanted is read and set

	mu       sync.Mutex // guards what follows; neither Redis nor the sink is waited for under it
	want     set
	each     [channels]heard
	failing  bool                 // Redis could not be reached when it was last tried
	nodes    map[string]time.Time // when something was last heard of a node
	upSince  time.Time            // since when something is subscribed to; zero: nothing is
	progress chan struct{}        // closed and made anew when a subscription got on

	wake   chan struct{} // capacity 1
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when run has ended

	sessions map[*redis.Client]*session // run's alone
	pause    backoff.ExponentialBackOff // run's alone
	after    time.Time                  // when to try again; run's alone

	metrics    *Metrics
	garbledLog rate.Sometimes
}

// heard is what is known of one channel.
type heard struct {
	session    *session             // that has subscribed to it, or is about to; nil: none
	since      time.Time            // when that was confirmed; zero: it was not
	incomplete bool                 // something may have been missed: it is told once it is sure again
	origins    map[string]*sequence // who publishes in it
}

// settled reports whether nothing can be left out any more.
func (h *heard) settled(now time.Time) bool { return !h.since.IsZero() && now.Sub(h.since) >= sure }

// Listen starts a listener to what the nodes of the publisher's database publish; what
// p itself publishes is left out.
func Listen(servers Servers, p *Publisher, sink Sink, log *slog.Logger) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{
		servers: servers, sink: sink, metrics: p.metrics, log: log.With("component", "redis_events"), names: p.names, origin: p.origin,
		channel: make(map[string]int), nodes: make(map[string]time.Time), progress: make(chan struct{}),
		wake: make(chan struct{}, 1), ctx: ctx, cancel: cancel, done: make(chan struct{}), sessions: make(map[*redis.Client]*session),
		garbledLog: rate.Sometimes{Interval: time.Second},
		pause:      backoff.ExponentialBackOff{InitialInterval: 100 * time.Millisecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 2 * time.Second},
	}
	for i, name := range l.names {
		l.channel[name] = i
	}
	go l.run()
	return l
}

// InterestChanged makes the listener follow what clients of this node want: every
// event, or those of some signers, or none. It is called after each change; read
// says what is wanted now. Calls from several goroutines end with the latest.
func (l *Listener) InterestChanged(read func() (everything bool, signers []string)) {
	l.changing.Lock()
	defer l.changing.Unlock()
	everything, signers := read()
	want := set(0)
	if everything {
		want = all
	}
	for _, s := range signers {
		want |= 1 << channelOf(s)
	}
	l.mu.Lock()
	same := l.want == want
	l.want = want
	l.mu.Unlock()
	if !same {
		l.nudge()
	}
}

func (l *Listener) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Await waits until no node can leave out an event that is wanted now. When ctx ends
// before, or Redis cannot be reached, the sink is told that events were missed as
// soon as it is so.
func (l *Listener) Await(ctx context.Context) {
	for {
		l.mu.Lock()
		open, progress := l.unsettledLocked(time.Now()), l.progress
		wait := open != 0 && !l.failing && ctx.Err() == nil && l.ctx.Err() == nil
		if !wait {
			for c := range channels {
				l.each[c].incomplete = l.each[c].incomplete || open.has(c)
			}
		}
		l.mu.Unlock()
		if !wait {
			return
		}
		select {
		case <-progress:
		case <-ctx.Done():
		case <-l.ctx.Done():
		}
	}
}

// unsettledLocked is what is wanted and not settled.
func (l *Listener) unsettledLocked(now time.Time) (open set) {
	for c := range channels {
		if l.want.has(c) && !l.each[c].settled(now) {
			open |= 1 << c
		}
	}
	return open
}

func (l *Listener) progressLocked() {
	close(l.progress)
	l.progress = make(chan struct{})
}

// Stop ends the subscriptions and waits for the goroutines. When ctx ends first they
// end by themselves soon. It may be called again.
func (l *Listener) Stop(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop listening to Redis: %w", context.Cause(ctx))
	}
}

// Well reports whether all that is wanted is subscribed to.
func (l *Listener) Well() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	well := !l.failing
	for c := range channels {
		well = well && (!l.want.has(c) || !l.each[c].incomplete || !l.each[c].since.IsZero())
	}
	return well
}

// Silent is how many of the nodes given, which live and share this Redis, have not
// been heard for a while, although something is subscribed to: what they commit
// does not come here.
func (l *Listener) Silent(nodes []string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.upSince.IsZero() || now.Sub(l.upSince) < silence {
		return 0
	}
	for _, node := range nodes {
		if now.Sub(l.nodes[node]) > silence {
			n++
		}
	}
	return n
}

// lost tells the sink of a loss of unknown size in some channels.
func (l *Listener) lost(where set) {
	if where != 0 {
		l.metrics.missed.Inc()
		l.sink.MissedOf(1, where.of())
	}
}

var errUnasked = errors.New("the server ended a subscription: its slot is elsewhere now")
