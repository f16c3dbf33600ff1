package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"noncegate/backpressure"
	"noncegate/chain"
	"noncegate/chain/ethereum"
	"noncegate/console"
	"noncegate/encodepool"
	"noncegate/internal/access"
	"noncegate/internal/access/apikey"
	"noncegate/internal/access/audit"
	"noncegate/internal/admin"
	"noncegate/internal/cluster"
	"noncegate/internal/events"
	"noncegate/internal/guard"
	"noncegate/internal/metrics"
	"noncegate/internal/redisdb"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/performance"
	"noncegate/nonce/service"
	"noncegate/postdb"
	"noncegate/wire"
	"noncegate/writer"
	"noncegate/ws"
)

// app is a running gateway. Every step of its start that acquires something
// registers how to let go of it; stop runs those in reverse.
type app struct {
	cfg      *Config
	log      *slog.Logger
	fatal    chan error // the process must end; capacity 1
	draining atomic.Bool
	cleanups []cleanup

	listener, admin net.Listener
	tls             encryption
	node, url       string
	store           nonce.Store
	redis           *redisdb.DB // nil: without
	perf            *metrics.Set
	registry        *prometheus.Registry
	encode          *encodepool.Pool
	postdb          *postdb.Pool
	hub             *events.Hub
	holder          lease.Holder
	router          *cluster.Router              // nil: there are no other nodes
	known           atomic.Pointer[[]lease.Node] // see nodes
	guard           *guard.Guard
	meets           func(string)                // told the principals that connections let in; nil: there is no authentication
	chains          *chain.Chains               // nil: no chain is asked
	chain           nonce.Chain                 // the same, as the others ask it
	ethereum        map[string]*ethereum.Client // the clients of the chains, by CAIP-2 identifier
	endpoints       http.Handler                // of all chains
	audit           *audit.Log                  // nil: off
	gate            *access.Gate                // nil: clients are not authenticated
	service         *service.Service
	engine          *performance.Engine // nil: this node does not have it
	server          *ws.Server
	operators       *admin.Server
	ends            sync.Once
	ended           chan struct{} // closed when an operator wants the process to end
}

type cleanup struct {
	name string
	run  func(context.Context) error
}

// start brings a gateway up. When a step fails, those before it are undone.
func start(ctx context.Context, cfg *Config, log *slog.Logger) (*app, error) {
	a := &app{cfg: cfg, log: log, fatal: make(chan error, 1), registry: prometheus.NewRegistry(), ended: make(chan struct{})}
	for _, step := range []func(context.Context) error{
		a.openMemory, a.openCodec, a.openTLS, a.listen, a.openStore, a.openMetrics, a.openAudit, a.openGate, a.openRedis,
		a.openPools, a.openRouter, a.register, a.openGuard, a.openChains, a.openService, a.startChains, a.openTotals, a.openNames, a.openLinks,
		a.openAdmin, a.openServer, a.openInside, a.openEndpoints, a.openGauges, a.accept,
	} {
		if err := step(ctx); err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.DrainTimeout)
			defer cancel()
			return nil, errors.Join(err, a.stop(undo))
		}
	}
	for _, w := range exposures(cfg, boundAddr{a.listener.Addr()}, a.url, a.router != nil) {
		log.Warn(w, "listen", a.listener.Addr().String(), "url", a.url)
	}
	if limit, known := descriptorLimit(); known && limit < a.descriptors() {
		log.Warn("fewer file descriptors than this gateway may need: with all in use it reaches neither its store nor other nodes; "+
			"raise the limit (ulimit -n, LimitNOFILE) or lower --max-connections",
			"limit", limit, "need", a.descriptors())
	}
	log.Info("serving", "node", a.node, "incarnation", a.holder.Incarnation, "url", a.url,
		"store", a.store.Name(), "mode", cfg.Mode, "version", buildVersion())
	return a, nil
}

// otherDescriptors are for what is not counted: logs, files that are read, the private
// side, Redis.
const otherDescriptors = 128

// descriptors is how many files and sockets may be open at a time.
func (a *app) descriptors() uint64 {
	n := a.cfg.MaxConnections + a.conns() + otherDescriptors
	if a.gate != nil {
		n += a.cfg.MaxUnauthenticated
	}
	if a.router != nil {
		n += cluster.MaxInbound
	}
	return uint64(max(n, 0)) // #nosec G115 -- not below zero
}

func (a *app) onStop(name string, run func(context.Context) error) {
	a.cleanups = append(a.cleanups, cleanup{name, run})
}

// stop undoes the start in reverse order. A step that fails or runs out of time
// does not keep the next from being tried.
func (a *app) stop(ctx context.Context) error {
	a.draining.Store(true)
	var errs []error
	for len(a.cleanups) > 0 {
		last := a.cleanups[len(a.cleanups)-1]
		a.cleanups = a.cleanups[:len(a.cleanups)-1]
		step, cancel := atLeastFor(ctx, cleanupTime)
		if err := last.run(step); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", last.name, err))
		}
		cancel()
	}
	return errors.Join(errs...)
}

// cleanupTime is what each step of a stop may take when the time for all of them
// is used up: a drain that was not finished must not keep a node in the registry.
const cleanupTime = 2 * time.Second

// atLeastFor is ctx, or where that ends sooner a context for d.
func atLeastFor(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); !ok || time.Until(end) >= d {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// background runs fn until the gateway stops, which ends fn's context and waits for it.
func (a *app) background(name string, fn func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { fn(ctx) })
	a.onStop(name, func(context.Context) error {
		cancel()
		running.Wait()
		return nil
	})
}

// every runs fn now and each d, until the gateway stops.
func (a *app) every(name string, d time.Duration, fn func(context.Context)) {
	a.background(name, func(ctx context.Context) {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for ctx.Err() == nil {
			fn(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}

func (a *app) die(err error) {
	select {
	case a.fatal <- err:
	default: // it is dying already
	}
}

func (a *app) openCodec(context.Context) error { return wire.WarmUp() }

// listen binds both addresses first: one that is taken stops the start before
// anything is written, and the node's identity comes from them.
func (a *app) listen(ctx context.Context) (err error) {
	var lc net.ListenConfig
	if a.listener, err = lc.Listen(ctx, "tcp", a.cfg.Listen); err != nil {
		return settingErrorf("listen", "cannot be used: %v", err)
	}
	a.onStop("listener", closeListener(a.listener))
	if a.admin, err = lc.Listen(ctx, "tcp", a.cfg.AdminListen); err != nil {
		return settingErrorf("admin-listen", "cannot be used: %v", err)
	}
	a.onStop("admin listener", closeListener(a.admin))
	if err := a.protect(); err != nil {
		return err
	}
	a.node, a.url, err = a.cfg.Identity(a.listener.Addr())
	return err
}

// closeListener closes a listener that the server it was given to may have
// closed already.
func closeListener(l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// conns is how many database connections the service uses at a time.
func (a *app) conns() int {
	if a.cfg.Mode == string(nonce.Basic) {
		return 32
	}
	n := a.cfg.Workers + 6 // reads, sweeps, heartbeats
	if a.cfg.Redis != "" {
		n += a.cfg.Workers + 2 // shipping, ceilings, the switch
	}
	return n
}

func (a *app) openStore(ctx context.Context) (err error) {
	a.store, err = openStoreFor(ctx, &a.cfg.StoreConfig, a.log, a.conns(), a.die)
	if err == nil {
		a.onStop("store", func(context.Context) error { return a.store.Close() })
	}
	return err
}

func (a *app) openMetrics(context.Context) error {
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.perf = metrics.New(a.registry)
	a.background("metrics", func(ctx context.Context) { a.perf.Run(ctx, a.cfg.PerfInterval, a.log) })
	return nil
}

func (a *app) openPools(context.Context) (err error) {
	if a.encode, err = encodepool.New(encodepool.Config{Workers: a.cfg.EncodeWorkers, Queue: a.encodeSlots()}, a.log); err != nil {
		return err
	}
	a.onStop("encode pool", a.encode.Stop)
	a.postdb, err = postdb.New(postdb.Config{
		Workers: a.cfg.PostDBWorkers, Queue: a.cfg.PostDBQueue, Queues: a.cfg.Workers,
		QueueShare: queueShare(a.cfg.PostDBQueue, a.cfg.Workers), Queued: a.perf.PostDBQueue.Observe,
	}, a.log)
	if err != nil {
		return err
	}
	a.onStop("post-DB pool", a.postdb.Stop)
	a.hub = events.New(a.postdb, func(events int) { a.perf.Dropped(metrics.DropPostDBFull, events) })
	return nil
}

// queueShare is the most slots of the post-DB pool one queue may hold: half, so
// that one stuck queue leaves room, or all of them where there is no other queue.
func queueShare(queue, queues int) int {
	if queues == 1 {
		return queue
	}
	return max(1, queue/2)
}

// messageFactor is how many messages a connection may have queued for each
// request it may have in flight: room for notifications beside the replies.
const messageFactor = 4

func (a *app) openServer(context.Context) (err error) {
	c := a.cfg
	cfg := ws.Config{
		Bounds:         ws.Bounds{MaxInflight: c.MaxInflight, MaxInflightTotal: c.MaxInflightTotal, MaxMessageBytes: c.MaxMessageBytes},
		MaxConnections: c.MaxConnections, SendBuffer: int(c.WriteHighBytes), MaxReceiveBytes: c.MaxReceiveBytes, MaxBatch: c.MaxBatch,
		MaxSubscriptions: maxSubscriptions,
		MinHold:          minHold, MaxHold: c.MaxHold, PingInterval: c.PingInterval, CloseSpread: c.DrainTimeout / 20,
		Auth: a.authenticator(), Origins: c.pages(), Addresses: c.addresses(), Signers: c.signers(), Audit: a.audit,
		FirstTimeout: c.FirstMessageTimeout, MessageTimeout: c.MessageTimeout, IdleTimeout: c.IdleTimeout,
		Info: a.info, AwaitInterest: a.awaitInterest(),
		Guard: a.guard, GuardCalls: c.SubmitGuardInterval,
		Met:   a.meets,
		Chain: a.chain, ExampleChain: c.exampleChain(),
		Writer: writer.Config{
			Marks: backpressure.Marks{
				High: c.WriteHighBytes, Low: c.WriteLowBytes, Max: c.WriteMaxBytes, MaxAge: c.SlowAfter + c.WriteTimeout, SlowAfter: c.SlowAfter,
				Pause: c.slow("pause"), Drop: c.slow("drop"), Kick: c.slow("kick"), Off: c.Backpressure == "off",
			},
			MaxMessages: messageFactor * c.MaxInflight, Share: min(messageFactor*c.MaxInflight, c.EncodeQueue),
			WriteTimeout: c.WriteTimeout, CloseTimeout: closeTimeout, KickCode: wire.CloseSlowConsumer, KickText: "slow_consumer",
			EncodeQueue: a.perf.EncodeQueue.Observe, Encode: a.perf.Encode.Observe, WriteQueue: a.perf.WriteQueue.Observe,
			OnDrop: func(r backpressure.DropReason) { a.perf.Dropped(r, 1) }, OnKick: a.perf.Kicked,
		},
	}
	a.server, err = ws.New(a.service, a.hub, a.encode, cfg, a.perf, a.registry, a.log)
	if err == nil {
		a.onStop("connections", a.server.Stop)
	}
	return err
}

const (
	// maxSubscriptions bounds the subscriptions of one connection.
	maxSubscriptions = 64
	// minHold is the shortest hold a client may ask for.
	minHold = time.Second
	// closeTimeout bounds the farewell of one connection.
	closeTimeout = 2 * time.Second
	// headerTimeout bounds the HTTP request before the upgrade.
	headerTimeout = 5 * time.Second
)

func (a *app) info() wire.InfoResult {
	c := a.cfg
	nodes := a.nodes()
	state, generation := a.engineState()
	return wire.InfoResult{
		NodeCount: int64(len(nodes)), Nodes: nodeInfos(nodes),
		Node: a.node, Incarnation: a.holder.Incarnation, Version: buildVersion(), Engine: a.engineOfAll(), Store: a.store.Name(), Mode: c.Mode,
		EngineState: state, Generation: generation, Redis: a.redisKind(),
		Limits: wire.Limits{
			MaxCount: nonce.MaxCount, MaxBatch: int64(c.MaxBatch), MaxMessageBytes: c.MaxMessageBytes, MaxInflight: int64(c.MaxInflight),
			MaxHolds: int64(c.MaxHolds), MinHoldMs: minHold.Milliseconds(), MaxHoldMs: c.MaxHold.Milliseconds(),
			DefaultHoldMs: c.HoldTTL.Milliseconds(), MaxListLimit: wire.MaxListLimit,
		},
	}
}

// openAdmin comes before the connections, so that while they drain /readyz says
// so and the metrics can still be read.
func (a *app) openAdmin(context.Context) error {
	store := admin.Readiness(a.ready)
	ready := func() error {
		if a.draining.Load() {
			return nonce.ErrDraining
		}
		return store()
	}
	a.operators = admin.New(a.adminConfig(ready))
	a.onStop("admin", a.serveHTTP("admin", a.admin, a.operators.Handler(), a.hardenAdmin))
	return nil
}

func (a *app) adminConfig(ready func() error) admin.Config {
	return admin.Config{
		Node: a.node, Key: a.cfg.AdminKey, Hosts: a.cfg.adminHosts(), Profiles: a.cfg.Pprof == "on", Metrics: a.registry, Ready: ready,
		Gate: a.gate, Audit: a.audit, Log: a.log.With("component", "admin"),
		Store: a.store, Service: a.service, Chains: a.chains, Engine: a.engine, NoEngine: a.errNoEngine, Redis: a.redis,
		Rehearsal: a.cfg.EngineRehearsal, MaxHold: a.cfg.MaxHold, Nodes: a.nodes, NodeInfos: nodeInfos,
		Version: buildVersion(), Mode: a.cfg.Mode, Console: a.cfg.Console, Pages: console.Handler(), Stats: a.perf.Stats,
		Keys: keysOf(a.store), Settings: a.cfg.inForce, Trouble: a.trouble, ChainsOf: a.chainViews,
		Drain: func() { a.ends.Do(func() { close(a.ended) }) },
	}
}

// keysOf are the API keys of a store; nil: it keeps none.
func keysOf(store nonce.Store) apikey.Store {
	if keys, ok := store.(apikey.Store); ok {
		return keys
	}
	return nil
}

// openInside serves the clients' side to the admin API.
func (a *app) openInside(context.Context) error {
	a.operators.Serve(a.server)
	a.onStop("admin API", a.serveHTTP("admin API", a.operators.Inside(), a.server, func(srv *http.Server) {
		srv.ConnContext = admin.ConnContext
	}))
	return nil
}

// accept comes last, so its end comes first: a draining gateway takes no new
// connection.
func (a *app) accept(context.Context) error {
	shutdown := a.serveHTTP("http", a.listener, a.public(), a.harden)
	a.onStop("drain", func(ctx context.Context) error { // side by side: a POST may wait for long
		ended := make(chan error, 1)
		go func() { ended <- shutdown(ctx) }()
		err := a.drainConnections(ctx)
		return errors.Join(err, <-ended)
	})
	a.onStop("leave", a.leave)
	a.onStop("jobs", func(context.Context) error { a.operators.Stop(); return nil }) // before what they ask is refused
	return nil
}

// drainConnections ends those of clients first: some may still be served over the links of other nodes.
func (a *app) drainConnections(ctx context.Context) error {
	if a.router == nil {
		return a.server.Drain(ctx)
	}
	a.router.Leave()
	return errors.Join(a.server.Drain(ctx), a.router.Drain(ctx))
}

// serveHTTP serves until it is shut down, which takes no new connection any more and waits for
// the requests under way, but for connections that were upgraded.
func (a *app) serveHTTP(name string, l net.Listener, h http.Handler, more ...func(*http.Server)) (shutdown func(context.Context) error) {
	log := slog.NewLogLogger(a.log.With("component", name).Handler(), slog.LevelDebug)
	srv := &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ErrorLog: log}
	for _, set := range more {
		set(srv)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.die(fmt.Errorf("%s: %w", name, err))
		}
	}()
	return func(ctx context.Context) error {
		err := srv.Shutdown(ctx)
		<-done
		return err
	}
}

// readyTimeout bounds one look at the store.
const readyTimeout = time.Second

func (a *app) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	return a.service.Ready(ctx)
}
