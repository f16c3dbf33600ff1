package guard

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/redistest"
	"noncegate/test/lab/wait"
)

var server *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &server)) }

// patience is the safety net of every wait for something that must happen.
const patience = wait.Patience

// rig is a guard with its metrics and its log.
type rig struct {
	*testing.T
	*Guard
	reg *prometheus.Registry
	log *bytes.Buffer
}

func settings() Config { return Config{Slots: 100, Workers: 2, KeptEach: 100, Timeout: time.Second} }

func start(t *testing.T, locks Locks, change ...func(*Config)) *rig {
	t.Helper()
	cfg := settings()
	for _, c := range change {
		c(&cfg)
	}
	r := &rig{T: t, reg: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	var err error
	r.Guard, err = New(locks, cfg, r.reg, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	expect.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		expect.Check(t, r.Stop(ctx))
		if used, _ := r.slots(); used != 0 {
			t.Errorf("%d slots are lost", used)
		}
	})
	return r
}

// counted fails unless counters have these values. Their names are without noncegate_guard_.
func (r *rig) counted(want map[string]float64) {
	r.Helper()
	for name, want := range want {
		expect.Metrics(r, r.reg, map[string]float64{"guard_" + name: want})
	}
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
		r.Fatal("no slot")
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
	expect.Must(t, err)
	options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = -1, 1, true
	c := redis.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
