// Package inprocess starts, for tests, what is below the listeners of a gateway: the real service, pools and event hub on a store in
// memory. It knows no server, so that the tests of package ws can use it as well.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/backpressure"
	"noncegate/encodepool"
	"noncegate/internal/access"
	"noncegate/internal/events"
	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/memstore"
	"noncegate/nonce/noncetest"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/postdb"
	"noncegate/test/lab/expect"
	"noncegate/test/lab/wait"
	"noncegate/wire"
	"noncegate/writer"
)

// What tests of servers use as well.
var Must, Check = expect.Must, expect.Check

// Buffer keeps what is logged.
type Buffer = expect.Buffer

// Config is what a test may change before the start. Begin with Defaults.
type Config struct {
	Node    string               // its id
	Store   *memstore.Store      // nil: one of its own, with four shards
	Metrics *prometheus.Registry // nil: one of its own
	Log     slog.Handler
	Service service.Config
	Encode  encodepool.Config
	PostDB  postdb.Config // its Queues follow Service.Workers
}

// Defaults are settings with which nothing is full.
func Defaults() Config {
	return Config{
		Node: "n1", Log: slog.DiscardHandler,
		Service: service.Config{
			Mode: nonce.WorkerQueue, Workers: 4, QueueCapacity: 4096, Reject: nonce.FailFast,
			LeaseTTL: 10 * time.Second, WatchEvery: 10 * time.Millisecond, Rules: rules.Rules{DefaultHold: time.Minute, MaxLive: 1024},
			MaxHold: 10 * time.Minute, SweepInterval: time.Hour,
		},
		Encode: encodepool.Config{Workers: 2, Queue: 10_000},
		PostDB: postdb.Config{Workers: 2, Queue: 10_000, QueueShare: 5_000},
	}
}

// Writer is the configuration of outbound queues that fits Defaults.
func Writer() writer.Config {
	return writer.Config{
		Marks:       backpressure.Marks{High: 64 << 10, Low: 16 << 10, Max: 1 << 20, SlowAfter: time.Minute, Pause: true, Drop: true, Kick: true},
		MaxMessages: 1024, Share: 512, WriteTimeout: wait.Patience, CloseTimeout: wait.Patience,
		KickCode: wire.CloseSlowConsumer, KickText: "slow_consumer",
	}
}

// Core is what is below the listeners of a gateway.
type Core struct {
	testing.TB
	Store   *memstore.Store
	Holder  lease.Holder
	Service *service.Service
	Hub     *events.Hub
	Encode  *encodepool.Pool
	PostDB  *postdb.Pool
	Metrics *prometheus.Registry
	Set     *metrics.Set // registered with Metrics
	Logger  *slog.Logger
}

// Start starts it. Whoever calls it calls Stop, after what stands on it has stopped.
func Start(t testing.TB, cfg Config) *Core {
	t.Helper()
	cfg.PostDB.Queues = cfg.Service.Workers
	c := &Core{TB: t, Store: cfg.Store, Metrics: cfg.Metrics, Logger: slog.New(cfg.Log)}
	if c.Store == nil {
		c.Store = memstore.New(4, time.Now)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	c.Set = metrics.New(c.Metrics)
	var err error
	c.PostDB, err = postdb.New(cfg.PostDB, c.Logger)
	Must(t, err)
	c.Encode, err = encodepool.New(cfg.Encode, c.Logger)
	Must(t, err)
	c.Hub = events.New(c.PostDB, func(int) {})
	c.Holder, err = c.Store.Register(t.Context(), lease.Presence{Node: cfg.Node, Mode: string(cfg.Service.Mode)})
	Must(t, err)
	c.Service, err = service.New(t.Context(), c.Store, c.Holder, cfg.Service, noncetest.Unmeasured{}, c.Hub, nil, c.Logger)
	Must(t, err)
	return c
}

// Stop stops it, and fails the test if something was left behind: a queued op, a slot in a pool, or a label that no metric declares.
func (c *Core) Stop(ctx context.Context) {
	c.Helper()
	c.Store.SetHooks(memstore.Hooks{})
	Check(c.TB, c.Service.Stop(ctx))
	Check(c.TB, c.PostDB.Stop(ctx))
	Check(c.TB, c.Encode.Stop(ctx))
	if queued, _ := c.Service.Queued(); queued != 0 {
		c.Errorf("left behind: %d slots of the worker queues", queued)
	}
	c.WantMetrics(map[string]float64{"undeclared_labels_total": 0})
}

// WantNoSlots fails unless all slots of the pools were given back.
func (c *Core) WantNoSlots() {
	c.Helper()
	if after, encode := c.PostDB.Reserved(), c.Encode.Reserved(); after != 0 || encode != 0 {
		c.Errorf("left behind: %d post-DB and %d encode slots", after, encode)
	}
}

// Metric is the value of a series, as expect.Metric has it.
func (c *Core) Metric(series string) float64 {
	c.Helper()
	return expect.Metric(c.TB, c.Metrics, series)
}

// WantMetrics fails unless the series have these values.
func (c *Core) WantMetrics(want map[string]float64) {
	c.Helper()
	expect.Metrics(c.TB, c.Metrics, want)
}

// Serve serves HTTP on a free port of this host. stop ends it and waits for it.
func Serve(t testing.TB, web *http.Server) (address string, stop func()) {
	t.Helper()
	return ServeOver(t, web, func(l net.Listener) net.Listener { return l })
}

// ServeOver is Serve with what lies over the listener, such as TLS.
func ServeOver(t testing.TB, web *http.Server, over func(net.Listener) net.Listener) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		if err := web.Serve(over(l)); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String(), func() {
		Check(t, web.Close())
		served.Wait()
	}
}

// EveryRight is all of them.
const EveryRight = access.RightAllocate | access.RightMark | access.RightMarkAny | access.RightRead | access.RightSubscribe |
	access.RightAdmin | access.RightRepair | access.RightChain

// People is an access.Authenticator whose credentials are names, and whose rights a test may change at any time.
type People struct {
	mu     sync.Mutex // guards what follows
	known  map[string]*person
	refuse error // what everybody is told; nil: who is known comes in
}

type person struct {
	rights map[string]access.Right // by signer, or "*"
	quota  access.Quota
	ended  error
}

// Grant gives a name rights on a signer, or on all ("*"), instead of those it had there.
func (p *People) Grant(name, signer string, rights access.Right) {
	p.change(name, func(who *person) { who.rights[signer] = rights })
}

// Limit gives a name a quota.
func (p *People) Limit(name string, q access.Quota) {
	p.change(name, func(who *person) { who.quota = q })
}

// End makes the sessions of a name end.
func (p *People) End(name string, why error) {
	p.change(name, func(who *person) { who.ended = why })
}

func (p *People) change(name string, do func(*person)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]*person{}
	}
	if p.known[name] == nil {
		p.known[name] = &person{rights: map[string]access.Right{}}
	}
	do(p.known[name])
}

// Refuse makes an error the answer to everybody; nil: to nobody any more.
func (p *People) Refuse(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = why
}

// Authenticate implements access.Authenticator.
func (p *People) Authenticate(r *http.Request) (*access.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	who := p.known[name]
	switch {
	case p.refuse != nil:
		return nil, fmt.Errorf("told so: %w", p.refuse)
	case !given:
		return nil, access.ErrMissing
	case who == nil || len(who.rights) == 0:
		return nil, access.ErrInvalid
	}
	may := func(right access.Right, signer string) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return (who.rights[signer]|who.rights["*"])&right != 0
	}
	ended := func(time.Time) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		return who.ended
	}
	limit := func() access.Quota {
		p.mu.Lock()
		defer p.mu.Unlock()
		return who.quota
	}
	return access.NewSession(name, "key-of-"+name, time.Time{}, may, ended).WithQuota(limit), nil
}

// As are the headers of a client under a name; "": of one that shows no credential.
func As(name string) http.Header {
	if name == "" {
		return http.Header{}
	}
	return http.Header{"Authorization": {"Bearer " + name}}
}
