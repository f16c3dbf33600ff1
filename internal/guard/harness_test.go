package guard

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"noncegate/internal/testenv/redistest"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }

// patience is the safety net of every wait for something that must happen.
const patience = 20 * time.Second

// counts are the figures of a test.
type counts struct {
	mu                                            sync.Mutex // guards all
	acquired, refused, unanswered, released, kept int
	mismatched, away                              int
	held                                          time.Duration // by the last lock that ended
}

func (c *counts) count(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *counts) Acquired()                   { c.count(func() { c.acquired++ }) }
func (c *counts) Refused()                    { c.count(func() { c.refused++ }) }
func (c *counts) Unanswered()                 { c.count(func() { c.unanswered++ }) }
func (c *counts) Released(held time.Duration) { c.count(func() { c.released++; c.held = held }) }
func (c *counts) Kept(held time.Duration)     { c.count(func() { c.kept++; c.held = held }) }
func (c *counts) ReleaseFailed(why Failure, held time.Duration) {
	c.count(func() {
		c.held = held
		if why == ValueMismatch {
			c.mismatched++
		} else {
			c.away++
		}
	})
}

// get reads figures while a guard works.
func (c *counts) get(f func(c *counts) int) (n int) { c.count(func() { n = f(c) }); return n }

// rig is a guard with its figures and its log.
type rig struct {
	*testing.T
	*Guard
	counts *counts
	log    *bytes.Buffer
}

func settings() Config { return Config{Places: 100, Workers: 2, Timeout: time.Second} }

func start(t *testing.T, locks Locks, change ...func(*Config)) *rig {
	t.Helper()
	cfg := settings()
	for _, c := range change {
		c(&cfg)
	}
	r := &rig{T: t, counts: &counts{}, log: &bytes.Buffer{}}
	var err error
	r.Guard, err = New(locks, r.counts, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.Stop(ctx); err != nil {
			t.Error(err)
		}
		if used, _ := r.Places(); used != 0 {
			t.Errorf("%d places are lost", used)
		}
	})
	return r
}

// call is a guarded call.
type call struct {
	lock    Lock
	decided chan struct{}
	ended   chan struct{}
	gone    bool
}

func (c *call) Decided(*Lock) { close(c.decided) }
func (c *call) Ended(*Lock)   { close(c.ended) }
func (c *call) Gone() bool    { return c.gone }

// ask begins a call.
func (r *rig) ask(key string, interval time.Duration, keep bool) *call {
	r.Helper()
	c := &call{decided: make(chan struct{}), ended: make(chan struct{})}
	c.lock = Lock{Key: key, Interval: interval, Keep: keep, Caller: c}
	r.begin(c)
	return c
}

func (r *rig) begin(c *call) {
	r.Helper()
	if !r.Reserve() {
		r.Fatal("no place")
	}
	r.Take(&c.lock)
}

// take is ask, and the wait for the verdict.
func (r *rig) take(key string, interval time.Duration, want Verdict) *call {
	r.Helper()
	c := r.ask(key, interval, false)
	r.want(c, want)
	return c
}

func (r *rig) want(c *call, want Verdict) {
	r.Helper()
	<-c.decided
	if c.lock.Verdict != want {
		r.Errorf("%s: verdict %d (%v), want %d", c.lock.Key, c.lock.Verdict, c.lock.Err, want)
	}
}

// end ends a call and waits until its lock is given back, or could not be.
func (r *rig) end(c *call) {
	r.Helper()
	if r.End(&c.lock, true) {
		<-c.ended
	}
}

// client is one of the server, as a gateway has it.
func client(t *testing.T, s *redistest.Server) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
