package main

import (
	"context"
	"errors"
	"time"

	"noncegate/lease"
	"noncegate/nonce"
	"noncegate/nonce/rules"
	"noncegate/nonce/service"
	"noncegate/perf"
	"noncegate/route"
	"noncegate/ws"
)

// storage is a store of either heart.
type storage interface {
	nonce.Database
	lease.Register
}

// heart runs requests.
type heart interface {
	ws.Service
	route.Service
	Do(ctx context.Context, op *nonce.Op) error
	Halt(reason error)
	Ready(ctx context.Context) error
	Retire()
	Owned() int
	Stopped(limit int) []string
	StoppedSigners() int
	UnknownCommits() int64
	VersionConflicts() int64
	Pruned() int64
	Remembered() (signers, maxSigners int)
	Queued() (used, capacity int)
}

// heart is what runs requests; nil until it is there.
func (a *app) heart() heart {
	if h := a.service.Load(); h != nil {
		return *h
	}
	return nil
}

func (a *app) serveWith(h heart) { a.service.Store(&h) }

// register makes this start of the node known. The service takes the lease.
func (a *app) register(ctx context.Context, rows nonce.ShardStore) (err error) {
	a.holder, err = rows.Register(ctx, lease.Presence{Node: a.node, URL: a.url, Mode: a.cfg.Mode, Patience: a.cfg.LeaseTTL})
	if err == nil {
		a.onStop("registry", a.leaveRegistry)
	}
	return err
}

// leaveRegistry tells the others that this node goes away.
func (a *app) leaveRegistry(ctx context.Context) error {
	if a.member != nil {
		return a.member.Leave(ctx)
	}
	return a.store.Leave(ctx, a.holder)
}

// openShards starts the service on shards.
func (a *app) openShards(ctx context.Context, rows nonce.ShardStore) error {
	c := a.cfg
	log, err := a.logConfig(ctx)
	if err != nil {
		return err
	}
	s, err := service.New(ctx, countedRenewals{rows, a.figures}, a.holder, nonceFigures{a.figures}, a.hub, a.log, a.die, service.Config{
		Mode: nonce.Mode(c.Mode), Workers: c.Workers, QueueCapacity: c.WorkerQueueCapacity, Reject: nonce.Reject(c.WorkerRejectPolicy),
		LeaseTTL: c.LeaseTTL, MaxSigners: c.MaxSigners, MaxSignerBytes: c.MaxSignerBytes,
		Rules: rules.Rules{DefaultHold: c.HoldTTL, MaxLive: c.MaxHolds, NewSigners: nonce.NewSigners(c.NewSigners)},
		Log:   log, Chain: a.chainOfService(), Router: a.routerOfShards(), OnNodes: a.onNodes, OnHalt: func(error) { a.figures.Halted.Set(1) },
		MaxHold: c.MaxHold, SweepInterval: c.SweepInterval, RequestRetention: c.RequestRetention, HistoryRetention: c.ConsumedRetention,
	})
	if err != nil {
		return err
	}
	a.serveWith(s)
	a.onStop("service", func(context.Context) error { s.Stop(); return nil })
	return nil
}

// routerOfShards is nil where nothing is forwarded.
func (a *app) routerOfShards() service.Router {
	if a.router == nil || !a.forwards() {
		return nil
	}
	return a.router
}

// shardGauges are what a node knows of the shards, in the order of shardValues.
var shardGauges = []perf.Named{
	{Name: "shards", Help: "Shards of the database. 0 with --heart old."},
	{Name: "shards_owned", Help: "Shards that this node owns, as far as it knows. 0 with --heart old."},
	{Name: "shards_unowned", Help: "Shards that no node owns by a lease that runs, as this node saw last. 0 where no node of mode worker-queue is live, and with --heart old."},
	{Name: "shard_unowned_seconds", Help: "How long ago this node first saw unowned the shard that it has seen so for the longest; 0: none is."},
	{Name: "signer_memory_bytes", Help: "Memory for the state of signers that is kept between requests, about. 0 with --heart old."},
	{Name: "signer_memory_max_bytes", Help: "Most memory for it: --max-signer-bytes. 0 in mode basic, and with --heart old."},
}

func (a *app) shardValues() []float64 {
	s, err := a.shardService()
	if err != nil {
		return make([]float64, len(shardGauges))
	}
	unowned, longest := s.Unserved()
	bytes, maxBytes := s.RememberedBytes()
	return []float64{float64(len(s.Shards())), float64(s.Owned()), float64(unowned), longest.Seconds(), float64(bytes), float64(maxBytes)}
}

// countedRenewals is a store whose heartbeats are counted. That a heartbeat has bad news is
// an answer too.
type countedRenewals struct {
	nonce.ShardStore
	figures *perf.Set
}

// Renew implements nonce.ShardStore.
func (c countedRenewals) Renew(ctx context.Context, h lease.Holder, ttl time.Duration) (lease.Renewal, error) {
	r, err := c.ShardStore.Renew(ctx, h, ttl)
	switch {
	case err == nil, errors.Is(err, lease.ErrWentBack), errors.Is(err, lease.ErrSuperseded):
		c.figures.Heartbeat(perf.BeatAnswered)
	case !errors.Is(ctx.Err(), context.Canceled): // which is this node's own end
		c.figures.Heartbeat(perf.BeatFailed)
	}
	return r, err
}
