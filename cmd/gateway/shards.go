package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"noncegate/internal/metrics"
	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
)

// register makes this start of the node known. The service takes the lease.
func (a *app) register(ctx context.Context) (err error) {
	a.holder, err = a.store.Register(ctx, lease.Presence{Node: a.node, URL: a.url, Mode: a.cfg.Mode})
	if err == nil {
		a.onStop("registry", a.leaveRegistry)
	}
	return err
}

// leaveRegistry tells the others that this node goes away.
func (a *app) leaveRegistry(ctx context.Context) error { return a.store.Leave(ctx, a.holder) }

// openService starts what runs requests.
func (a *app) openService(ctx context.Context) error {
	c := a.cfg
	engine, err := a.openEngine(ctx)
	if err != nil {
		return err
	}
	halted := metrics.NewLevel(a.registry, "halted",
		"1 once the node has stopped serving: the store went back as a whole, or a later start of its node id exists.")
	store, counted := countRenewals(a.store, a.registry), metrics.NewNonce(a.registry, a.perf)
	a.service, err = service.New(ctx, store, a.holder, service.Config{
		Mode: nonce.Mode(c.Mode), Workers: c.Workers, QueueCapacity: c.WorkerQueueCapacity, Reject: nonce.Reject(c.WorkerRejectPolicy),
		LeaseTTL: c.LeaseTTL, MaxSigners: c.MaxSigners, MaxSignerBytes: c.MaxSignerBytes,
		Rules:  rules.Rules{DefaultHold: c.HoldTTL, MaxLive: c.MaxHolds, NewSigners: nonce.NewSigners(c.NewSigners)},
		Engine: engine, Chain: a.chain, Router: a.routerOfService(), OnNodes: a.onNodes, OnHalt: func(error) { halted.Set(true) },
		MaxHold: c.MaxHold, SweepInterval: c.SweepInterval, RequestRetention: c.RequestRetention, HistoryRetention: c.ConsumedRetention,
	}, counted, a.hub, a.die, a.log)
	if err != nil {
		return err
	}
	a.onStop("service", a.service.Stop)
	return nil
}

// routerOfService is nil where nothing is forwarded.
func (a *app) routerOfService() service.Router {
	if a.router == nil || !a.forwards() {
		return nil
	}
	return a.router
}

// shardGauges are what a node knows of the shards, in the order of shardValues.
var shardGauges = []metrics.Named{
	{Name: "shards", Help: "Shards of the database."},
	{Name: "shards_owned", Help: "Shards that this node owns, as far as it knows."},
	{Name: "shards_unowned", Help: "Shards that no node owns by a lease that runs, as this node saw last. " +
		"0 where no node of mode worker-queue is live."},
	{Name: "shard_unowned_seconds", Help: "How long ago this node first saw unowned the shard that it has seen so for the longest; " +
		"0: none is."},
	{Name: "signer_memory_bytes", Help: "Memory for the state of signers that is kept between requests, about."},
	{Name: "signer_memory_max_bytes", Help: "Most memory for it: --max-signer-bytes. 0 in mode basic."},
}

func (a *app) shardValues() []float64 {
	s := a.service
	unowned, longest := s.Fleet().Unserved()
	_, _, bytes, maxBytes := s.Remembered()
	return []float64{float64(len(s.Shards())), float64(s.Owned()), float64(unowned), longest.Seconds(), float64(bytes), float64(maxBytes)}
}

// beatResult is what became of a heartbeat.
type beatResult string

// The results of a heartbeat.
const (
	beatAnswered beatResult = "answered"
	beatFailed   beatResult = "failed" // the store did not answer, or not in time
)

// countedRenewals is a store whose heartbeats are counted. That a heartbeat has bad news is
// an answer too.
type countedRenewals struct {
	nonce.Store
	beats metrics.Family[beatResult]
	away  *metrics.Level
}

func countRenewals(store nonce.Store, reg prometheus.Registerer) *countedRenewals {
	return &countedRenewals{
		Store: store,
		beats: metrics.NewFamily(reg, "heartbeats_total", "result", "Heartbeats of this node to the store.", beatAnswered, beatFailed),
		away:  metrics.NewLevel(reg, "store_away", "1 while the last heartbeat was not answered by the store."),
	}
}

// Renew implements nonce.Store.
func (c *countedRenewals) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error) {
	r, err := c.Store.Renew(ctx, h, ttl)
	switch {
	case err == nil, errors.Is(err, lease.ErrWentBack), errors.Is(err, lease.ErrSuperseded):
		c.beats.Inc(beatAnswered)
		c.away.Set(false)
	case !errors.Is(ctx.Err(), context.Canceled): // which is this node's own end
		c.beats.Inc(beatFailed)
		c.away.Set(true)
	}
	return r, err
}
